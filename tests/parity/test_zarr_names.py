"""What `docs/from-zarr-python.md` says: its lines run in both libraries, its tables have every name."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.model.array import CodecModel
from zstore.nodes.zarr_names import list_codecs
from zstore.storage.base import Entry
from zstore.storage.memory import MemoryStore

zarr = pytest.importorskip("zarr", reason="compared with zarr-python")

PAGE = Path(__file__).parents[2] / "docs" / "from-zarr-python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
# Those after it are about zstore alone.
SHARED = [block for block in BLOCKS if not block.startswith("import zstore\n")]
ROW = re.compile(r"^\| `(\w+)` \| (works|differs|not offered)(?:: (.+))? \|$", re.MULTILINE)
TABLES = dict(zip(("zarr", "Array", "Group"), PAGE.read_text().split("\n### ")[1:], strict=True))


def run_blocks(place: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> dict[str, Any]:
    place.mkdir()
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    exec("\n".join(SHARED).replace("import zstore as zarr", f"import {library} as zarr"), names)
    kinds = (np.ndarray, np.generic, tuple, list, dict, str, int, bool)
    return {name: value for name, value in names.items() if isinstance(value, kinds) and name[0] != "_"}


def test_every_line_gives_the_same_in_both(tmp_path, monkeypatch):
    ours, theirs = (run_blocks(tmp_path / name, monkeypatch, name) for name in ("zstore", "zarr"))
    assert ours.keys() == theirs.keys() and len(ours) > 35
    for name, value in theirs.items():
        np.testing.assert_equal(ours[name], value, err_msg=name)
        assert getattr(ours[name], "dtype", None) == getattr(value, "dtype", None), name


def public(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.fixture(scope="module")
def owners() -> dict[str, Any]:
    group = zstore.group()
    return {"zarr": zstore, "Array": group.create_array("a", shape=(4,), dtype="f4"), "Group": group}


@pytest.mark.parametrize(
    ("owner", "theirs"),
    [("zarr", {*zarr.__all__}), ("Array", public(zarr.Array)), ("Group", public(zarr.Group))],
    ids=["module", "array", "group"],
)
def test_the_tables_name_every_public_name(owner, theirs, owners):
    rows = ROW.findall(TABLES[owner])
    said = {name: (verdict, how) for name, verdict, how in rows}
    assert len(rows) == len(said) == TABLES[owner].count("\n| `")
    assert theirs - said.keys() == set()
    for name, (verdict, how) in said.items():
        assert (verdict == "works") == (how == ""), name
        if verdict != "not offered":
            assert getattr(owners[owner], name) is not None or name in ("shards", "fill_value"), name
            continue
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; use "):
            getattr(owners[owner], name)


@pytest.mark.parametrize(
    ("owner", "theirs"),
    [("zarr", zarr), ("Array", zarr.Array), ("Group", zarr.Group)],
    ids=["module", "array", "group"],
)
def test_what_works_takes_the_arguments_of_zarr_python(owner, theirs, owners):
    works = [
        name
        for name, verdict, _ in ROW.findall(TABLES[owner])
        if verdict == "works" and hasattr(theirs, name)
    ]
    functions = [name for name in works if inspect.isfunction(inspect.unwrap(getattr(theirs, name)))]
    assert len(functions) > 5
    for name in functions:
        ours = inspect.signature(getattr(owners[owner], name)).parameters
        asked = inspect.signature(getattr(theirs, name)).parameters
        named = [one.name for one in asked.values() if one.kind is not one.VAR_KEYWORD]
        # The first, of what it is about, is given without its name.
        named = named[1 if owner == "zarr" else 2 :]
        is_open = any(one.kind is one.VAR_KEYWORD for one in ours.values())
        assert is_open or set(named) <= ours.keys(), name


def test_asking_for_what_is_not_there_loads_nothing():
    code = "import sys, zstore; hasattr(zstore, 'copy_all'); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_selections_by_name_take_fields_and_memory():
    items = np.zeros(5, [("a", "i4"), ("b", "f8")])
    items["a"] = range(5)
    array = zstore.array(items, chunks=2)
    np.testing.assert_array_equal(array.get_basic_selection(slice(1, 4), fields="a"), [1, 2, 3])
    np.testing.assert_array_equal(array.get_coordinate_selection([4, 0], fields="a"), [4, 0])
    array.set_basic_selection(slice(0, 2), 9, fields="a")
    assert array[["a"]]["a"].tolist() == [9, 9, 2, 3, 4]
    plain = zstore.array(np.arange(12).reshape(3, 4), chunks=2)
    for read, selection in (
        (plain.get_basic_selection, (slice(2), slice(1, 3))),
        (plain.get_orthogonal_selection, ([0, 1], [1, 2])),
    ):
        out = np.empty((2, 2), plain.dtype)
        assert read(selection, out=out) is out
        np.testing.assert_array_equal(out, [[1, 2], [5, 6]])
    with pytest.raises(TypeError, match="prototype"):
        plain.get_basic_selection(..., prototype=object())


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_likeness_keeps_what_an_array_is_made_of(zarr_format, order):
    options = {"shards": (8, 8)} if zarr_format == 3 else {"dimension_names": ("y", "x")}
    made = zstore.create_array(
        "memory://likeness", shape=(9, 9), chunks=(4, 4), dtype="i2", order=order, zarr_format=zarr_format,
        filters={"id": "delta", "dtype": "<i2"}, compressors="gzip:3", overwrite=True, **options,
    )  # fmt: skip
    again = zstore.full_like(made, 7)
    assert (again.model.codecs, again.model.grid) == (made.model.codecs, made.model.grid)
    assert (again.zarr_format, again.dims, again.order) == (made.zarr_format, made.dims, order)
    assert again[8, 8] == 7
    assert [codec.name.removeprefix("numcodecs.") for codec in made.compressors] == ["gzip"]
    assert [codec.name for codec in made.filters] == ["transpose"] * (order == "F") + ["numcodecs.delta"]
    assert made.serializer == (None if zarr_format == 2 else CodecModel("bytes", {"endian": "little"}))
    made[0, 0] = 1
    assert (made.nchunks, made.nchunks_initialized) == (9, 4 if zarr_format == 3 else 1)
    assert "gzip" in made.info and "Chunks stored" in made.info_complete()


@pytest.mark.parametrize(
    "grid",
    [{"chunks": (1, 3)}, {"chunks": (1, 3), "shards": (10, 9)}, {"chunks": [[[1, 10**9]], [1, 2]]}],
    ids=["chunks", "shards", "rectilinear"],
)
def test_a_billion_chunks_are_described_as_quickly_as_ten(grid):
    store = MemoryStore()
    array = zstore.create_array(store, "a", shape=(10**9, 3), dtype="i1", **grid)
    array[5, :] = 1
    begin = time.process_time()
    count = 2 * 10**9 if "shards" not in grid and array.chunks[1] == 2 else 10**9
    assert (array.nchunks, array.cdata_shape[0]) == (count, 10**9)
    assert repr(array) and array.info and f"of {count}" in array.info_complete()
    assert array.nbytes_stored() < 3000
    assert time.process_time() - begin < 5  # one by one they take minutes


def test_bytes_stored_are_counted_by_pages_of_a_list():
    class Listed(MemoryStore):
        def entries(self, prefix=""):
            return iter([Entry(f"{prefix}/c/{n}", 10, None) for n in range(3)])

        def size(self, key):
            raise AssertionError("one by one")

    store = Listed()
    zarray = zstore.Array(store, "a", zstore.create_array(MemoryStore(), shape=3, chunks=1, dtype="i1").model)
    assert zarray.nbytes_stored() == 30


def test_codecs_in_shards_may_be_bare_names(tmp_path):
    zstore.create_array(tmp_path, data=[1, 2], shards=2, chunks=1, compressors="crc32c")
    document = json.loads((tmp_path / "zarr.json").read_text())
    inner = document["codecs"][0]["configuration"]["codecs"]
    inner[1] = inner[1]["name"]
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    array = zstore.open_array(tmp_path)
    assert [codec.name for codec in array.compressors] == ["crc32c"]
    assert "bytes, crc32c" in array.info
    assert list_codecs(array.model.codecs) == ["sharding_indexed", "bytes", "crc32c"]


def test_a_group_is_never_replaced_by_assigning(tmp_path):
    group = zstore.open_group(tmp_path, mode="w")
    group["a"] = [1, 2]
    group["a"] = group["a"][...] + 1
    assert group["a"][...].tolist() == [2, 3]
    group.create_group("b")
    with pytest.raises(zstore.errors.MetadataError, match=r"del group\['b'\]"):
        group["b"] = [1]
    assert group._ipython_key_completions_() == ["a", "b"]
    with pytest.raises(zstore.errors.StoreError, match="already"):
        zstore.save(tmp_path, a=[1])
    assert [*zstore.group(tmp_path)] == ["a", "b"]
    assert [*zstore.group(tmp_path, overwrite=True)] == []
    assert zstore.group(tmp_path, path="b", overwrite=True).attrs == {}
    with pytest.raises(TypeError, match="use compressors"):
        zstore.zeros(3, compressor="zstd")
    with pytest.raises(zstore.errors.NotFoundError, match=r"zstore\.consolidate"):
        zstore.open_consolidated(tmp_path)
