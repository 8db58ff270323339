"""Plans for writing variables: the arguments of a new array, or a region of an existing one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from xarray.backends.zarr import encode_zarr_variable

from zstore.base.boxes import whole
from zstore.errors import MetadataError
from zstore.guests.dask import even_chunks
from zstore.guests.xarray.read import open_variable
from zstore.model.array import ZarrFormat
from zstore.model.json_attributes import render_attributes, render_fill
from zstore.model.packing import FILLS, PACKING, SCALING
from zstore.nodes.array import Array
from zstore.nodes.group import Group

TIMES = ("units", "calendar")
# Keys of an encoding that say what stored numbers mean.
MEANT = ("dtype", *PACKING, *TIMES)
# Keys of an encoding that say how an array is stored; all others are CF's, for xarray's encoders.
STORED = ("chunks", "shards", "compressors", "filters", "serializer", "chunk_key_encoding", "order")
# Keys that a variable keeps from the file it was read from, which do not concern Zarr.
CARRIED = ("source", "original_shape", "preferred_chunks", "cache_metadata", "write_empty_chunks")


class VariablePlan(NamedTuple):
    """An encoded variable, and the array that it is written to.

    places   the region of the array: slices with both ends
    options  of `create_array`, where `array` is None
    array    the existing array
    shape    of the array afterwards, where it grows
    """

    name: str
    variable: xr.Variable
    places: tuple[slice, ...]
    options: dict[str, Any]
    array: Array | None = None
    shape: tuple[int, ...] | None = None


def _encode(variable: xr.Variable, name: str, zarr_format: ZarrFormat) -> xr.Variable:
    """The variable encoded by xarray, as for its own engine "zarr"."""
    known = inspect.signature(encode_zarr_variable).parameters
    # As for v3: for v2, xarray would load strings of any length to convert them to a fixed length.
    as_format = 3 if variable.dtype.kind == "T" else zarr_format
    options: dict[str, Any] = {"zarr_format": as_format} if "zarr_format" in known else {}
    variable = variable.copy(deep=False)
    variable.encoding = _with_one_nodata(variable.encoding)
    encoded: xr.Variable = encode_zarr_variable(variable, name=name, **options)
    return encoded


def plan_new(
    name: str, variable: xr.Variable, given: Mapping[str, Any] | None, zarr_format: ZarrFormat
) -> VariablePlan:
    """The plan of a variable as a new array; `given` is an encoding that replaces the variable's own.

    One that only says how the array is stored leaves the variable its packing and its units.

    Raises
        MetadataError: an unknown key in `given`, or dask chunks of different lengths.
    """
    if given is not None:
        is_of_storage = {*given} <= {*STORED, "compressor"}
        kept = {key: v for key, v in variable.encoding.items() if is_of_storage and key in MEANT}
        variable = variable.copy(deep=False)
        variable.encoding = {**kept, **given}
    carried = {**variable.encoding}
    stated_fill = carried.pop("fill_value", None)
    if "compressor" in carried and "compressors" not in carried:
        carried["compressors"] = carried.pop("compressor")
    variable = variable.copy(deep=False)
    variable.encoding = {
        key: value for key, value in carried.items() if key not in STORED and key not in CARRIED
    }
    encoded = _encode(variable, name, zarr_format)
    left = set(encoded.encoding) - {"_FillValue"} if given is not None else set()
    if left or (given is not None and zarr_format == 2 and stated_fill is not None):
        raise MetadataError(
            f"encoding of {name!r} has {sorted(left) or ['fill_value']}; expected {', '.join(STORED)}, "
            f"{'_FillValue' if zarr_format == 2 else 'fill_value'} and CF's words"
        )
    attributes = dict(encoded.attrs)
    fill: Any = "auto"
    if zarr_format == 2:
        fill = attributes.pop("_FillValue", None)
    else:
        if stated_fill is not None:
            fill = stated_fill
        elif encoded.dtype.kind == "f":
            fill = math.nan
        if (value := attributes.pop("_FillValue", None)) is not None:
            attributes["_FillValue"] = render_fill(value, encoded.dtype, name)
    options = {
        "shape": encoded.shape,
        "dtype": str if _is_text(encoded.dtype) else encoded.dtype,
        "fill_value": fill,
        "attributes": render_attributes(_without_nan(attributes), name),
        "dimension_names": encoded.dims,
        **_stored_options(carried, encoded, name, zarr_format, is_given=given is not None),
    }
    places = whole(encoded.shape)
    return VariablePlan(name, encoded, places, options)


def _is_text(dtype: np.dtype[Any]) -> bool:
    metadata: Mapping[str, Any] = dtype.metadata or {}
    return dtype.kind == "T" or (dtype.kind == "O" and metadata.get("element_type") is str)


def _with_one_nodata(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """The encoding with the first of several values of nodata: xarray encodes one, and all are NaN here."""
    stated = [encoding[key] for key in FILLS if encoding.get(key) is not None]
    fills = [fill for one in stated for fill in np.ravel(one).tolist()]
    if len({*map(repr, fills)}) < 2:
        return {**encoding}
    return {
        **{key: value for key, value in encoding.items() if key != "missing_value"},
        "_FillValue": fills[0],
    }


def _without_nan(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes without a `missing_value` of NaN, which has no effect and no form in JSON."""
    value = attributes.get("missing_value")
    if isinstance(value, float | np.floating) and math.isnan(value):
        return {name: item for name, item in attributes.items() if name != "missing_value"}
    return attributes


