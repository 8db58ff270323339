"""Packages that only some features need, or that offer more: what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zstore.errors import UnsupportedError

# What zstore's other packages offer, by kind and name.
OFFERED_BY = {
    "codec": {"zfp": "zstore-zfp", "numcodecs.imagecodecs_snappy": "zstore-snappy"},
    "command": {
        "export": "zstore-serve",
        "serve": "zstore-serve",
        "tune": "zstore-tune",
        "view": "zstore-serve",
        "virtualize": "zstore-virtual",
    },
    "store": {
        "dbm": "zstore-dbm",
        "icechunk": "zstore-icechunk",
        "icechunk+az": "zstore-icechunk",
        "icechunk+gs": "zstore-icechunk",
        "icechunk+http": "zstore-icechunk",
        "icechunk+https": "zstore-icechunk",
        "icechunk+s3": "zstore-icechunk",
        "lmdb": "zstore-lmdb",
        "mongodb": "zstore-mongodb",
        "mongodb+srv": "zstore-mongodb",
        "redis": "zstore-redis",
        "rediss": "zstore-redis",
        "sqlite": "zstore-sqlite",
        "virtual": "zstore-virtual",
        "virtualizarr.manifests.store.ManifestStore": "zstore-virtual",
    },
}


def package_hint(kind: str, name: str) -> str:
    """What to install for a name that nobody here offers; "" where none of zstore's packages has it."""
    package = OFFERED_BY.get(kind, {}).get(name)
    return "" if package is None else f"expected the package {package}, which is not installed"


@contextmanager
def optional(what: str, extra: str, codec: str | None = None, *, owner: str = "zstore") -> Iterator[None]:
    """Within the block, a package that cannot be imported is an error that names the extra with it.

    what   what needs which package, as in "rasters are read only with rasterio"
    owner  the package whose extra that is

    Raises
        UnsupportedError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        text = f"{what}, which is not installed; expected the extra {extra!r}: pip install '{owner}[{extra}]'"
        raise UnsupportedError(text, codec=codec) from error
