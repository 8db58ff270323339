"""Arrays of strings and other objects, and fields of structured arrays: any selection is numpy's."""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from .recipes import fsspec_memory, shapes
from .selections import numpy_selections, orthogonal, orthogonal_to_numpy
from .test_arrays import MORE, QUICK, has_repeats

FEW = settings(QUICK, max_examples=MORE or 40)

STRINGS = getattr(np.dtypes, "StringDType", lambda: np.dtype(object))()
TEXTS = ["", "a", "é", "漢字 and more than fifteen bytes", "x\0", "fill"]
RAGGED = [np.array(items, "i2") for items in ([], [1], [1, 2, 3])]
# What an array's items are: dtype, fill value, codec for objects (where it must be named), some items.
KINDS: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "string": (str, "fill", None, TEXTS),
    "bytes": (object, b"", "vlen-bytes", [text.encode() for text in TEXTS]),
    "json": (object, None, "json2", ["a", None, 1, 1.5, [1, 2], {"k": [True]}]),
    "pickle": (object, 0, "pickle", [None, 1, 0.0, (1, 2), b"x"]),
}


def make_store(kind: str, directory: str) -> Store:
    if kind == "local":
        return LocalStore(Path(directory) / "store")
    return MemoryStore() if kind == "memory" else fsspec_memory()