def _stored_options(
    carried: Mapping[str, Any], encoded: xr.Variable, name: str, zarr_format: ZarrFormat, *, is_given: bool
) -> dict[str, Any]:
    """Chunks, shards and codecs for `create_array`; a variable's own of another format are dropped."""
    options = {key: carried[key] for key in STORED if carried.get(key) is not None}
    if not is_given:
        codecs = ("compressors", "filters", "serializer")
        listed = [codec for key in codecs if key in options for codec in _listed(options[key])]
        if zarr_format == 2 or any(_is_v2(codec) for codec in listed):
            is_other = zarr_format == 3 or not all(_is_v2(codec) for codec in listed)
            options = {k: v for k, v in options.items() if not (is_other and k in codecs)}
        for key in ("chunks", "shards"):
            value = options.get(key)
            if isinstance(value, tuple | list) and len(value) != encoded.ndim:
                del options[key]
        if zarr_format == 2:
            options.pop("shards", None)
    if zarr_format == 2 and (_is_text(encoded.dtype) or encoded.dtype.kind == "U") and "filters" in options:
        # The data type implies this filter, which is added without being named.
        options["filters"] = [
            codec for codec in _listed(options["filters"]) if _codec_id(codec) != "vlen-utf8"
        ] or "auto"
    if isinstance(options.get("shards"), int):
        options["shards"] = (options["shards"],) * encoded.ndim
    if "chunks" not in options and encoded.chunks is not None and "shards" not in options:
        options["chunks"] = even_chunks(encoded.chunks, repr(name))
    if zarr_format == 2:
        options.pop("serializer", None)
    if encoded.ndim == 0:
        options = {key: value for key, value in options.items() if key not in ("chunks", "shards")}
    return options


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _codec_id(codec: Any) -> Any:
    return codec.get("id") if isinstance(codec, Mapping) else getattr(codec, "codec_id", codec)


def _is_v2(codec: Any) -> bool:
    return "id" in codec if isinstance(codec, Mapping) else not hasattr(codec, "to_dict")


