"""What the tests of readers share."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from .written import CASES, Written, write


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Written]:
    """A store of a case, made once: `stores(name, zarr_format, profile)`."""
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    place = tmp_path_factory.mktemp("readers")

    @functools.cache
    def made(name: str, zarr_format: int, profile: str | None = None) -> Written:
        path = place / f"{name.replace(' ', '-')}-{profile}-v{zarr_format}.zarr"
        return write(CASES[name], path, zarr_format, profile)

    return made
