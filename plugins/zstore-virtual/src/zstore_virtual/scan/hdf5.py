"""Scans NetCDF-4 and HDF5 files: h5py lists the chunks and filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError
from zstore.plugin.rasters import file_number, group_attributes, plan_variable, walk_groups
from zstore.plugin.stores import join_key
from zstore_virtual.manifest import ABSENT, INLINE
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_contiguous
from zstore_virtual.scan.origin import Origin

__all__ = ["scan_hdf5"]

# Values that no byte range holds as they must be decoded (strings of variable length, compact arrays, chunks
# that skip a filter) are copied into the manifest, up to this size for each array.
COPIED_SIZE = 16 << 20
CHECKSUM_SIZE = 4
# H5D_FILL_VALUE_UNDEFINED and H5D_FILL_VALUE_USER_DEFINED
FILL_UNDEFINED, FILL_DEFINED = 0, 2
# H5D_COMPACT and H5D_CONTIGUOUS
COMPACT, CONTIGUOUS = 0, 1


def _blosc(values: Sequence[int]) -> dict[str, Any]:
    names = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    stated = [*values, *(0,) * 7]
    if stated[6] >= len(names):
        raise ValueError(f"compressor {stated[6]}")
    return {"cname": names[stated[6]], "clevel": stated[4], "shuffle": stated[5], "blocksize": 0}


def _szip(values: Sequence[int]) -> dict[str, Any]:
    names = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
    return dict(zip(names, (int(value) for value in values), strict=True)) | {"header": True}


# By HDF5's number of the filter: the codec, and what makes its configuration of the filter's parameters.
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
    """Add all groups and variables of an open `Hdf5File`, but those to drop.

    Raises
        UnsupportedError: a filter, a layout or a type that references cannot express; it is named.
    """
    source = draft.add_source(origin)
    number = file_number(file.node)
    for group_path, group in walk_groups(file, ""):
        draft.add_group(group_path, group_attributes(group, group_path or "/"))
        for name, variable in group.variables.items():
            path = join_key(group_path, name)
            if path not in drop and name not in drop:
                found = _Variable(variable, path, origin)
                if file_number(found.dataset) != number:
                    other = found.dataset.file.filename
                    raise found.fail(
                        f"lies in {other!r}, to which a link leads; expected one in the file itself"
                    )
                found.add_to(draft, source)


class _Variable:
    """One variable, and its dataset as h5py has it."""

    def __init__(self, variable: Any, path: str, origin: Origin) -> None:
        self.variable, self.dataset = variable, variable.dataset
        self.path = path
        self.origin = origin

    def fail(self, what: str) -> UnsupportedError:
        """The error for a variable that references cannot express."""
        return UnsupportedError(f"variable {self.path!r} {what}", path=self.origin.address, key=self.path)

    def add_to(self, draft: Draft, source: int) -> None:
        """Add the array, and its references to the file, which has this number among the sources."""
        dataset = self.dataset
        if dataset.shape is None:
            raise self.fail("has no dataspace; expected a shape, or to have it left out (drop)")
        if dataset.external or dataset.is_virtual:
            kind = "in external files" if dataset.external else "a virtual dataset"
            raise self.fail(f"is {kind}; expected values in the file itself")
        properties, shape = dataset.id.get_create_plist(), self.variable.shape
        if dataset.shape != shape and properties.fill_value_defined() != FILL_DEFINED:
            raise self.fail(
                f"has the shape {dataset.shape} and no fill value; expected the shape {shape} of its "
                "dimensions, or one"
            )
        plan = plan_variable(self.variable, f"/{self.path}", 3, "auto", None, None, as_stored=True)
        layout = properties.get_layout()
        if plan["dtype"] is str or layout == COMPACT or _has_terminator(dataset.id.get_type()):
            draft.add_array(self.path, data=self._copy(plan), **_without_chunks(plan))
            return
        plan |= self._stored(plan["dtype"])
        if layout != CONTIGUOUS:
            self._add_chunked(draft, source, plan)
            return
        if dataset.shape:
            plan["chunks"] = cut_contiguous(dataset.shape, dataset.dtype.itemsize)
        array = draft.add_array(self.path, **plan)
        begin = dataset.id.get_offset() if dataset.id.get_storage_size() else None
        refer_contiguous(draft, self.path, array, source, begin)

    def _add_chunked(self, draft: Draft, source: int, plan: Mapping[str, Any]) -> None:
        """Add an array that is stored in chunks, and its references."""
        dataset, filters = self.dataset, self._filters()
        listed: list[Any] = []
        dataset.id.chunk_iter(listed.append)
        self._check_index(listed)
        # HDF5 also lists chunks beyond the end that were allocated for the array to grow into.
        chunks = [
            chunk
            for chunk in listed
            if all(at < length for at, length in zip(chunk.chunk_offset, dataset.shape, strict=True))
        ]
        masks = {chunk.filter_mask for chunk in chunks}
        mask = masks.pop() if len(masks) == 1 else 0
        compressors = [codec for n, codec in enumerate(filters) if not mask >> n & 1]
        array = draft.add_array(self.path, **{**plan, "chunks": dataset.chunks, "compressors": compressors})
        lengths = np.array(dataset.chunks)
        cells = (
            np.array([chunk.chunk_offset for chunk in chunks], np.int64).reshape(-1, len(lengths)) // lengths
        )
        offsets = np.array([chunk.byte_offset for chunk in chunks], np.int64)
        sizes = np.array([chunk.size for chunk in chunks], np.int64)
        sources = np.full(len(chunks), source, np.int32)
        # Chunks that reach beyond the array may skip all filters; only their size tells.
        whole_size = prod(dataset.chunks) * dataset.dtype.itemsize
        is_beyond = ((cells + 1) * lengths > np.array(dataset.shape)).any(axis=1)
        is_odd = np.array([chunk.filter_mask != mask for chunk in chunks], bool)
        is_odd |= is_beyond & (sizes == whole_size) & bool(filters)
        copies = self._copy_chunks(draft, array, [chunks[n] for n in np.flatnonzero(is_odd)])
        sizes[is_odd] = [len(copy) for copy in copies]
        offsets[is_odd] = np.cumsum(sizes[is_odd]) - sizes[is_odd]
        # A chunk of nothing but fill values is not written, and so not stored.
        sources[is_odd] = np.where(sizes[is_odd], INLINE, ABSENT)
        draft.refer(self.path, array, sources, offsets, sizes, cells, inline=b"".join(copies))

    def _copy(self, plan: Mapping[str, Any]) -> Any:
        """All values, to be copied into the manifest."""
        size = prod(self.dataset.shape) * max(self.dataset.dtype.itemsize, 1)
        if size > COPIED_SIZE:
            raise self.fail(
                f"has {size} bytes to copy, as it is compact, or has strings of variable length or that end "
                f"before their bytes do; expected at most {COPIED_SIZE}"
            )
        items = np.asarray(self.variable[...])
        if plan["dtype"] is not str:
            return items
        decoded = [item.decode() if isinstance(item, bytes) else str(item) for item in items.ravel().tolist()]
        texts = np.empty(items.shape, object)
        texts[...] = np.array(decoded, object).reshape(items.shape)
        return texts

    def _stored(self, dtype: Any) -> dict[str, Any]:
        """The stored data type and the fill value, as options of `create_array`; there are no compressors."""
        stored = self.dataset.dtype
        properties = self.dataset.id.get_create_plist()
        is_defined = properties.fill_value_defined() != FILL_UNDEFINED
        fill = self.dataset.fillvalue if is_defined else np.zeros((), stored)[()]
        if stored.names is not None and stored.kind == "V":
            if np.dtype(dtype).isalignedstruct or stored.itemsize != _packed_size(stored):
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
        """The codecs that stand for the filters, in order of encoding."""
        properties = self.dataset.id.get_create_plist()
        codecs: list[dict[str, Any]] = []
        for number in range(properties.get_nfilters()):
            code, _, values, name = properties.get_filter(number)
            try:
                codec, configure = FILTERS[code]
                configuration = configure(values)
            except (KeyError, ValueError):
                shown = name.decode(errors="replace") or "no name"
                expected = ", ".join(f"{n} ({codec})" for n, (codec, _) in FILTERS.items())
                raise self.fail(
                    f"has the HDF5 filter {code} ({shown}) {values}; expected {expected}"
                ) from None
            # Behind a checksum or a compressor, the bytes may not be a whole number of items.
            before = {one["name"] for one in codecs} - {"numcodecs.shuffle", "zstore.hdf5_shuffle"}
            size = CHECKSUM_SIZE if before == {"numcodecs.fletcher32"} else 1
            if codec == "shuffle" and before and size % configuration["elementsize"]:
                codecs.append({"name": "zstore.hdf5_shuffle", "configuration": configuration})
                continue
            codecs.append({"name": f"numcodecs.{codec}", "configuration": configuration})
        return codecs

    def _check_index(self, chunks: Sequence[Any]) -> None:
        """Raise UnsupportedError where HDF5 lists chunks at other places than it reads them from.

        HDF5 2.0 does so where one dimension has no limit and is not the first: the index of such chunks is an
        "extensible array".
        """
        limits = self.dataset.maxshape
        if limits[0] is None or limits.count(None) != 1:
            return
        for chunk in chunks:
            try:
                _, stored = self.dataset.id.read_direct_chunk(chunk.chunk_offset)
            except (OSError, RuntimeError):
                stored = None
            if stored != self.origin.read(chunk.byte_offset, chunk.size):
                raise self.fail(
                    "has chunks that HDF5 lists at other places than it reads them from (one at "
                    f"{chunk.chunk_offset}); expected the dimension without a limit to be the first, "
                    "or a file of the format before HDF5 1.10"
                )

    def _copy_chunks(self, draft: Draft, array: Any, chunks: Sequence[Any]) -> list[bytes]:
        """The bytes of chunks that skip some of the filters, encoded again with all of them."""
        size = sum(chunk.size for chunk in chunks)
        if size > COPIED_SIZE:
            raise self.fail(
                f"has {len(chunks)} chunks ({size} bytes) that skip some filters, which are copied; expected "
                f"at most {COPIED_SIZE} bytes"
            )
        values = []
        for chunk in chunks:
            window = tuple(
                slice(at, min(at + step, length))
                for at, step, length in zip(chunk.chunk_offset, array.chunks, array.shape, strict=True)
            )
            array[window] = self.dataset[window]
            cell = (at // step for at, step in zip(chunk.chunk_offset, array.chunks, strict=True))
            values.append(bytes(draft.store.get(join_key(self.path, "c", *map(str, cell))) or b""))
        return values


def _has_terminator(kind: Any) -> bool:
    """Whether a type has strings that end at a NUL or at spaces, so that not all of their bytes count."""
    import h5py

    if isinstance(kind, h5py.h5t.TypeCompoundID):
        return any(_has_terminator(kind.get_member_type(number)) for number in range(kind.get_nmembers()))
    if isinstance(kind, h5py.h5t.TypeArrayID):
        return _has_terminator(kind.get_super())
    if not isinstance(kind, h5py.h5t.TypeStringID) or kind.is_variable_str() or kind.get_size() == 1:
        return False
    return kind.get_strpad() != h5py.h5t.STR_NULLPAD


def _packed_size(dtype: np.dtype[Any]) -> int:
    """The size of a compound type without gaps."""
    return sum(field[0].itemsize for field in (dtype.fields or {}).values())


def _without_chunks(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The options for an array that is copied into the manifest: one uncompressed chunk."""
    kept = {name: value for name, value in plan.items() if name not in ("chunks", "shape", "compressors")}
    whole = tuple(max(length, 1) for length in plan["shape"])
    return {**kept, "compressors": None, **({"chunks": whole} if whole else {})}