def plan_onto(
    name: str, variable: xr.Variable, array: Array, append_dim: Any, region: Mapping[str, slice]
) -> VariablePlan:
    """The plan of a variable as values of an existing array, with that array's packing and units.

    Raises
        MetadataError: other dimensions or lengths, or values that the array cannot represent.
    """
    raw = open_variable(array, masks_fill=array.zarr_format == 2)
    existing = xr.conventions.decode_cf_variable(name, raw)
    variable = variable.copy(deep=False)
    variable.encoding = {
        key: value
        for key, value in existing.encoding.items()
        if key not in STORED and key not in CARRIED and key != "fill_value"
    }
    if not set(SCALING) & set(raw.attrs):
        _check_range(name, variable, raw)
    encoded = _encode(variable, name, array.zarr_format)
    _check_packing(name, encoded, raw, existing)
    if set(encoded.dims) != set(raw.dims):
        raise MetadataError(f"{name!r} has the dimensions {encoded.dims}; the store's has {raw.dims}")
    encoded = encoded.transpose(*raw.dims)
    places, shape = [], []
    for dim, length, there in zip(raw.dims, encoded.shape, array.shape, strict=True):
        place = slice(0, there)
        if dim == append_dim:
            place = slice(there, there + length)
        elif dim in region:
            place = region[str(dim)]
        if place.stop - place.start != length or place.stop > max(
            there, there + length * (dim == append_dim)
        ):
            raise MetadataError(
                f"{name!r} has {length} items along {dim!r}; expected {place.stop - place.start}, as in the "
                f"store{' at ' + repr(place) if dim in region else ''} (append_dim and region say where else)"
            )
        places.append(place)
        shape.append(max(there, place.stop))
    return VariablePlan(name, encoded, tuple(places), {}, array, tuple(shape))


def _check_packing(name: str, encoded: xr.Variable, raw: xr.Variable, existing: xr.Variable) -> None:
    """Refuse values that the stored packing, units or data type cannot represent."""
    for word in SCALING:
        if encoded.attrs.get(word, raw.attrs.get(word)) != raw.attrs.get(word):
            raise MetadataError(
                f"{name!r} can only be encoded with {word} {encoded.attrs.get(word)!r}, the store's has "
                f"{raw.attrs.get(word)!r}"
            )
    if "units" in existing.encoding and not _is_same_unit(encoded.attrs, raw.attrs):
        stated = " ".join(str(encoded.attrs.get(word, "")) for word in TIMES)
        there = " ".join(str(raw.attrs.get(word, "")) for word in TIMES)
        raise MetadataError(f"{name!r} can only be encoded with units {stated!r}, the store's has {there!r}")
    new, old = encoded.dtype, raw.dtype
    if _is_text(new) and (old.kind in "TO"):
        return
    fits = np.can_cast(new, old, "same_kind")
    if new.kind in "SU" and old.kind == new.kind:
        fits = new.itemsize <= old.itemsize
    if not fits:
        raise MetadataError(f"{name!r} has the dtype {new}; the store's {old} cannot hold it")


def _check_range(name: str, variable: xr.Variable, raw: xr.Variable) -> None:
    """Refuse numbers that the stored data type cannot represent; floats may be rounded.

    Values of dask arrays are not computed for this: their data type decides.
    """
    new, stored = variable.dtype, raw.dtype
    if new.kind not in "iuf" or stored.kind not in "iuf" or np.can_cast(new, stored, "safe"):
        return
    # Integers with a value for missing data are floats in xarray, which rounds them when encoding.
    has_missing = "_FillValue" in raw.attrs or "missing_value" in raw.attrs
    is_lost = stored.kind != "f" and (new.kind != "f" or not has_missing)
    if variable.chunks is None:
        items = variable.values
        if stored.kind == "f":
            with np.errstate(over="ignore"):
                is_lost = bool((np.isinf(items.astype(stored)) != np.isinf(items)).any())
        else:
            if new.kind == "f":
                items = items[~np.isnan(items)] if has_missing else items
                is_lost = not np.isfinite(items).all() or not (has_missing or (items == np.rint(items)).all())
            else:
                is_lost = False
            limits = np.iinfo(stored)
            is_lost |= bool(items.size) and not limits.min <= items.min() <= items.max() <= limits.max
    if is_lost:
        raise MetadataError(f"{name!r} has the dtype {new}, and numbers that the store's {stored} has not")


