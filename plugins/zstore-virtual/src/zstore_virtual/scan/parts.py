"""Scans many files, one by one, into parts: manifests with the values that joining them will need."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore import Array, open_array
from zstore.errors import MetadataError, StoreError, UnsupportedError, ZstoreError
from zstore.plugin.jobs import Unit
from zstore.plugin.nodes import parse_json
from zstore_virtual.kerchunk import read_json, write_json
from zstore_virtual.manifest import Chunks, Manifest
from zstore_virtual.places import folder_of
from zstore_virtual.scan.draft import DOCUMENT
from zstore_virtual.scan.files import scan_file
from zstore_virtual.scan.origin import is_remote, place_of
from zstore_virtual.store import VirtualStore

__all__ = [
    "COMPARED_SIZE",
    "Document",
    "ScanPlan",
    "ScannedFile",
    "ScannedNode",
    "common_attributes",
    "digest_of",
    "documents_of",
    "load_array",
    "names_of_coordinates",
    "places_of",
    "renumber",
]

Document: TypeAlias = "dict[str, Any]"
# The largest arrays without the joined dimension that are compared, and the largest that are read along with
# their file.
COMPARED_SIZE = 256 << 20
SMALL_SIZE = 1 << 20
# CF's attributes that name the coordinates, and other arrays that describe where values lie.
NAMING = ("coordinates", "bounds", "grid_mapping", "cell_measures", "ancillary_variables", "climatology")


class ScannedFile(NamedTuple):
    """The manifest of one file, to be joined with others.

    name     the address of the file, for messages
    allow    places that values may be read from; everywhere for a file that was scanned by this call
    options  storage options of remote sources
    values   of the arrays that were read along with their file, by path
    digests  of the values of other arrays, by path
    unreadable  errors of members that are left out, by path; "" is the file itself
    """

    name: str
    manifest: Manifest
    allow: tuple[str, ...] = ("/",)
    options: Mapping[str, Any] | None = None
    values: Mapping[str, np.ndarray[Any, Any]] = {}
    digests: Mapping[str, str] = {}
    unreadable: Mapping[str, ZstoreError] = {}

    def without(self, paths: Set[str]) -> ScannedFile:
        """The file without the members at these paths, and what is below them."""

        def is_kept(path: str) -> bool:
            above = (path[:at] for at, character in enumerate(path) if character == "/")
            return path not in paths and paths.isdisjoint(above)

        manifest = self.manifest
        documents = {
            key: found for key, found in manifest.documents.items() if is_kept(key.rpartition("/")[0])
        }
        chunks = {path: found for path, found in manifest.chunks.items() if is_kept(path)}
        return self._replace(manifest=replace(manifest, documents=documents, chunks=chunks))

    def load(self, path: str) -> Array:
        """The array at `path`."""
        return load_array(self.manifest, path, self.allow, self.options)

    def read(self, path: str) -> np.ndarray[Any, Any]:
        """All values of the array at `path`."""
        found = self.values.get(path)
        return np.asarray(self.load(path)[...]) if found is None else found


def load_array(
    manifest: Manifest, path: str, allow: Sequence[str], options: Mapping[str, Any] | None = None
) -> Array:
    """The array at `path` of a manifest, for reading from the places in `allow`.

    options  storage options of remote sources

    Raises
        NotFoundError, StoreError: a source is not there, has changed, or lies outside these places.
    """
    return open_array(VirtualStore(manifest, url=manifest.address, allow=allow, remote_options=options), path)


class ScannedNode(NamedTuple):
    """A node of a part."""

    part: ScannedFile
    path: str
    document: Document

    @property
    def shape(self) -> list[int]:
        """The shape of an array."""
        found: list[int] = self.document["shape"]
        return found

    @property
    def dimensions(self) -> list[str | None]:
        """The dimension names of an array."""
        return self.document.get("dimension_names") or [None] * len(self.shape)

    @property
    def attributes(self) -> Document:
        """The attributes."""
        found: Document = self.document.get("attributes", {})
        return found

    def load(self) -> Array:
        """The array."""
        return self.part.load(self.path)

    def read(self) -> np.ndarray[Any, Any]:
        """All values of the array."""
        return self.part.read(self.path)

    def differs(self, first: ScannedNode, what: str, mine: Any, others: Any) -> MetadataError:
        """The error for a node that is not like that of the first part."""
        return MetadataError(
            f"{what} of {self.path!r} is {mine!r} in {self.part.name!r}; "
            f"expected {others!r} as in {first.part.name!r}",
            path=self.part.name,
        )

    def differs_in_attribute(self, first: ScannedNode, name: str) -> MetadataError:
        """The error for an attribute that is not like that of the first part."""
        values = (node.attributes.get(name) for node in (self, first))
        return self.differs(first, f"attribute {name!r}", *values)


def common_attributes(nodes: Sequence[ScannedNode]) -> Document:
    """The attributes that all nodes have with the same value."""
    return {
        name: value
        for name, value in nodes[0].attributes.items()
        if all(node.attributes.get(name) == value for node in nodes)
    }


def renumber(manifest: Manifest, path: str, into: Manifest) -> Chunks:
    """The references of an array for another manifest, to which their sources are added."""
    chunks = manifest.chunks[path]
    numbers = np.zeros(len(manifest.sources), np.int32)
    for number in np.unique(chunks.source[chunks.source >= 0]).tolist():
        numbers[number] = into.add_source(**manifest.sources[number]._asdict())
    renumbered = numbers[np.maximum(chunks.source, 0)] if len(numbers) else chunks.source
    return replace(chunks, source=np.where(chunks.source >= 0, renumbered, chunks.source))


def documents_of(part: ScannedFile) -> dict[str, Document]:
    """The documents of all nodes, parsed, by path; groups come before what is in them."""
    found = {}
    for key, value in part.manifest.documents.items():
        if key.rpartition("/")[2] != DOCUMENT:
            raise UnsupportedError(
                f"manifest has the document {key!r}; expected those of Zarr v3 only", path=part.name
            )
        if not isinstance(value, bytes):
            raise UnsupportedError(
                f"document {key!r} lies in another file; expected it in the manifest", path=part.name
            )
        found[key.rpartition("/")[0]] = parse_json(value, path=part.name, key=key)
    return found


def digest_of(values: np.ndarray[Any, Any]) -> str | None:
    """A digest that only equal values share; None for values of variable length."""
    if values.dtype.kind not in "biufcmMSU":
        return None
    head = f"{values.dtype.str} {values.shape}".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values).tobytes()).hexdigest()


@dataclass(frozen=True)
class ScanPlan:
    """The plan of a job that scans files: each file is a unit, whose result is its part.

    addresses  of the files, in compressed JSON, because the plan travels with each unit
    dimension  along which the files will be joined
    is_new     whether that is a new dimension
    """

    addresses: bytes
    drop: tuple[str, ...] = ()
    dimension: str | None = None
    is_new: bool = False
    options: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, addresses: Sequence[str], **options: Any) -> ScanPlan:
        """The plan for scanning these files."""
        return cls(zlib.compress(json.dumps([*addresses]).encode(), 1), **options)

    def units(self) -> Iterable[Unit]:
        """A unit for each file, by its number."""
        return ((number,) for number in range(len(_addresses_of(self.addresses))))

    def make(self, unit: Unit) -> ScannedFile:
        """Scan the file."""
        address = _addresses_of(self.addresses)[unit[0]]
        unreadable = dict[str, ZstoreError]()
        try:
            manifest = scan_file(address, drop=self.drop, storage_options=self.options, unreadable=unreadable)
        except ZstoreError as error:
            # A server that fails would for the other files, too.
            if self.dimension is None or (isinstance(error, StoreError) and is_remote(address)):
                raise
            return self._part(address, Manifest())._replace(unreadable={"": error})
        part = self._part(address, manifest)._replace(unreadable=unreadable)
        values, digests = {}, {}
        for path, is_joined in self._arrays_to_read(documents_of(part)):
            found = part.read(path)
            digest = digest_of(found)
            if digest is not None and is_joined:
                values[path] = found
            elif digest is not None:
                digests[path] = digest
        return part._replace(values=values, digests=digests)

    def holds(self, unit: Unit, result: ScannedFile) -> bool:
        """True: a unit writes nothing."""
        return True

    def pack(self, result: ScannedFile) -> bytes:
        """The part as bytes, for the journal."""
        values = {
            path: [found.dtype.str, found.shape, base64.b64encode(np.ascontiguousarray(found)).decode()]
            for path, found in result.values.items()
        }
        said = {"name": result.name, "values": values, "digests": {**result.digests}}
        head = json.dumps({**said, "unreadable": [*result.unreadable]})
        return zlib.compress(head.encode() + b"\n" + write_json(result.manifest), 1)

    def unpack(self, unit: Unit, data: bytes) -> ScannedFile:
        """The part in bytes that `pack` has made.

        Raises
            ValueError: it is the part of another file, or a local file has changed since.
        """
        address = _addresses_of(self.addresses)[unit[0]]
        try:
            head, _, body = zlib.decompress(data).partition(b"\n")
            packed = json.loads(head)
            if packed["name"] != address:
                raise ValueError(f"it is of {packed['name']!r}, expected {address!r}")
            if packed["unreadable"]:
                raise ValueError(f"{packed['unreadable']} could not be read")
            values = {
                path: np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
                for path, (dtype, shape, text) in packed["values"].items()
            }
            digests = dict(packed["digests"])
            manifest = read_json(body, path=address)
            place = place_of(address)
            for source in manifest.sources:
                if source.address != place and not source.address.startswith(f"{place.rstrip('/')}/"):
                    raise ValueError(f"it leads to {source.address!r}, expected {place!r}")
                if is_remote(address):
                    continue
                facts = Path(source.address).stat()
                if (source.size, source.modified) != (facts.st_size, facts.st_mtime_ns):
                    raise ValueError(f"{source.address!r} has changed")
        except (ZstoreError, zlib.error, LookupError, TypeError, OSError) as error:
            raise ValueError(f"no part of {address!r}: {error}") from error
        return self._part(address, manifest)._replace(values=values, digests=digests)

    def _part(self, address: str, manifest: Manifest) -> ScannedFile:
        return ScannedFile(address, manifest, places_of(manifest), self.options)

    def _arrays_to_read(self, documents: Mapping[str, Document]) -> Iterator[tuple[str, bool]]:
        """The small arrays whose values joining will copy (True) or compare (False)."""
        named = names_of_coordinates(documents.values())
        for path, document in documents.items() if self.dimension is not None else ():
            if document["node_type"] != "array" or not _is_small(document):
                continue
            shape, names = document["shape"], document.get("dimension_names") or []
            name = path.rpartition("/")[2]
            if self.is_new:
                if not shape or names == [name] or name in named:
                    yield path, not shape
            elif self.dimension not in names or len(shape) == 1:
                yield path, self.dimension in names


def places_of(manifest: Manifest) -> tuple[str, ...]:
    """All local files, and the prefixes that the remote sources of a manifest are in."""
    remote = {folder_of(source.address) for source in manifest.sources if is_remote(source.address)}
    return "/", *remote


def names_of_coordinates(documents: Iterable[Document]) -> set[str]:
    """The names of the arrays that attributes of the documents call coordinates, bounds and the like."""
    return {
        word
        for document in documents
        for key in NAMING
        for word in str(document.get("attributes", {}).get(key, "")).split()
    }


def _is_small(document: Document) -> bool:
    """Whether an array's document promises at most `SMALL_SIZE` bytes."""
    return 8 * prod(document["shape"]) <= SMALL_SIZE


@lru_cache(4)
def _addresses_of(packed: bytes) -> list[str]:
    found: list[str] = json.loads(zlib.decompress(packed))
    return found
