"""The files of one hierarchy, scanned one by one: parts that know what joining them will ask for."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zstore.errors import UnsupportedError, ZstoreError
from zstore.jobs.plan import Unit
from zstore.model.document import parse_json
from zstore.nodes.array import Array
from zstore.nodes.open import open_array
from zstore_virtual.kerchunk import read_json, write_json
from zstore_virtual.manifest import Manifest
from zstore_virtual.places import folder_of
from zstore_virtual.scan.draft import DOCUMENT
from zstore_virtual.scan.files import scan_file
from zstore_virtual.scan.origin import is_remote, place_of
from zstore_virtual.store import VirtualStore

__all__ = [
    "COMPARED_SIZE",
    "NAMING",
    "Document",
    "Part",
    "ScanPlan",
    "digest_of",
    "documents_of",
    "load_array",
]

Document: TypeAlias = "dict[str, Any]"
# Up to that, arrays without the dimension are compared; up to KNOWN_SIZE, read when their file is scanned.
COMPARED_SIZE = 256 << 20
KNOWN_SIZE = 1 << 20
# Attributes that name the arrays which say where values lie.
NAMING = ("coordinates", "bounds", "grid_mapping", "cell_measures", "ancillary_variables", "climatology")


class Part(NamedTuple):
    """A manifest, what it is called in messages (the path of its file), and where its values are read.

    Of what was scanned here, anywhere: it leads to the files that were scanned.

    options  storage options of what is not on this machine
    values   of arrays that were read when their file was scanned, by path
    digests  of values of others
    """

    name: str
    manifest: Manifest
    allow: tuple[str, ...] = ("/",)
    options: Mapping[str, Any] | None = None
    values: Mapping[str, np.ndarray[Any, Any]] = {}
    digests: Mapping[str, str] = {}

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
    """The array at `path`, whose chunks lie in the places that are allowed.

    options  storage options of what is not on this machine

    Raises
        NotFoundError, StoreError: a source is not there, not what it was, or out of the places.
    """
    return open_array(VirtualStore(manifest, url=manifest.address, allow=allow, remote_options=options), path)


def documents_of(part: Part) -> dict[str, Document]:
    """The documents of all nodes by path, groups first where they are above."""
    found = {}
    for key, value in part.manifest.documents.items():
        if key.rpartition("/")[2] != DOCUMENT:
            raise UnsupportedError(
                f"manifest has the document {key!r}; expected those of Zarr v3 only", path=part.name
            )
        if not isinstance(value, bytes):
            expected = "expected it in the manifest"
            raise UnsupportedError(f"document {key!r} lies in another file; {expected}", path=part.name)
        found[key.rpartition("/")[0]] = parse_json(value, path=part.name, key=key)
    return found


def digest_of(values: np.ndarray[Any, Any]) -> str | None:
    """What is the same only where values are; None of values that have no bytes of their own."""
    if values.dtype.kind not in "biufcmMSU":
        return None
    said = f"{values.dtype.str} {values.shape}".encode()
    return hashlib.sha256(said + np.ascontiguousarray(values).tobytes()).hexdigest()


@dataclass(frozen=True)
class ScanPlan:
    """Scans files, a unit each; what a unit gives back is its part.

    addresses  of the files, in JSON and compressed: the plan travels with each unit
    dimension  along which they are to be joined
    is_new     whether the dimension is a new one
    """

    addresses: bytes
    drop: tuple[str, ...] = ()
    dimension: str | None = None
    is_new: bool = False
    options: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, addresses: Sequence[str], **options: Any) -> ScanPlan:
        """The plan of these files."""
        return cls(zlib.compress(json.dumps([*addresses]).encode(), 1), **options)

    def units(self) -> Iterable[Unit]:
        """A unit for each file, by its number."""
        return ((number,) for number in range(len(_addresses_of(self.addresses))))

    def make(self, unit: Unit) -> Part:
        """Scan the file."""
        address = _addresses_of(self.addresses)[unit[0]]
        manifest = scan_file(address, drop=self.drop, storage_options=self.options)
        part = self._part(address, manifest)
        values, digests = {}, {}
        for path, is_joined in self._asked(documents_of(part)):
            found = part.read(path)
            digest = digest_of(found)
            if digest is not None and is_joined:
                values[path] = found
            elif digest is not None:
                digests[path] = digest
        return part._replace(values=values, digests=digests)

    def holds(self, unit: Unit, result: Part) -> bool:
        """True: a unit writes nothing."""
        return True

    def pack(self, result: Part) -> bytes:
        """The part, for a journal."""
        values = {
            path: [found.dtype.str, found.shape, base64.b64encode(np.ascontiguousarray(found)).decode()]
            for path, found in result.values.items()
        }
        head = json.dumps({"name": result.name, "values": values, "digests": {**result.digests}})
        return zlib.compress(head.encode() + b"\n" + write_json(result.manifest), 1)

    def unpack(self, unit: Unit, data: bytes) -> Part:
        """The part that `pack` was given.

        Raises
            ValueError: it is not that of the unit's file, or the file on this machine has changed since.
        """
        address = _addresses_of(self.addresses)[unit[0]]
        try:
            head, _, body = zlib.decompress(data).partition(b"\n")
            said = json.loads(head)
            if said["name"] != address:
                raise ValueError(f"it is of {said['name']!r}, expected {address!r}")
            values = {
                path: np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
                for path, (dtype, shape, text) in said["values"].items()
            }
            digests = dict(said["digests"])
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

    def _part(self, address: str, manifest: Manifest) -> Part:
        allow = (
            "/",
            *{folder_of(source.address) for source in manifest.sources if is_remote(source.address)},
        )
        return Part(address, manifest, allow, self.options)

    def _asked(self, documents: Mapping[str, Document]) -> Iterator[tuple[str, bool]]:
        """The arrays that are to be compared, or joined in the manifest (True), as joining them will ask."""
        named = {
            word
            for document in documents.values()
            for key in NAMING
            for word in str(document.get("attributes", {}).get(key, "")).split()
        }
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


def _is_small(document: Document) -> bool:
    """Whether an array has at most a MiB, told by its document."""
    return 8 * prod(document["shape"]) <= KNOWN_SIZE


@lru_cache(4)
def _addresses_of(packed: bytes) -> list[str]:
    found: list[str] = json.loads(zlib.decompress(packed))
    return found
