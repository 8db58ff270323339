"""A store in the N5 format, shown as Zarr v3 for reading.

Spec     https://github.com/saalfeldlab/n5, 4.0.0, blocks of mode "default"

N5 names the fastest dimension first, Zarr the slowest: dimensions, blocks, keys and the names in `axes` are
reversed, as in zarr-python 2 and z5py. The codec "n5_default" decodes blocks. N5 has no fill value: items
that are not stored are 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from zstore.base.byterange import ByteRange
from zstore.errors import MetadataError, StoreError
from zstore.model.document import parse_json, render_json
from zstore.storage.base import (
    BatchStore,
    Entry,
    Names,
    Part,
    Parts,
    PrefixStore,
    Request,
    Store,
    check_key,
    check_prefix,
    document_range,
    join_key,
    join_url,
    key_below,
)
from zstore.storage.local import LocalStore
from zstore.storage.url import SCHEME, open_store

ATTRIBUTES, DOCUMENT = "attributes.json", "zarr.json"
# N5's own attributes; the rest are the user's.
OWN = ("n5", "dimensions", "blockSize", "dataType", "compression", "compressionType")
CHUNK = re.compile(r"(?:(.+)/)?c/([0-9]+(?:/[0-9]+)*)")


class N5Store(BatchStore):
    """The N5 hierarchy in another store, for reading, as Zarr v3: documents are made when they are read.

    Every directory that holds something is a group. What N5 does not allow stays as it is in the documents:
    whoever parses them says what is wrong, and other nodes can be read.
    """

    read_only = True
    zarr_format = 3

    def __init__(self, store: Store) -> None:
        self.store = store
        self.request_count, self.is_bounded = store.request_count, store.is_bounded
        self.lists_versions = store.lists_versions

    @classmethod
    def from_url(
        cls, url: str, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None
    ) -> Store:
        """The store at "n5://PATH", or at the URL of a directory or zip file behind "n5::"."""
        address = url.partition("n5://" if url.startswith("n5://") else "n5::")[2]
        scheme = SCHEME.match(address)
        if scheme is None and address:
            return cls(LocalStore.from_path(address, read_only=True, storage_options=storage_options))
        if scheme is not None and scheme[1].lower() == "zip":
            return cls(open_store(address, read_only=True, storage_options=storage_options))
        # The whole URL, whose ending names N5, would lead here again.
        start, mark, query = address.partition("?")
        above, _, name = start.rstrip("/").rpartition("/")
        if not above.rpartition("/")[2]:
            raise StoreError("expected n5://PATH, or n5:: and the URL of a directory or zip file", path=url)
        store = open_store(f"{above}{mark}{query}", read_only=True, storage_options=storage_options)
        below = PrefixStore(store, name)
        return below if store.url.startswith("n5:") else cls(below)

    @classmethod
    def from_adapter(
        cls,
        root: str,
        given: str,
        *,
        read_only: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Store:
        """The store of the URL pipeline "ROOT|n5:PATH"."""
        store = cls.from_url(f"n5::{root}", storage_options=storage_options)
        path = given.strip("/")
        return PrefixStore(store, path) if path else store

    @property
    def url(self) -> str:
        """ "n5://" and the path of a directory, or "n5::" and the URL of another store."""
        path = self.store.local_path()
        return f"n5::{self.store.url}" if path is None else f"n5://{path}"

    def get_parts(self, requests: Sequence[Request]) -> Parts:
        stored = [_stored_key(check_key(key)) for key, _ in requests]
        asked = [
            (key, document_range() if key.endswith(ATTRIBUTES) else byte_range)
            for key, (_, byte_range) in zip(stored, requests, strict=True)
            if key
        ]
        found = iter(self.store.get_parts(asked))
        return [
            self._part(key, next(found), byte_range) if key else None
            for key, (_, byte_range) in zip(stored, requests, strict=True)
        ]

    def _part(self, stored: str, found: Part | None, byte_range: ByteRange | None) -> Part | None:
        """A stored block as it is; in place of attributes of N5, the document made of them."""
        if not stored.endswith(ATTRIBUTES):
            return found
        data = self._document(stored.removesuffix(ATTRIBUTES).rstrip("/"), found and found.data)
        if data is None:
            return None
        begin, end = (byte_range or ByteRange(0)).resolve(len(data))
        return Part(data[begin:end], len(data), found and found.version)

    def _document(self, path: str, data: bytes | memoryview | None) -> bytes | None:
        """The document of the node at a path by its attributes; None where there is no node."""
        if data is None:
            is_group = self._array_at(path) is None and self.store.list_children(path)
            return render_json(_node("group", {})) if is_group else None
        try:
            attributes = parse_json(data, path=join_url(self.url, path), key=ATTRIBUTES)
        except MetadataError:
            return bytes(data)
        return render_json(_array(attributes) if "dimensions" in attributes else _node("group", attributes))

    def _array_at(self, path: str) -> str | None:
        """The path of the array at a path or above it; None where there is none."""
        places = _folders(f"{path}/") if path else [""]
        found = self.store.get_many([(join_key(place, ATTRIBUTES), document_range()) for place in places])
        return next(
            (place for place, data in zip(places, found, strict=True) if data and _is_array(data)), None
        )

    def entry(self, key: str) -> Entry | None:
        stored = _stored_key(check_key(key))
        if not stored or stored.endswith(ATTRIBUTES):
            return super().entry(key)
        found = self.store.entry(stored)
        return found and found._replace(key=key)

    def list(self, prefix: str = "") -> Iterator[str]:
        return (key for key, _ in self._walk(check_prefix(prefix)))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        for key, block in self._walk(check_prefix(prefix)):
            entry = self.entry(key) if block is None else block._replace(key=key)
            if entry is not None:
                yield entry

    def _walk(self, prefix: str) -> Iterator[tuple[str, Entry | None]]:
        """(key, the entry of its block) below a prefix; of documents, None."""
        start = f"{prefix}/" if prefix else ""
        is_array: dict[str, bool] = {}
        for entry in self.store.entries(self._array_at(prefix) or prefix):
            for path in _folders(entry.key):
                if path not in is_array:
                    data = self.store.get(join_key(path, ATTRIBUTES), document_range())
                    is_array[path] = data is not None and _is_array(data)
                    if (key := join_key(path, DOCUMENT)).startswith(start):
                        yield key, None
                if is_array[path]:
                    key = join_key(path, "c", _reverse(key_below(path, entry.key)))
                    if CHUNK.fullmatch(key) and key.startswith(start):
                        yield key, entry
                    break

    def list_children(self, prefix: str = "") -> Names:
        if self._array_at(check_prefix(prefix)) is not None:
            return super().list_children(prefix)
        names = {*self.store.list_children(prefix)} - {ATTRIBUTES, DOCUMENT}
        return sorted(names | {DOCUMENT}) if names or self.get(join_key(prefix, DOCUMENT)) else []

    def put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        self.check_writable(key)

    def delete(self, key: str) -> None:
        self.check_writable(key)

    def close(self) -> None:
        self.store.close()


def _stored_key(key: str) -> str:
    """N5's key for a key of Zarr's; "" where N5 has none."""
    path, _, name = key.rpartition("/")
    if name == DOCUMENT:
        return join_key(path, ATTRIBUTES)
    chunk = CHUNK.fullmatch(key)
    return "" if chunk is None else join_key(chunk[1] or "", _reverse(chunk[2]))


def _reverse(key: str) -> str:
    return "/".join(reversed(key.split("/")))


def _folders(key: str) -> list[str]:
    """The paths above a key, the root first."""
    return ["", *accumulate(key.split("/")[:-1], join_key)]


def _is_array(data: bytes | memoryview) -> bool:
    try:
        return "dimensions" in parse_json(data, path="")
    except MetadataError:
        return False


def _node(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    own = OWN if kind == "array" else ("n5",)
    rest = {name: value for name, value in attributes.items() if name not in own}
    return {"zarr_format": 3, "node_type": kind, "attributes": rest}


def _array(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The document of an array, of its attributes in N5."""
    made = _node("array", attributes)
    rest = made["attributes"]
    shape = _turned(attributes["dimensions"])
    count = len(shape) if isinstance(shape, list) else 0
    transpose = {"name": "transpose", "configuration": {"order": [*reversed(range(count))]}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    blocks = {"codecs": [transpose, big, *_compressors(attributes)]}
    # xarray's names are in Zarr's order: it wrote through zarr-python.
    for name, names in (
        ("_ARRAY_DIMENSIONS", rest.get("_ARRAY_DIMENSIONS")),
        ("axes", _turned(rest.get("axes"))),
    ):
        if isinstance(names, list) and len(names) == count and all(isinstance(one, str) for one in names):
            made["dimension_names"] = names
            del rest[name]
            break
    return {
        **made,
        "shape": shape,
        "data_type": attributes.get("dataType"),
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": _turned(attributes.get("blockSize"))},
        },
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [transpose, {"name": "n5_default", "configuration": blocks}],
    }


def _turned(value: Any) -> Any:
    return value[::-1] if isinstance(value, list) else value


def _compressors(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The codecs of v3 that decode what N5's compression made; a type that none decodes keeps its name."""
    said = attributes.get("compression", {"type": attributes.get("compressionType")})
    said = said if isinstance(said, dict) else {"type": said}
    kind = said.get("type")
    if kind == "raw":
        return []
    if kind == "gzip":
        zlib = {"name": "numcodecs.zlib", "configuration": {"level": 1}}
        return [zlib if said.get("useZlib") else {"name": "gzip", "configuration": {"level": 1}}]
    known = {
        "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 1}},
        "xz": {"name": "numcodecs.lzma", "configuration": {"format": 1}},
        "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
        "zstd": {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
        "blosc": {"name": "numcodecs.blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": 1}},
    }
    return [known.get(str(kind), {"name": f"n5.{kind}"})]
