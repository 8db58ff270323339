"""Stores that claim, or inflate to, far more than they hold; and what opening and reading them takes.

`python hostile.py KIND=PLACE…` prints, per store, how its use ended, the seconds and the peak of memory.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.codecs.zstd import Zstd
from zstore.storage.memory import MemoryStore

MIB = 1 << 20
LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")


def zeros_deflated(size: int, *, begin: bytes = b"") -> tuple[bytes, int, int]:
    """A raw deflate stream of `begin` and then zeros, `size` MiB of them; its checksum and the whole size."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    first = pack.compress(begin) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(MIB)) + pack.flush(zlib.Z_FULL_FLUSH)
    again = pack.compress(bytes(MIB)) + pack.flush(zlib.Z_FULL_FLUSH)
    crc = zlib.crc32(begin)
    for _ in range(size):
        crc = zlib.crc32(bytes(MIB), crc)
    last = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS).flush()
    return first + block + again * (size - 1) + last, crc, len(begin) + size * MIB


def write_zip(path: Path, members: dict[str, bytes | tuple[bytes, int, int]]) -> None:
    """A zip file of values as they are, and of (deflated bytes, checksum, size)."""
    body, directory = b"", b""
    for name, value in members.items():
        data, crc, size = value if isinstance(value, tuple) else (value, zlib.crc32(value), len(value))
        method = 8 if isinstance(value, tuple) else 0
        raw, place = name.encode(), len(body)
        common = (20, 0, method, 0, 33, crc, len(data), size, len(raw), 0)
        body += LOCAL.pack(b"PK\3\4", *common) + raw + data
        directory += CENTRAL.pack(b"PK\1\2", 20, *common, 0, 0, 0, 0, place) + raw
    end = END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + end)


def array_of(data: Any, **options: Any) -> dict[str, bytes]:
    """The values of a store with that array."""
    store = MemoryStore()
    zstore.create_array(store, data=data, **options)
    return {key: bytes(store.get(key) or b"") for key in store.list()}


def put(place: Path, values: dict[str, bytes]) -> Path:
    for key, value in values.items():
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        (place / key).write_bytes(value)
    return place


def zip_chunk(place: Path, size: int) -> Path:
    values: dict[str, Any] = dict(array_of(np.arange(100), chunks=100))
    write_zip(place.with_suffix(".zip"), {**values, "c/0": zeros_deflated(size)})
    return place.with_suffix(".zip")


def zip_document(place: Path, size: int) -> Path:
    write_zip(place.with_suffix(".zip"), {"zarr.json": zeros_deflated(size, begin=b'{"zarr_format": 3}')})
    return place.with_suffix(".zip")


def zip_shard(place: Path, size: int) -> Path:
    values: dict[str, Any] = dict(array_of(np.arange(100), chunks=10, shards=100))
    write_zip(place.with_suffix(".zip"), {**values, "c/0": zeros_deflated(size)})
    return place.with_suffix(".zip")


def vlen_behind(codec: str) -> Callable[[Path, int], Path]:
    """Strings, of the right count, in a chunk that goes on for `size` MiB behind them."""

    def make(place: Path, size: int) -> Path:
        values = array_of(np.array(["a"] * 10, object), dtype=str, chunks=10, compressors=codec)
        first, rest = struct.pack("<L", 10) + bytes(MIB - 4), bytes(16 * MIB)
        pack = (
            gzip.compress if codec == "gzip" else lambda data: bytes(Zstd(level=1).encode(memoryview(data)))
        )
        values["c/0"] = pack(first) + pack(rest) * (size // 16)
        return put(place, values)

    return make


def vlen_item(place: Path, size: int) -> Path:
    """One string, as long as the chunk says, of `size` MiB."""
    values = array_of(np.array(["a"], object), dtype=str, chunks=1, compressors="zstd")
    pack, rest = Zstd(level=1), bytes(16 * MIB)
    count = size // 16
    begin = struct.pack("<LL", 1, count * 16 * MIB)
    values["c/0"] = bytes(pack.encode(memoryview(begin))) + bytes(pack.encode(memoryview(rest))) * count
    return put(place, values)


def document(place: Path, size: int) -> Path:
    place.mkdir()
    with (place / "zarr.json").open("wb") as file:
        file.write(b'{"zarr_format": 3, "node_type": "group", "attributes": {"a": "')
        file.truncate(size * MIB)
    return place


def document_of_lists(place: Path, size: int) -> Path:
    """As large as a document may be, and nothing but empty lists."""
    text = b'{"zarr_format": 3, "node_type": "group", "attributes": {"a": [%s[]]}}'
    return put(place, {"zarr.json": text % (b"[]," * (min(size, 31) * MIB // 3))})


def nested_document(place: Path, size: int) -> Path:
    text = b'{"zarr_format": 3, "node_type": "group", "attributes": {"a": %s%s}}'
    return put(place, {"zarr.json": text % (b"[" * size * 1000, b"]" * size * 1000)})


def sparse_chunk(place: Path, size: int) -> Path:
    """A file of `size` GiB with nothing in it, where a chunk of 800 bytes is."""
    put(place, array_of(np.arange(100), chunks=100))
    with (place / "c" / "0").open("wb") as file:
        file.truncate(size << 30)
    return place


def sparse_plain_chunk(place: Path, size: int) -> Path:
    put(place, array_of(np.arange(100), chunks=100, compressors=None))
    with (place / "c" / "0").open("wb") as file:
        file.truncate(size << 30)
    return place


def sparse_strings(place: Path, size: int) -> Path:
    put(place, array_of(np.array(["a"] * 10, object), dtype=str, chunks=10, compressors=None))
    with (place / "c" / "0").open("wb") as file:
        file.truncate(size << 30)
    return place


MAKERS: dict[str, Callable[[Path, int], Path]] = {
    "zip_chunk": zip_chunk,
    "zip_document": zip_document,
    "zip_shard": zip_shard,
    "vlen_zstd": vlen_behind("zstd"),
    "vlen_gzip": vlen_behind("gzip"),
    "vlen_item": vlen_item,
    "document": document,
    "document_of_lists": document_of_lists,
    "nested_document": nested_document,
    "sparse_chunk": sparse_chunk,
    "sparse_plain_chunk": sparse_plain_chunk,
    "sparse_strings": sparse_strings,
}


def peak() -> int:
    """The most memory that the process has had, since the last `forget_peak`, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def use(place: str) -> str:
    try:
        node = zstore.open(place, mode="r")
        if isinstance(node, zstore.Array):
            node[...]
    except MemoryError:
        return "MemoryError"
    except zstore.errors.ZstoreError as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def main() -> None:
    array = zstore.create_array(MemoryStore(), data=np.array(["a"], object), dtype=str, compressors="zstd")
    array[...]  # what is loaded once is loaded
    for word in sys.argv[1:]:
        kind, _, place = word.partition("=")
        forget_peak()
        before, begin = peak(), time.perf_counter()
        ended = use(place)
        seconds = time.perf_counter() - begin
        print(
            json.dumps({"kind": kind, "ended": ended, "seconds": round(seconds, 2), "mib": peak() - before})
        )


if __name__ == "__main__":
    main()
