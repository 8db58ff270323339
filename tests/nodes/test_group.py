"""Groups: children, attributes, making and removing nodes, consolidated metadata never out of date."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import zstore
from zstore.engine.documents import read_node
from zstore.engine.making import delete_node
from zstore.errors import (
    MetadataError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    UnknownExtensionError,
    UnsupportedError,
)
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import consolidate, create_array, create_group, open_array, open_group
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore


class Counting:
    """Counts the requests that a store gets."""

    reads = 0

    def get_many(self, requests):
        Counting.reads += 1
        return super().get_many(requests)

    def get_first(self, prefixes, choices):
        Counting.reads += 1
        return super().get_first(prefixes, choices)

    def get(self, key, byte_range=None):
        Counting.reads += 1
        return super().get(key, byte_range)


class CountingMemory(Counting, MemoryStore):
    pass


class CountingLocal(Counting, LocalStore):
    pass


@pytest.fixture(params=[3, 2], ids=["v3", "v2"])
def zarr_format(request):
    return request.param


@pytest.fixture(params=["memory", "local"])
def root(request, zarr_format, tmp_path):
    """A group with a/x, a/b/y, c."""
    store = CountingMemory() if request.param == "memory" else CountingLocal(tmp_path)
    root = create_group(store, zarr_format=zarr_format, attributes={"title": "root"})
    for path in ("a/x", "a/b/y", "c"):
        root.create_array(path, shape=(4, 6), dtype="int16", chunks=(2, 3), attributes={"path": path})
    return root


def document_key(zarr_format, kind="array"):
    return "zarr.json" if zarr_format == 3 else {"array": ".zarray", "group": ".zgroup"}[kind]


def test_members_by_name(root, zarr_format):
    assert list(root) == ["a", "c"]
    assert len(root) == 2
    assert "a" in root
    assert "a/b/y" in root
    assert "a/z" not in root
    assert "" not in root
    assert 5 not in root
    assert isinstance(root["a"], Group)
    assert root["a/b/y"].shape == (4, 6)
    assert root["a"]["b"]["y"].attrs["path"] == "a/b/y"
    assert root["/a/b/"].path == "a/b"
    assert root["a/b"].name == "/a/b"
    assert root["a/b"].basename == "b"
    assert root["a/b"].zarr_format == zarr_format
    assert root["a/b"] == root["a"]["b"]
    assert {root["a"], root["a"]} == {root["a"]}
    assert root["a"] != root
    assert [name for name, _ in root["a"].arrays()] == list(root["a"].array_keys()) == ["x"]
    assert [name for name, _ in root["a"].groups()] == list(root["a"].group_keys()) == ["b"]
    assert [member.path for member in root["a"].values()] == ["a/b", "a/x"]
    assert [path for path, _ in root.members()] == ["a", "c"]
    assert [path for path, _ in root.members(max_depth=1)] == ["a", "a/b", "a/x", "c"]
    assert [path for path, _ in root.members(max_depth=None)] == ["a", "a/b", "a/b/y", "a/x", "c"]


def test_missing_members_are_key_errors_that_say_where(root):
    with pytest.raises(KeyError, match="no array and no group 'zz'") as caught:
        root["a"]["zz"]
    assert isinstance(caught.value, NotFoundError)
    assert caught.value.path.endswith("/a")
    assert root.get("zz") is None
    with pytest.raises(StoreError, match="leaves the store"):
        root["../a"]
    with pytest.raises(KeyError):
        root[""]


def test_the_tree_is_drawn(root):
    assert str(zstore.tree(root)) == str(zstore.tree(root.store)) == str(root.tree())
    with pytest.raises(TypeError, match="expected a group"):
        zstore.tree(zstore.array([1]))
    assert repr(root.tree()) == (
        "/\n├── a\n│   ├── b\n│   │   └── y (4, 6) int16\n│   └── x (4, 6) int16\n└── c (4, 6) int16"
    )
    assert str(root.tree(level=1)) == "/\n├── a\n└── c (4, 6) int16"


def test_a_member_that_cannot_be_read_hides_nothing_else(root, zarr_format):
    key = f"a/x/{document_key(zarr_format)}"
    root.store.put(key, bytes(root.store.get(key)).replace(b'"int16"', b'"odd9"').replace(b'"<i2"', b'"<x9"'))
    assert list(root["a"]) == ["b", "x"]
    with pytest.raises(UnsupportedError, match="is not supported"):
        root["a/x"]
    assert "is not supported" in str(root.tree())
    assert "y (4, 6)" in str(root.tree())


def test_attributes_are_written_at_once(root, zarr_format):
    group = root["a"]
    group.attrs["n"] = np.int64(3)
    group.attrs.update({"t": (1, 2)}, m={"k": None})
    assert dict(group.attrs) == {"n": 3, "t": [1, 2], "m": {"k": None}}
    stored = read_node(root.store, "a", zarr_format)
    assert stored.attributes == group.attrs.asdict()
    del group.attrs["n"]
    assert "n" not in root["a"].attrs
    assert group.attrs.pop("t") == [1, 2]
    assert len(root["a"].attrs) == 1
    group.attrs.put({"only": 1})
    assert root["a"].attrs.asdict() == {"only": 1}
    group.attrs.clear()
    assert root["a"].attrs.asdict() == {}
    if zarr_format == 2:
        assert root.store.get("a/.zattrs") is None
    with pytest.raises(KeyError):
        del group.attrs["missing"]


def test_values_of_attributes_are_copies(root):
    root.attrs["list"] = [1]
    root.attrs["list"].append(2)
    root.attrs.asdict()["list"].append(3)
    assert root.attrs["list"] == [1]
    # Groups with equal documents share their model, until one of them changes.
    one, same = (zstore.open_group(root.store) for _ in range(2))
    one.attrs["list"].append(2)
    one.attrs["more"] = 1
    assert same.attrs.asdict() == {"title": "root", "list": [1]}
    assert zstore.open_group(root.store).attrs.asdict() == {"title": "root", "list": [1], "more": 1}


def test_two_holders_of_a_group_do_not_undo_each_other(root):
    one, other = root["a"], root["a"]
    one.attrs["one"] = 1
    other.attrs["other"] = 2
    assert root["a"].attrs.asdict() == {"one": 1, "other": 2}


def test_attributes_that_json_cannot_say_change_nothing(root, zarr_format):
    for value in (float("nan"), object(), {"a": np.inf}):
        with pytest.raises(MetadataError, match="attribute 'bad"):
            root.attrs["bad"] = value
        with pytest.raises(MetadataError, match="attribute 'bad"):
            root.create_array("bad", shape=1, dtype="i1", attributes={"bad": value})
        with pytest.raises(MetadataError, match="attribute 'bad"):
            root.create_group("bad", attributes={"bad": value})
    assert "bad" not in root
    assert read_node(root.store, "", zarr_format).attributes == {"title": "root"}


def test_attributes_that_came_with_a_nan_stay_writable(root, zarr_format):
    key = "zarr.json" if zarr_format == 3 else ".zattrs"
    root.store.put(key, bytes(root.store.get(key)).replace(b'"root"', b"NaN"))
    root.attrs["more"] = 1
    attributes = open_group(root.store).attrs.asdict()
    assert np.isnan(attributes.pop("title"))
    assert attributes == {"more": 1}


def test_attributes_of_a_node_that_is_gone(root):
    group = root["a/b"]
    del root["a"]
    with pytest.raises(NotFoundError, match="is gone"):
        group.attrs["x"] = 1
    assert "a" not in root


def test_creating_makes_the_groups_on_the_way(zarr_format):
    store = MemoryStore()
    array = create_array(store, "p/q/r", shape=(3,), dtype="f4", zarr_format=zarr_format)
    assert array.path == "p/q/r"
    for path in ("", "p", "p/q"):
        assert open_group(store, path, mode="r").zarr_format == zarr_format


def test_creating_over_something_needs_overwrite(root):
    for name in ("a", "c"):
        with pytest.raises(StoreError, match="is there already; pass overwrite=True"):
            root.create_group(name)
        with pytest.raises(StoreError, match="is there already; pass overwrite=True"):
            root.create_array(name, shape=1, dtype="i1")
    assert root["a/b/y"].shape == (4, 6)
    root.create_group("a2")
    root.create_array("a", shape=(9,), dtype="i1", overwrite=True)
    assert root["a"].shape == (9,)
    assert list(root) == ["a", "a2", "c"]
    assert not [key for key in root.store.list("a") if "b" in key.split("/")]


def test_nothing_is_created_below_an_array_or_another_format(root, zarr_format):
    with pytest.raises(MetadataError, match="below what is no group but 'array'"):
        root.create_group("c/d")
    with pytest.raises(MetadataError, match=f"cannot create a Zarr v{5 - zarr_format} node below"):
        create_array(root.store, "a/other", shape=1, dtype="i1", zarr_format=5 - zarr_format)


def test_a_new_array_does_not_show_what_an_old_one_left(root, zarr_format):
    chunk = "c/0/0" if zarr_format == 3 else "0.0"
    root.store.put(f"old/{chunk}", b"left over")
    for overwrite in (False, True):
        with pytest.raises(StoreError, match="would be read as chunks"):
            root.create_array("old", shape=(4, 4), dtype="i1", overwrite=overwrite)
    root.create_group("old", overwrite=True)
    if zarr_format == 2:
        root.store.put("bare/.zattrs", b'{"stray": 1}')
        assert root.create_array("bare", shape=1, dtype="i1").attrs.asdict() == {}
        assert root["bare"].attrs.asdict() == {}


def test_deleting_takes_what_is_below_and_nothing_beside(root):
    root.create_group("ab")
    del root["a"]
    assert list(root) == ["ab", "c"]
    assert list(root.store.list("a")) == []
    with pytest.raises(KeyError):
        del root["a"]


def test_require(root):
    assert root.require_group("a").path == "a"
    assert root.require_group("new/er").path == "new/er"
    assert root.require_array("c", shape=(4, 6), dtype="int16").path == "c"
    assert root.require_array("c", shape=(4, 6), dtype="int8").path == "c"
    assert root.require_array("d", shape=(1,), dtype="int8").shape == (1,)
    for options, reason in [
        ({"shape": (4, 7)}, "shape"),
        ({"shape": (4, 6), "dtype": "float64"}, "dtype"),
        ({"shape": (4, 6), "dtype": "int8", "exact": True}, "dtype"),
    ]:
        with pytest.raises(MetadataError, match=f"array has the {reason}"):
            root.require_array("c", **options)
    with pytest.raises(MetadataError, match="is an array, expected a group"):
        root.require_group("c")
    with pytest.raises(MetadataError, match="is a group, expected an array"):
        root.require_array("a", shape=(1,))


def test_data_gives_shape_and_dtype(root):
    data = np.arange(6, dtype=">i4").reshape(2, 3)
    array = root.create_array("data", data=data)
    assert (array.shape, array.dtype) == ((2, 3), np.dtype(">i4" if array.zarr_format == 2 else "i4"))
    assert root["data"].model.codecs[0].configuration == {"endian": "big"}
    with pytest.raises(MetadataError, match="as the data has"):
        root.create_array("more", data=data, shape=(3, 2))


def test_what_is_opened_for_reading_refuses_changes(root):
    reader = open_group(root.store, mode="r")
    array = reader["a/x"]
    for change in (
        lambda: reader.create_group("n"),
        lambda: reader.create_array("n", shape=1, dtype="i1"),
        lambda: reader.attrs.update(a=1),
        lambda: array.attrs.update(a=1),
        lambda: reader.__delitem__("a"),
        lambda: reader.consolidate(),
        lambda: Group(root.store, "", root.model, Access(read_only=True)).attrs.update(a=1),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert (reader.read_only, reader["a"].read_only, root.read_only) == (True, True, False)


def test_consolidated_members_need_no_further_reads(root):
    consolidate(root)
    reader = open_group(root.store, mode="r")
    before = Counting.reads
    assert list(reader) == ["a", "c"]
    assert len(reader) == 2
    assert "a/b/y" in reader
    assert reader["a/b"]["y"].shape == (4, 6)
    assert [path for path, _ in reader.members(None)] == ["a", "a/b", "a/b/y", "a/x", "c"]
    with pytest.raises(KeyError):
        reader["a/z"]
    assert Counting.reads == before


def change_of(name, root):
    return {
        "array": lambda: root.create_array("a/new", shape=1, dtype="i1"),
        "group": lambda: root.create_group("a/b/new"),
        "attribute": lambda: root["a/b"].attrs.update(new=1),
        "array attribute": lambda: root["a/b/y"].attrs.update(new=1),
        "deletion": lambda: root.__delitem__("a/b"),
        "opened below": lambda: open_array(root.store, "a/b/y", mode="r+").attrs.update(new=1),
        "overwrite": lambda: create_array(
            root.store, "c", shape=9, dtype="i1", overwrite=True, zarr_format=root.zarr_format
        ),
    }[name]


CHANGES = ["array", "group", "attribute", "array attribute", "deletion", "opened below", "overwrite"]


@pytest.mark.parametrize("name", CHANGES)
def test_no_change_leaves_consolidated_metadata_out_of_date(root, name):
    consolidate(root)
    consolidate(root, "a")
    assert open_group(root.store, mode="r").model.consolidated is not None
    change_of(name, root)()
    assert open_group(root.store, mode="r").model.consolidated is None
    assert (open_group(root.store, "a", mode="r").model.consolidated is None) == (name != "overwrite")
    assert open_group(root.store, mode="r").attrs.asdict() == {"title": "root"}
    fresh = {path for path, _ in open_group(root.store, mode="r").members(None)}
    consolidate(root)
    assert {path for path, _ in open_group(root.store, mode="r").members(None)} == fresh


def test_a_groups_own_attributes_keep_its_consolidated_metadata(root, zarr_format):
    consolidate(root)
    root.attrs["more"] = 1
    reader = open_group(root.store, mode="r")
    assert reader.model.consolidated is not None
    assert reader.attrs["more"] == 1
    if zarr_format == 2:
        assert b'"more": 1' in bytes(root.store.get(".zmetadata"))


def test_a_writable_group_sees_its_own_changes(root):
    consolidate(root)
    writer = open_group(root.store, mode="r+")
    writer["a/x"].attrs["now"] = 1
    assert writer["a/x"].attrs["now"] == 1
    writer.create_group("late")
    assert "late" in writer


def test_consolidating_below_keeps_what_is_above(root):
    consolidate(root)
    consolidate(root["a"])
    assert set(open_group(root.store, mode="r").model.consolidated) == {"a", "a/b", "a/b/y", "a/x", "c"}
    assert set(open_group(root.store, "a", mode="r").model.consolidated) == {"b", "b/y", "x"}
    with pytest.raises(MetadataError, match="an array is there"):
        consolidate(root, "c")
    with pytest.raises(NotFoundError):
        consolidate(root.store, "zz")


def test_the_dimensions_attribute_of_v2_names_the_dimensions():
    root = create_group(MemoryStore(), zarr_format=2)
    array = root.create_array("x", shape=(2, 3), dtype="i1", dimension_names=("y", "x"))
    assert "_ARRAY_DIMENSIONS" not in array.attrs
    array.attrs["units"] = "K"
    assert root["x"].model.dimension_names == ("y", "x")
    array.attrs["_ARRAY_DIMENSIONS"] = ["a", "b"]
    assert array.model.dimension_names == root["x"].model.dimension_names == ("a", "b")
    assert root["x"].attrs.asdict() == array.attrs.asdict() == {"units": "K"}
    array.attrs["_ARRAY_DIMENSIONS"] = "broken"
    assert root["x"].model.dimension_names is None
    assert root["x"].attrs["_ARRAY_DIMENSIONS"] == "broken"


def test_writers_in_many_threads_lose_no_attribute(root):
    def write(number):
        root["a"].attrs[f"n{number}"] = number

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert root["a"].attrs.asdict() == {f"n{number}": number for number in range(40)}


def test_only_documents_that_changed_are_written():
    written = []

    class Noting(MemoryStore):
        def put(self, key, value):
            written.append(key)
            super().put(key, value)

        def swap(self, changes):
            written.extend(key for key, (_, new) in changes.items() if new is not ...)
            return super().swap(changes)

    array = create_array(Noting(), "x", shape=1, dtype="i1", zarr_format=2)
    assert written == [".zgroup", "x/.zarray"]
    array.attrs["a"] = 1
    assert written == [".zgroup", "x/.zarray", "x/.zattrs"]


def test_stray_attributes_are_no_group():
    store = MemoryStore()
    store.put("a/.zattrs", b'{"stray": 1}')
    create_array(store, "a/x", shape=1, dtype="i1", zarr_format=2)
    assert open_group(store, "a", mode="r").zarr_format == 2


def test_deleting_where_there_is_no_node_deletes_nothing():
    store = MemoryStore()
    store.put("a/notes.txt", b"mine")
    delete_node(store, "a")
    assert list(store.list()) == ["a/notes.txt"]


@pytest.mark.parametrize(
    ("compressors", "error"),
    [("nope", UnknownExtensionError), ({"name": "zstd", "configuration": {"nope": 1}}, MetadataError)],
)
def test_codecs_that_cannot_work_replace_nothing(root, compressors, error):
    with pytest.raises(error) as caught:
        root.create_array("c", shape=1, dtype="i1", compressors=compressors, overwrite=True)
    assert caught.value.path.endswith("/c")
    assert root["c"].shape == (4, 6)


def test_names_from_a_store_are_shown_with_escapes_escaped(tmp_path):
    """A terminal acts upon none of them."""
    name = "red\x1b[31m\x07"
    zstore.create_array(tmp_path, f"{name}/{name}", shape=1, dtype="u1")
    group = zstore.open_group(tmp_path, name)
    for text in (str(group.tree()), repr(group), repr(group[name])):
        assert "\x1b" not in text and "\\x1b[31m\\x07" in text


@pytest.mark.parametrize("is_consolidated", [False, True])
def test_a_member_that_cannot_be_read_hides_no_neighbour(tmp_path, is_consolidated) -> None:
    group = create_group(tmp_path / "g")
    for name in "abc":
        group.create_array(name, data=np.arange(4))
    document = tmp_path / "g" / "a" / "zarr.json"
    document.write_text(document.read_text().replace('"int64"', '"float99"'))
    if is_consolidated:
        whole = tmp_path / "g" / "zarr.json"
        documents = {name: json.loads((tmp_path / "g" / name / "zarr.json").read_text()) for name in "abc"}
        said = {"kind": "inline", "must_understand": False, "metadata": documents}
        whole.write_text(json.dumps({**json.loads(whole.read_text()), "consolidated_metadata": said}))
    group, names = open_group(tmp_path / "g", mode="r"), []
    with pytest.raises(UnsupportedError, match="float99"):
        for name, _ in group.arrays():
            names.append(name)
    assert names == ["b", "c"]
