"""Many nodes made at once: what they may be given as, what is refused, how few requests that takes."""

from __future__ import annotations

import errno
import json
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import FORMER, INTENT
from zstore.errors import ExistsError, MetadataError, ReadOnlyError, StoreError, UnsupportedError
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

from ..engine.test_remote import FarStore

GRID = {"shape": (4, 6), "chunks": (2, 3), "dtype": "i2"}


@pytest.mark.parametrize("make", [MemoryStore, FarStore])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_is_made_is_what_one_by_one_makes(make: Any, zarr_format: Any) -> None:
    one, many = make(), make()
    root = zstore.create_group(one, zarr_format=zarr_format, attributes={"title": "one"})
    root.create_array("t", attributes={"units": "K"}, **GRID)
    root.create_array("levels/0/u", **GRID)
    fills = (0.0, -0.0, 0, "NaN", 1, 1.0, np.float32(1), 0.0)
    alike = {f"alike/{i}": {"shape": 4, "dtype": "f4", "fill_value": fill} for i, fill in enumerate(fills)}
    for path, options in alike.items():
        root.create_array(path, **options)
    nodes = {
        "": {"attributes": {"title": "one"}},
        "t": {**GRID, "attributes": {"units": "K"}},
        "/levels/0/u/": GRID,
        **alike,
    }
    made = dict(zstore.create_hierarchy(many, nodes, zarr_format=zarr_format))
    assert list(made) == list(nodes)
    assert sorted(many.list()) == sorted(one.list())
    for key in one.list():
        assert many.get(key) == one.get(key), key
    made["t"][...] = 7
    assert np.all(zstore.open_array(many, "t", mode="r")[...] == 7)
    assert dict(made[""].attrs) == {"title": "one"}
    # What is one in the making is each one's own afterwards.
    made["alike/0"].attrs["a"] = 1
    made["alike/0"].resize((9,))
    for array in (made["alike/7"], zstore.open_array(many, "alike/7")):
        assert (array.shape, dict(array.attrs)) == ((4,), {})


def test_metadata_comes_as_models_documents_and_objects() -> None:
    class Metadata:
        """As zarr-python's: a document, with members that say nothing."""

        def __init__(self, document: dict[str, Any]) -> None:
            self.document = document

        def to_dict(self) -> dict[str, Any]:
            return self.document

    array = zstore.create_array(MemoryStore(), **GRID)
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": (4, 6),
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "dimension_names": None,
        "storage_transformers": [],
        "attributes": {"a": 1},
    }
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": None}
    nodes = {"": Metadata(group), "model": array.model, "document": document, "object": Metadata(document)}
    made = dict(zstore.create_hierarchy(MemoryStore(), nodes))
    assert [type(node) for node in made.values()] == [zstore.Group, zstore.Array, zstore.Array, zstore.Array]
    assert made["object"].attrs["a"] == 1
    assert made["model"].model == array.model
    old = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [2],
        "dtype": "<f4",
        "compressor": None,
        "filters": None,
        "fill_value": 0,
        "order": "C",
        "attributes": {"b": 2},
    }
    nodes = {"": Metadata({"zarr_format": 2, "attributes": {"c": 3}}), "x": Metadata(old)}
    store = MemoryStore()
    made = dict(zstore.create_hierarchy(store, nodes))
    assert sorted(store.list()) == [".zattrs", ".zgroup", "x/.zarray", "x/.zattrs"]
    assert (made[""].attrs["c"], made["x"].attrs["b"], made["x"].zarr_format) == (3, 2, 2)


@pytest.mark.parametrize("make", [MemoryStore, FarStore])
def test_what_cannot_be_made_makes_nothing(make: Any) -> None:
    store = make()
    root = zstore.create_group(store)
    root.create_array("there", **GRID)
    before = sorted(store.list())
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (StoreError, "is there already", {"new": GRID, "there": GRID}),
        (StoreError, "is there already", {"": {}, "new": GRID}),
        (MetadataError, "below what is no group", {"there/inner": GRID}),
        (MetadataError, "an array holds no nodes", {"a": GRID, "a/b": GRID}),
        (MetadataError, "two nodes have the path", {"a": GRID, "/a": GRID}),
        (MetadataError, "expected 3", {"a": GRID, "b": {"zarr_format": 2, "attributes": {}}}),
        (MetadataError, "without data", {"a": {"data": [1]}}),
        (MetadataError, "a group has no 'chunks'", {"a": {"chunks": 3}}),
        (MetadataError, "named '__a'", {"__a": GRID}),
        (MetadataError, "named '.zarray'", {"a/.zarray": GRID}),
        (MetadataError, "named '.zstore-job'", {INTENT: {}}),
        (MetadataError, "named '.zstore-unfinished'", {FORMER: {}}),
        (TypeError, "no option 'shap'; expected options of .*/a", {"a": {"shape": 3, "shap": 3}}),
        (TypeError, "no option 'compressor'; expected compressors", {"a": {"shape": 3, "compressor": 3}}),
        (UnsupportedError, "nothing", {"a": {"shape": 3, "dtype": "nothing"}}),
    ]
    for kind, words, nodes in refused:
        with pytest.raises(kind, match=words):
            zstore.create_hierarchy(store, nodes)
        assert sorted(store.list()) == before
    with pytest.raises(ReadOnlyError):
        zstore.create_hierarchy(store.as_read_only(), {"a": GRID})