@st.composite
def made(draw: st.DrawFn, directory: str) -> tuple[zstore.Array, np.ndarray[Any, Any], list[Any]]:
    """A new array of objects, what it holds, and what may be written to it."""
    kind = draw(st.sampled_from(["string", "string", "bytes", "json", "pickle"]))
    dtype, fill, codec, items = KINDS[kind]
    shape = draw(shapes(4))
    chunks = tuple(draw(st.integers(1, max(1, n + 2))) for n in shape)
    options: dict[str, Any] = {"compressors": draw(st.sampled_from([None, "auto"])), "fill_value": fill}
    if kind == "string" and draw(st.integers(0, 2)):
        options["zarr_format"] = 3
        if draw(st.booleans()):
            options["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks)
        elif draw(st.booleans()):
            order = draw(st.permutations(range(len(shape))))
            options["filters"] = [{"name": "transpose", "configuration": {"order": list(order)}}]
    else:
        options |= {"zarr_format": 2, "order": draw(st.sampled_from("CF"))}
        if codec is not None:
            options["filters"] = [{"id": codec}]
    array = zstore.create_array(
        make_store(draw(st.sampled_from(["memory", "local", "fsspec"])), directory),
        "a",
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        allow_pickle=kind == "pickle",
        **options,
    )
    held: np.ndarray[Any, Any] = np.empty(shape, array.dtype)
    for place in np.ndindex(shape):
        held[place] = fill
    return array, held, items


def drawn(draw: Any, shape: tuple[int, ...], dtype: np.dtype[Any], items: list[Any]) -> np.ndarray[Any, Any]:
    value: np.ndarray[Any, Any] = np.empty(prod(shape), dtype)
    for i in range(prod(shape)):
        value[i] = draw(st.sampled_from(items))
    return value.reshape(shape)


def same(got: Any, expected: Any) -> None:
    """Equal in shape, dtype and every item, in its type too."""
    got, expected = _as_array(got), _as_array(expected)
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    for a, b in zip(got.reshape(-1).tolist(), expected.reshape(-1).tolist(), strict=True):
        assert type(a) is type(b)
        assert a == b


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    single: np.ndarray[Any, Any] = np.empty((), STRINGS if isinstance(value, str) else object)
    single[()] = value
    return single


@FEW
@given(st.data())
def test_objects_are_read_and_written_as_in_numpy(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        array, held, items = data.draw(made(directory))
        for _ in range(3):
            selection = data.draw(numpy_selections(array.shape, unique=True))
            try:
                taken = held[selection]
            except IndexError:
                continue
            shape = np.shape(taken) if isinstance(taken, np.ndarray) else ()
            value = drawn(data.draw, () if has_repeats(selection, array.shape) else shape, held.dtype, items)
            # numpy takes a 0-d array of one object for that object.
            held[selection] = value if shape else value[()]
            array[selection] = value
            same(array[...], held)
            again = zstore.open_array(array.store, "a", "r", allow_pickle=True)
            selection = data.draw(numpy_selections(array.shape))
            try:
                expected = held[selection]
            except IndexError:
                continue
            same(again[selection], expected)
            if isinstance(expected, np.ndarray):
                around = np.empty(tuple(2 * n for n in expected.shape), held.dtype)
                view = around[(*(slice(None, None, 2) for _ in expected.shape), ...)]
                same(again.read(selection, out=view), expected)


@FEW
@given(st.data())
def test_objects_by_dimension_and_by_resizing(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        array, held, items = data.draw(made(directory))
        array[...] = held[...] = drawn(data.draw, array.shape, held.dtype, items)
        if not array.shape:
            return
        selection = data.draw(orthogonal(array.shape))
        places, result = orthogonal_to_numpy(selection, array.shape)
        same(array.oindex[selection], held[places].reshape(result))
        where = tuple(np.array([n - 1, 0]) for n in array.shape) if array.size else ()
        if where:
            same(array.vindex[where], held[where])
        shape = tuple(max(0, n + data.draw(st.integers(-5, 5))) for n in array.shape)
        grown: np.ndarray[Any, Any] = np.empty(shape, held.dtype)
        for place in np.ndindex(shape):
            grown[place] = array.fill_value
        common = tuple(slice(0, min(a, b)) for a, b in zip(shape, held.shape, strict=True))
        grown[common] = held[common]
        array.resize(tuple(max(a, b) for a, b in zip(shape, held.shape, strict=True)))
        array.resize(shape)
        same(array[...], grown)
        more = drawn(data.draw, (2, *shape[1:]), held.dtype, items)
        array.append(more)
        same(array[...], np.concatenate([grown, more]))


POINT = np.dtype([("r", "u1"), ("g", "<f4"), ("at", "<i2", (2,)), ("in", [("deep", "<u4")])])


@FEW
@given(st.data(), st.integers(0, 99))
def test_fields_are_read_and_written_as_in_numpy(data: st.DataObject, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = data.draw(shapes(3))
    held: np.ndarray[Any, Any] = np.zeros(shape, POINT)
    fill = np.array((7, 1.5, (1, -1), (9,)), POINT)[()]
    held[...] = fill
    with TemporaryDirectory() as directory:
        array = zstore.create_array(
            make_store(data.draw(st.sampled_from(["memory", "local"])), directory),
            "a",
            shape=shape,
            dtype=POINT,
            chunks=tuple(data.draw(st.integers(1, max(1, n + 2))) for n in shape),
            fill_value=fill,
            zarr_format=2,
            order=data.draw(st.sampled_from("CF")),
        )
        for _ in range(4):
            fields = data.draw(st.sampled_from(["r", "g", "at", "in", ["r"], ["at", "g"], ["in", "r"]]))
            selection = data.draw(numpy_selections(shape, basic=data.draw(st.booleans()), unique=True))
            try:
                chosen = np.shape(held[selection])
            except IndexError:
                continue
            entries = selection if isinstance(selection, tuple) else (selection,)
            packed = np.dtype([(name, POINT[name]) for name in np.atleast_1d(fields)])
            raw = rng.integers(0, 100, prod(chosen) * packed.itemsize, np.uint8)
            value = raw.view(packed).reshape(chosen)
            if has_repeats(selection, shape):
                value = np.broadcast_to(value.ravel()[:1].reshape(()), chosen) if value.size else value
            part = held[selection].copy()
            for name in packed.names or ():
                part[name] = value[name]
            held[selection] = part
            array[(*entries, fields)] = value[fields] if isinstance(fields, str) else value
            assert array[...].tobytes() == held.tobytes()
            expected = held[selection][fields]
            for got in (array[(fields, *entries)], array.read((fields, *entries))):
                assert np.shape(got) == np.shape(expected)
                for name in [...] if isinstance(fields, str) else fields:
                    parts = np.asarray(got)[name], np.asarray(expected)[name]
                    assert parts[0].dtype == parts[1].dtype
                    assert parts[0].tobytes() == parts[1].tobytes()
