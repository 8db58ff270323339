"""Packages that only some features need: what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zstore.errors import UnsupportedError


@contextmanager
def optional(what: str, extra: str, codec: str | None = None) -> Iterator[None]:
    """Within the block, a package that cannot be imported is an error that names zstore's extra with it.

    what  what needs which package, as in "rasters are read only with rasterio"

    Raises
        UnsupportedError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        text = f"{what}, which is not installed; expected the extra {extra!r}: pip install 'zstore[{extra}]'"
        raise UnsupportedError(text, codec=codec) from error