def _is_same_unit(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Whether the units and calendars of both mean the same, however they are written."""
    moments = []
    for attributes in (one, other):
        stated = {word: attributes[word] for word in TIMES if word in attributes}
        numbers = xr.Variable(("n",), np.array([0, 1]), stated)
        moments.append(xr.conventions.decode_cf_variable("n", numbers, decode_timedelta=True).values)
    return moments[0].dtype == moments[1].dtype and bool((moments[0] == moments[1]).all())


def resolve_region(dataset: xr.Dataset, group: Group, region: Any) -> tuple[xr.Dataset, dict[str, slice]]:
    """(the dataset without the coordinates that determine its region, the region as slices by dimension).

    Raises
        MetadataError: coordinates that are not in the store or not contiguous there, unknown dimensions,
            slices with steps, or variables without any of the region's dimensions.
    """
    asked = dict.fromkeys(dataset.dims, "auto") if region == "auto" else region
    if not isinstance(asked, Mapping):
        raise MetadataError(f"region is {region!r}; expected 'auto' or slices by dimension")
    places: dict[str, slice] = {}
    found = []
    for dim, part in asked.items():
        if dim not in dataset.dims:
            raise MetadataError(f"region names {dim!r}; expected dimensions of {list(dataset.dims)}")
        length = dataset.sizes[dim]
        if isinstance(part, str) and part == "auto":
            places[str(dim)] = _find_place(dataset, group, str(dim))
            found.append(dim)
            continue
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise MetadataError(f"region of {dim!r} is {part!r}; expected a slice of step 1, or 'auto'")
        start = part.start or 0
        stop = start + length if part.stop is None else part.stop
        if start < 0 or stop - start != length:
            raise MetadataError(f"region of {dim!r} is {part!r}; expected {length} items from 0 or later")
        places[str(dim)] = slice(start, stop)
    dataset = dataset.drop_vars([name for name in found if name in dataset.variables])
    if region == "auto":
        alone = [name for name, v in dataset.coords.variables.items() if not set(places) & set(v.dims)]
        dataset = dataset.drop_vars(alone)
    outside = [name for name, v in dataset.variables.items() if not set(places) & set(v.dims)]
    if outside:
        raise MetadataError(
            f"variables {outside} have none of the dimensions {sorted(places)} of the region; "
            "drop them with drop_vars, and write them with a region of their own"
        )
    return dataset, places


def _find_place(dataset: xr.Dataset, group: Group, dim: str) -> slice:
    """The slice of a stored dimension that has the coordinates of the dataset."""
    array = group.get(dim)
    if dim not in dataset.indexes or not isinstance(array, Array):
        lengths = {
            n
            for _, a in group.arrays()
            for name, n in zip(a.dims or (), a.shape, strict=False)
            if name == dim
        }
        if lengths == {dataset.sizes[dim]}:
            return slice(0, dataset.sizes[dim])
        raise MetadataError(
            f"region of {dim!r} is 'auto', and there is no coordinate to tell it; expected a slice"
        )
    variable = xr.conventions.decode_cf_variable(dim, open_variable(array, masks_fill=array.zarr_format == 2))
    there = xr.DataArray(variable.values, dims=dim, coords={dim: variable.values}).indexes[dim]
    if not there.is_unique:
        raise MetadataError(
            f"region of {dim!r} is 'auto', and the store has one of its coordinates twice; expected a slice"
        )
    found = there.get_indexer(dataset.indexes[dim])
    if not len(found):
        return slice(0, 0)
    if (found < 0).any():
        raise MetadataError(
            f"region of {dim!r} is 'auto', and the store has not {int((found < 0).sum())} of its coordinates"
        )
    if (np.diff(found) != 1).any():
        raise MetadataError(
            f"region of {dim!r} is 'auto', and its coordinates are not next to each other in the store"
        )
    return slice(int(found[0]), int(found[-1]) + 1)
