"""Engines for zarr-python give what numpy gives; its released versions have no `engine=` to pass them to."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore

from zstore.errors import CodecError, NotFoundError
from zstore.guests.zarr_python.engine import (
    ZstoreAsyncHierarchyEngine,
    ZstoreEngine,
    ZstoreHierarchyEngine,
)

PROTOTYPE = {"prototype": default_buffer_prototype()}
LAYOUTS: dict[str, dict[str, Any]] = {
    "v2-big": {"zarr_format": 2, "dtype": ">i4", "order": "F"},
    "v3-big": {"dtype": "i4", "serializer": BytesCodec(endian="big")},
    "v3-sharded": {"dtype": "i4", "shards": (6, 8)},
}
CELLS = np.arange(90).reshape(10, 9)
MASK = CELLS % 7 == 3
ROWS, COLUMNS = np.array([[9, 0], [3, -1]]), np.array([[8, 0], [2, 1]])


def request(kind: str, selection: Any) -> Any:
    """What zarr-python hands to engines, as far as these look at it."""
    return SimpleNamespace(kind=kind, selection=selection, indexer=None)


CASES = {
    "box": (request("basic", (slice(2, 7), slice(1, 9, 3))), CELLS[2:7, 1:9:3]),
    "item": (request("basic", (3, -1)), CELLS[3, -1]),
    "outer": (request("orthogonal", (np.array([7, 1, 4]), slice(1, 5))), CELLS[[7, 1, 4], 1:5]),
    "points": (request("coordinate", (ROWS, COLUMNS)), CELLS[ROWS, COLUMNS].ravel()),
    "mask": (request("mask", (MASK,)), CELLS[MASK]),
}


@pytest.fixture(params=["local", "memory"])
def store(request: Any, tmp_path: Path) -> Any:
    return LocalStore(tmp_path / "a") if request.param == "local" else MemoryStore()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_selection_is_read_and_written_as_numpy_does(store: Any, layout: str) -> None:
    array = zarr.create_array(store, name="x/y", shape=CELLS.shape, chunks=(3, 4), **LAYOUTS[layout])
    engine = ZstoreHierarchyEngine(store).array_engine(array.path, array.metadata)
    engine.write_selection(request("basic", ...), CELLS, **PROTOTYPE)
    assert np.array_equal(array[...], CELLS)
    waited = ZstoreAsyncHierarchyEngine(store).array_engine(array.path, array.metadata)
    for name, (asked, expected) in CASES.items():
        for found in (
            engine.read_selection(asked, **PROTOTYPE),
            asyncio.run(waited.read_selection(asked, **PROTOTYPE)),
        ):
            assert np.shape(found) == expected.shape and (found == expected).all(), name
            assert found.dtype == array.dtype or not found.shape, name
        out = cpu.NDBuffer.from_numpy_array(np.zeros(expected.shape, array.dtype))
        assert engine.read_selection(asked, out=out, **PROTOTYPE) is out.as_ndarray_like()
        assert (out.as_ndarray_like() == expected).all(), name
        engine.write_selection(asked, expected * 2, **PROTOTYPE)
        assert (engine.read_selection(asked, **PROTOTYPE) == expected * 2).all(), name
        asyncio.run(waited.write_selection(asked, expected, **PROTOTYPE))
        assert np.array_equal(array[...], CELLS), name
    array.resize((12, 9))
    longer = engine.with_metadata(array.metadata)
    assert longer.read_selection(request("basic", 11), **PROTOTYPE).tolist() == [0] * 9


def test_damage_and_missing_chunks_are_errors_where_they_are_to_be(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a")
    array = zarr.create_array(store, shape=8, chunks=4, dtype="i4")
    array[:4] = 1
    config = SimpleNamespace(read_missing_chunks=False, write_empty_chunks=True)
    engine = ZstoreEngine(store, "", array.metadata, config)
    with pytest.raises(NotFoundError, match="c/1"):
        engine.read_selection(request("basic", ...), **PROTOTYPE)
    engine.write_selection(request("basic", slice(4, 8)), 0, **PROTOTYPE)
    assert engine.read_selection(request("basic", ...), **PROTOTYPE).tolist() == [1] * 4 + [0] * 4
    (tmp_path / "a/c/1").write_bytes(b"no chunk")
    with pytest.raises(CodecError, match="c/1"):
        ZstoreEngine.open(store).read_selection(request("basic", ...), **PROTOTYPE)


def test_zarr_python_refuses_writes_to_stores_that_are_read_only(tmp_path, monkeypatch):
    zarr.create_array(LocalStore(tmp_path), data=CELLS, chunks=(4, 4))
    said = []
    plain = SimpleNamespace(write_selection=lambda *_, **__: said.append("no"))
    hierarchy = SimpleNamespace(array_engine=lambda *_: plain)
    branch = SimpleNamespace(DefaultHierarchyEngine=lambda store: hierarchy)
    monkeypatch.setitem(sys.modules, "zarr.core.engine", branch)
    engine = ZstoreEngine.open(LocalStore(tmp_path, read_only=True))
    engine.write_selection(request("basic", np.s_[:2]), np.zeros((2, 9), "i8"), **PROTOTYPE)
    assert said == ["no"]
    assert (zarr.open_array(LocalStore(tmp_path), mode="r")[...] == CELLS).all()
