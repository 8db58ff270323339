"""NetCDF-4 and HDF5 files: h5py's index of chunks, HDF5's filters as codecs, h5netcdf's dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError
from zstore.integrations.rasters.netcdf import file_number, plan_variable, stored_attributes, walk_groups
from zstore.storage.base import join_key
from zstore_virtual.manifest import ABSENT, INLINE
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_contiguous
from zstore_virtual.scan.origin import Origin

__all__ = ["scan_hdf5"]

# What lies in no place of its own (strings of any length, compact arrays, chunks that a filter was left out
# of) is copied into the manifest, up to this size for each array.
COPIED_SIZE = 16 << 20


def _blosc(values: Sequence[int]) -> dict[str, Any]:
    names = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    stated = [*values, *(0,) * 7]
    if stated[6] >= len(names):
        raise ValueError(f"compressor {stated[6]}")
    return {"cname": names[stated[6]], "clevel": stated[4], "shuffle": stated[5], "blocksize": 0}


def _szip(values: Sequence[int]) -> dict[str, Any]:
    names = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
    return dict(zip(names, (int(value) for value in values), strict=True)) | {"header": True}


CHECKSUM_SIZE = 4
# H5D_FILL_VALUE_UNDEFINED and H5D_FILL_VALUE_USER_DEFINED
FILL_UNDEFINED, FILL_DEFINED = 0, 2
# By HDF5's number: the codec, and its configuration by what the file says of the filter.
FILTERS: dict[int, tuple[str, Callable[[Sequence[int]], dict[str, Any]]]] = {
    1: ("zlib", lambda values: {"level": int(values[0]) if values else 1}),
    2: ("shuffle", lambda values: {"elementsize": int(values[0])}),
    3: ("fletcher32", lambda values: {}),
    4: ("imagecodecs_szip", _szip),
    307: ("bz2", lambda values: {"level": int(values[0]) if values else 1}),
    32000: ("imagecodecs_lzf", lambda values: {"header": False}),
    32001: ("blosc", _blosc),
    32004: ("imagecodecs_lz4h5", lambda values: {}),
    32015: ("zstd", lambda values: {"level": int(values[0]) if values else 3}),
}


def scan_hdf5(file: Any, origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add what an open file of h5netcdf's holds.

    Raises
        UnsupportedError: a filter, a layout or a type that references cannot say; it is named.
    """
    source = draft.add_source(origin)
    number = file_number(file._h5group)
    for below, group in walk_groups(file, ""):
        draft.add_group(below, stored_attributes(group.attrs, below or "/"))
        for name, variable in group.variables.items():
            place = join_key(below, name)
            if place not in drop and name not in drop:
                found = _Variable(variable, place, origin)
                if file_number(found.dataset) != number:
                    other = found.dataset.file.filename
                    raise found.fail(
                        f"is one of {other!r}, to which a link leads; expected one of the file itself"
                    )
                found.add_to(draft, source)


