"""The same array behind several engines, so that every question is put to all of them in one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore

ENGINES = ("zstore", "zarr-python", "tensorstore")


def field(edge: int = 2048) -> np.ndarray[Any, Any]:
    """A smooth float32 field with a little noise, as measurements have it: (edge, edge)."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:edge, 0:edge].astype("f4")
    noise = rng.standard_normal((edge, edge), dtype="f4") * np.float32(0.15)
    return np.round((15 * np.sin(x / 311) + 9 * np.cos(y / 207) + noise + 290) * 64) / np.float32(64)


def create(path: Path, data: np.ndarray[Any, Any], **options: Any) -> None:
    """Write the array once, by zstore; every engine opens the same bytes."""
    array = zstore.create_array(str(path), shape=data.shape, dtype=data.dtype, fill_value=0, **options)
    array[...] = data


class Opened:
    """An open array: `read(selection)`, `write(selection, value)`, `points(rows, columns)`."""

    def __init__(self, engine: str, path: Path) -> None:
        self.read: Callable[[Any], Any]
        self.write: Callable[[Any, Any], Any]
        if engine == "tensorstore":
            tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed")
            driver = "zarr3" if (path / "zarr.json").exists() else "zarr"
            # The others do not have the disk confirm each write either.
            context = tensorstore.Context({"file_io_sync": False})
            spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
            array = tensorstore.open(spec, context=context, open=True).result()
            self.read = lambda selection: array[selection].read().result()
            self.write = lambda selection, value: array[selection].write(value).result()
            self.points = lambda rows, columns: array.vindex[rows, columns].read().result()
            return
        if engine == "zarr-python":
            zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
            array = zarr.open_array(str(path), mode="r+")
        else:
            array = zstore.open_array(str(path), mode="r+")
        self.read = array.__getitem__
        self.write = array.__setitem__
        self.points = lambda rows, columns: array.vindex[rows, columns]
