"""Faults reported by the kernels as errors that name the chunk and the array."""

from __future__ import annotations

import os
from collections.abc import Sequence

from zstore.errors import ChecksumError, CodecError, NotFoundError, StoreError, ZstoreError
from zstore.storage.local import REASONS

# (kind, errno, step, got, expected, outer cell, inner cell or None), see layout.h
Fault = tuple[str, int, int, int, int, tuple[int, ...], tuple[int, ...] | None]

# The negative results of a codec's functions, see zstore_codec.h.
CODEC_FAILURES = {
    -1: "the encoded bytes are damaged",
    -2: "the chunk decodes to more than {expected} bytes",
    -3: "the checksum does not match",
    -5: "the codec library refused",
}
NO_MEMORY = -4


def fault_error(
    fault: Fault, *, path: str, key: str, codecs: Sequence[str], origin: str | None = None
) -> BaseException:
    """The error for a fault in the chunk stored under `key`.

    codecs  the names of the chain's native steps, in encoding order
    origin  the file that the chunk is a part of, for a store of references to other files
    """
    error = _error(fault, path=path, key=key, codecs=codecs)
    if origin is not None and isinstance(error, ZstoreError):
        error.message = f"{error.message}; the chunk is {origin}"
    return error


def _error(fault: Fault, *, path: str, key: str, codecs: Sequence[str]) -> BaseException:
    kind, error_number, step, got, expected, _, inner = fault
    if kind == "memory":
        return MemoryError(f"no memory for chunk {key!r} of {path!r} ({expected} bytes)")
    if kind == "store":
        reason = REASONS.get(error_number, f"store failed: {os.strerror(error_number)}")
        error = StoreError(reason, path=path, key=key)
        error.errno = error_number
        return error
    part = "" if inner is None else f" of inner chunk {inner}"
    if kind == "beyond":
        return StoreError(f"the file has {got} bytes; expected {expected} at least", path=path, key=key)
    if kind == "changed":
        what = f"has {got} bytes, expected {expected}" if expected >= 0 else "was modified at another time"
        reason = f"the file has changed since it was referred to: it {what}"
        return StoreError(reason, path=path, key=key)
    if kind == "missing":
        name = "chunk" if inner is None else f"inner chunk {inner}"
        return NotFoundError(f"{name} is missing", path=path, key=key)
    if kind == "codec" and got == NO_MEMORY:
        return MemoryError(f"no memory for codec {codecs[step]!r}{part} (chunk {key!r} of {path!r})")
    if kind == "codec":
        reason = CODEC_FAILURES.get(got, f"result {got}").format(expected=expected)
        kind_of = ChecksumError if got == -3 else CodecError
        return kind_of(
            f"codec {codecs[step]!r} failed{part}: {reason}", path=path, key=key, codec=codecs[step]
        )
    return _shard_or_size(kind, got, expected, part).locate(path=path, key=key)


def _shard_or_size(kind: str, got: int, expected: int, part: str) -> ZstoreError:
    if kind == "short":
        message = f"shard has {got} bytes, its index alone takes {expected}"
        return CodecError(message, codec="sharding_indexed")
    if kind == "checksum":
        return ChecksumError("shard index does not match its checksum", codec="sharding_indexed")
    if kind == "long":
        message = (
            f"stored chunk{part} has {got} bytes; none that decodes to this array's has more than {expected}"
        )
        return CodecError(message)
    if kind == "entry":
        message = (
            f"shard index places an inner chunk at offset {got % 2**64}, size {expected % 2**64}, "
            "which is not all inside the shard's data"
        )
        return CodecError(message, codec="sharding_indexed", offset=got % 2**64)
    return CodecError(f"decoded size{part} is {got} bytes, expected {expected}", codec="bytes")