class _Kept:
    """A variable of h5netcdf's, asked once: for each answer it looks all its dimensions up again."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable
        self.dataset = self._h5ds = variable._h5ds
        self.attrs = variable.attrs

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._variable.shape)

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(self._variable.dimensions)

    @cached_property
    def dtype(self) -> Any:
        return self._variable.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.dataset.chunks if self.shape else None

    def __getitem__(self, window: Any) -> Any:
        return self._variable[window]


class _Variable:
    """One variable: h5netcdf's words for it, and the dataset that h5py has."""

    def __init__(self, variable: Any, place: str, origin: Origin) -> None:
        self.variable = _Kept(variable)
        self.dataset = self.variable.dataset
        self.place = place
        self.origin = origin

    def fail(self, what: str) -> UnsupportedError:
        """The error for a variable that cannot be said by references."""
        return UnsupportedError(f"variable {self.place!r} {what}", path=self.origin.address, key=self.place)

    def add_to(self, draft: Draft, source: int) -> None:
        """Add the array and its references."""
        dataset = self.dataset
        if dataset.shape is None:
            raise self.fail("has no dataspace; expected a shape, or to have it left out (drop)")
        if dataset.external or dataset.is_virtual:
            kind = "in external files" if dataset.external else "a virtual dataset"
            raise self.fail(f"is {kind}; expected values in the file itself")
        properties = dataset.id.get_create_plist()
        is_short = dataset.shape != tuple(self.variable.shape)
        if is_short and properties.fill_value_defined() != FILL_DEFINED:
            raise self.fail(
                f"has the shape {dataset.shape} and no fill value; expected the shape "
                f"{tuple(self.variable.shape)} of "
                "its dimensions, or one"
            )
        plan = plan_variable(self.variable, f"/{self.place}", 3, "auto", None, None)
        dtype = plan["dtype"]
        layout = properties.get_layout()
        if dtype is str or layout == 0 or _has_ends(dataset.id.get_type()):
            draft.add_array(self.place, data=self._copy(plan), **_of_data(plan))
            return
        plan |= self._stored(dtype)
        if layout == 1:
            if dataset.shape:
                plan["chunks"] = cut_contiguous(dataset.shape, dataset.dtype.itemsize)
            array = draft.add_array(self.place, **plan)
            begin = dataset.id.get_offset() if dataset.id.get_storage_size() else None
            refer_contiguous(draft, self.place, array, source, begin)
            return
        plan["chunks"] = dataset.chunks
        filters = self._filters()
        chunks: list[Any] = []
        dataset.id.chunk_iter(chunks.append)
        # Room may have been made for chunks that the array has not, or not yet.
        found = [
            info
            for info in chunks
            if all(at < length for at, length in zip(info.chunk_offset, dataset.shape, strict=True))
        ]
        self._check_index(chunks)
        masks = {info.filter_mask for info in found}
        common = masks.pop() if len(masks) == 1 else 0
        plan["compressors"] = [codec for n, codec in enumerate(filters) if not common >> n & 1]
        array = draft.add_array(self.place, **plan)
        lengths = np.array(dataset.chunks)
        cells = np.array([info.chunk_offset for info in found], np.int64).reshape(-1, len(lengths)) // lengths
        offsets = np.array([info.byte_offset for info in found], np.int64)
        sizes = np.array([info.size for info in found], np.int64)
        sources = np.full(len(found), source, np.int32)
        # Filters may be left out of chunks that reach beyond the array, and nothing says so but their size.
        whole = prod(dataset.chunks) * dataset.dtype.itemsize
        beyond = (cells + 1) * lengths > np.array(dataset.shape)
        odd = np.array([info.filter_mask != common for info in found], bool)
        odd |= beyond.any(axis=1) & (sizes == whole) & bool(filters)
        copies = self._copy_odd(
            draft, array, [info for info, is_odd in zip(found, odd, strict=True) if is_odd]
        )
        sizes[odd] = [len(copy) for copy in copies]
        offsets[odd] = np.cumsum(sizes[odd]) - sizes[odd]
        # What holds nothing but fill values is not written at all.
        sources[odd] = np.where(sizes[odd], INLINE, ABSENT)
        draft.refer(self.place, array, sources, offsets, sizes, cells, inline=b"".join(copies))

    def _copy(self, plan: Mapping[str, Any]) -> Any:
        """The values themselves, of what has no place of its own in the file."""
        size = prod(self.dataset.shape) * max(self.dataset.dtype.itemsize, 1)
        if size > COPIED_SIZE:
            raise self.fail(
                "has strings of any length, or that end before their bytes do, or is compact, all copied: "
                f"{size} bytes; expected at most {COPIED_SIZE}"
            )
        items = np.asarray(self.variable[...])
        if plan["dtype"] is not str:
            return items
        decoded = [item.decode() if isinstance(item, bytes) else str(item) for item in items.ravel().tolist()]
        made = np.empty(items.shape, object)
        made[...] = np.array(decoded, object).reshape(items.shape)
        return made

    def _stored(self, dtype: Any) -> dict[str, Any]:
        """The type as it is stored, and the value of what was never written."""
        stored = self.dataset.dtype
        properties = self.dataset.id.get_create_plist()
        is_defined = properties.fill_value_defined() != FILL_UNDEFINED
        fill = self.dataset.fillvalue if is_defined else np.zeros((), stored)[()]
        if stored.names is not None and stored.kind == "V":
            if np.dtype(dtype).isalignedstruct or stored.itemsize != _packed(stored):
                raise self.fail(f"has the type {stored}, with gaps between fields; expected none")
            orders = {field[0].byteorder for field in (stored.fields or {}).values()}
            if ">" in orders:
                raise self.fail(f"has the type {stored}; expected little-endian fields")
            if any(field[0].kind == "V" for field in (stored.fields or {}).values()):
                raise self.fail(f"has the type {stored}; expected fields of plain types")
        elif np.dtype(dtype).kind != "b":
            dtype = np.dtype(dtype).newbyteorder(stored.byteorder)
        return {"dtype": dtype, "fill_value": np.asarray(fill).astype(dtype)[()], "compressors": []}

    def _filters(self) -> list[dict[str, Any]]:
        properties = self.dataset.id.get_create_plist()
        codecs: list[dict[str, Any]] = []
        for number in range(properties.get_nfilters()):
            code, _, values, name = properties.get_filter(number)
            try:
                codec, configure = FILTERS[code]
                configuration = configure(values)
            except (KeyError, ValueError):
                said = name.decode(errors="replace") or "no name"
                expected = ", ".join(f"{n} ({codec})" for n, (codec, _) in FILTERS.items())
                raise self.fail(
                    f"has the HDF5 filter {code} ({said}) {values}; expected {expected}"
                ) from None
            # Behind a checksum or a compressor, bytes may be left that make no whole item.
            before = {one["name"] for one in codecs} - {"numcodecs.shuffle", "zstore.hdf5_shuffle"}
            size = CHECKSUM_SIZE if before == {"numcodecs.fletcher32"} else 1
            if codec == "shuffle" and before and size % configuration["elementsize"]:
                codecs.append({"name": "zstore.hdf5_shuffle", "configuration": configuration})
                continue
            codecs.append({"name": f"numcodecs.{codec}", "configuration": configuration})
        return codecs

    def _check_index(self, chunks: Sequence[Any]) -> None:
        """Refuse an index that HDF5 lists with other places than it reads from.

        It does (2.0) for the extensible arrays by which it keeps one dimension without a limit, where that
        is not the first.
        """
        limits = self.dataset.maxshape
        if limits[0] is None or limits.count(None) != 1:
            return
        for info in chunks:
            try:
                _, stored = self.dataset.id.read_direct_chunk(info.chunk_offset)
            except (OSError, RuntimeError):
                stored = None
            if stored != self.origin.read(info.byte_offset, info.size):
                raise self.fail(
                    "has chunks that HDF5 lists at other places than it reads them from (one at "
                    f"{info.chunk_offset}); expected the dimension without a limit to be the first, "
                    "or a file of the format before HDF5 1.10"
                )

    def _copy_odd(self, draft: Draft, array: Any, odd: Sequence[Any]) -> list[bytes]:
        """Chunks that the file stores without some of the filters, encoded by all of them."""
        size = sum(info.size for info in odd)
        if size > COPIED_SIZE:
            raise self.fail(
                f"has {len(odd)} chunks ({size} bytes) that some filters were left out of, which are copied; "
                f"expected at most {COPIED_SIZE} bytes"
            )
        values = []
        for info in odd:
            window = tuple(
                slice(at, min(at + step, length))
                for at, step, length in zip(info.chunk_offset, array.chunks, array.shape, strict=True)
            )
            array[window] = self.dataset[window]
            cell = (at // step for at, step in zip(info.chunk_offset, array.chunks, strict=True))
            values.append(bytes(draft.store.get(join_key(self.place, "c", *map(str, cell))) or b""))
        return values


def _has_ends(kind: Any) -> bool:
    """Whether strings of a type end at a NUL or at padding, so that their bytes are not what they say."""
    import h5py

    if isinstance(kind, h5py.h5t.TypeCompoundID):
        return any(_has_ends(kind.get_member_type(number)) for number in range(kind.get_nmembers()))
    if isinstance(kind, h5py.h5t.TypeArrayID):
        return _has_ends(kind.get_super())
    if not isinstance(kind, h5py.h5t.TypeStringID) or kind.is_variable_str() or kind.get_size() == 1:
        return False
    return kind.get_strpad() != h5py.h5t.STR_NULLPAD


def _packed(dtype: np.dtype[Any]) -> int:
    return sum(field[0].itemsize for field in (dtype.fields or {}).values())


def _of_data(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of an array that the manifest holds: in one chunk."""
    kept = {name: value for name, value in plan.items() if name not in ("chunks", "shape", "compressors")}
    whole = tuple(max(length, 1) for length in plan["shape"])
    return {**kept, "compressors": None, **({"chunks": whole} if whole else {})}