def test_a_hundred_arrays_are_a_hundred_puts_and_hardly_more() -> None:
    store = FarStore()
    nodes: dict[str, Any] = {"": {}, **{f"a{i}": GRID for i in range(100)}}
    zstore.create_hierarchy(store, nodes)
    asked = store.take()
    assert asked[0] == f"put {INTENT}"
    assert asked[-2:] == ["put zarr.json", f"delete {INTENT}"]
    assert len(asked) == 103  # and one listing
    group = zstore.open_group(store)
    store.take()
    made = dict(group.create_hierarchy({f"b{i}": GRID for i in range(100)}))
    assert sorted(store.take()) == sorted(["get zarr.json", *(f"put b{i}/zarr.json" for i in range(100))])
    assert made["b7"].path == "b7"


def test_one_array_is_a_document_above_a_listing_and_a_put() -> None:
    store = FarStore()
    group = zstore.create_group(store)
    assert store.take() == ["put zarr.json"]
    group.create_array("a", **GRID)
    assert store.take() == ["get zarr.json", "put a/zarr.json"]
    group.create_array("b", data=np.ones((4, 6), "i2"), chunks=(4, 6))
    assert store.take() == [
        "get zarr.json",
        f"put b/{INTENT}",
        "size b/zarr.json",
        "put b/c/0/0",
        f"get b/{INTENT}",
        "put b/zarr.json",
        f"delete b/{INTENT}",
    ]


@pytest.mark.parametrize(
    ("when", "theirs", "mine"),
    [
        ("a/.zattrs", {}, {"mine": 1}),
        ("a/.zarray", {"theirs": 1}, {"mine": 1}),
        ("a/.zarray", {"theirs": 1}, {}),
    ],
)
def test_attributes_of_a_refused_node_are_not_those_of_the_other(when, theirs, mine) -> None:
    class Meeting(MemoryStore):
        """Somebody else, who has put attributes if he has any, makes the array in the midst of this."""

        def put_new(self, key: str, value: Any) -> None:
            if key == "a/.zarray" and when == key:
                self.put(key, other)
            super().put_new(key, value)
            if key == "a/.zattrs":
                self.put("a/.zarray", other)

    other = zstore.create_array(MemoryStore(), zarr_format=2, **GRID).store.get(".zarray") or b""
    store = Meeting()
    if theirs:
        store.put("a/.zattrs", json.dumps(theirs).encode())
    with pytest.raises(ExistsError, match="somebody else has just made a node there"):
        zstore.create_array(store, "a", zarr_format=2, attributes=mine, **GRID)
    assert dict(zstore.open_array(store, "a").attrs) == theirs


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EACCES, errno.EPERM])
def test_who_may_not_list_makes_nodes_all_the_same(code: int) -> None:
    """Whether the store has no lists at all, or none for this user."""
    store = Unlisted(code)
    zstore.create_group(store).create_array("a", data=np.ones((4, 6), "i2"))
    made = dict(zstore.create_hierarchy(store, {"g": {}, "g/b": GRID}))
    assert made["g/b"].shape == (4, 6)
    with pytest.raises(StoreError, match="is there already"):
        zstore.create_hierarchy(store, {"x": GRID, "g/b": GRID})


@pytest.mark.parametrize(
    ("codes", "node"),
    [([errno.EIO], {}), ([errno.EIO], GRID), ([errno.EACCES, errno.EIO], GRID), ([None], GRID)],
)
def test_a_list_that_fails_does_not_say_that_nothing_is_there(codes: list[int | None], node: Any) -> None:
    store = Unlisted(*codes)
    with pytest.raises(StoreError, match="no listing here") as caught:
        zstore.create_hierarchy(store, {"a": node})
    assert caught.value.errno == codes[-1]
    assert store.take_changes() == []


class Unlisted(FarStore):
    """Lists fail, each with the next of these numbers, then always with the last.

    Who may not list may not know either what is not there.
    """

    def __init__(self, *codes: int | None) -> None:
        super().__init__()
        self.codes = [*codes]

    list_children = Store.list_children

    def list(self, prefix: str = "") -> Any:
        error = StoreError("no listing here", path=self.url)
        error.errno = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        raise error

    def size(self, key: str) -> int | None:
        found = super().size(key)
        if found is None and self.codes[-1] == errno.EACCES:
            error = StoreError("nothing to say", path=self.url)
            error.errno = errno.EACCES
            raise error
        return found

    def take_changes(self) -> Any:
        return [asked for asked in self.take() if not asked.startswith("get")]
