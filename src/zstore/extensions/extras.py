"""Optional packages: the one to install for a missing feature or name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zstore.errors import UnsupportedError

# kind -> name -> the plugin package of zstore's that offers it.
OFFERED_BY = {
    "codec": {
        **dict.fromkeys(("zfp", "numcodecs.zfp"), "zstore-zfp"),
        **dict.fromkeys(("snappy", "numcodecs.imagecodecs_snappy"), "zstore-snappy"),
        **{
            f"{prefix}{name}": "zstore-imagecodecs"
            for prefix in ("", "numcodecs.imagecodecs_")
            for name in (
                "avif",
                "deflate",
                "jpeg",
                "jpeg2k",
                "jpegls",
                "jpegxl",
                "jpegxr",
                "lerc",
                "png",
                "webp",
            )
        },
    },
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
        "scan": "zstore-virtual",
        "sqlite": "zstore-sqlite",
        "virtual": "zstore-virtual",
        "virtualizarr.manifests.store.ManifestStore": "zstore-virtual",
    },
}


def package_hint(kind: str, name: str) -> str:
    """The package to install for an unknown name; "" if none of zstore's plugin packages has it."""
    package = OFFERED_BY.get(kind, {}).get(name)
    return "" if package is None else f"expected the package {package}, which is not installed"


@contextmanager
def optional(what: str, extra: str, codec: str | None = None, *, owner: str = "zstore") -> Iterator[None]:
    """A context for importing an optional package: if that fails, the error names the extra to install.

    what   who needs which package, as in "rasters are read only with rasterio"
    owner  the package that has the extra

    Raises
        UnsupportedError: the package is not installed.
    """
    try:
        yield
    except ImportError as error:
        text = f"{what}, which is not installed; expected the extra {extra!r}: pip install '{owner}[{extra}]'"
        raise UnsupportedError(text, codec=codec) from error
