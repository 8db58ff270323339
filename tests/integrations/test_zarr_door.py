"""`zstore.zarr`: programs of zarr-python run with the one import changed, and give what they gave."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
import zstore.zarr as ours
from zstore import errors

from .zarr_programs import PROGRAMS

zarr = pytest.importorskip("zarr", reason="compared with zarr-python")


PLAIN = (np.ndarray, np.generic, np.dtype, tuple, list, dict, str, int, float, bool, type(None))


def run(program: Any, library: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    place.mkdir()
    monkeypatch.chdir(place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = program(library)
    return {name: value for name, value in names.items() if name[0] != "_" and isinstance(value, PLAIN)}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_what_it_gave(program, tmp_path, monkeypatch):
    theirs = run(program, zarr, tmp_path / "theirs", monkeypatch)
    found = run(program, ours, tmp_path / "ours", monkeypatch)
    assert theirs and found.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_equal(found[name], value, err_msg=name)
        assert type(found[name]) is type(value), name


@pytest.mark.parametrize(
    ("call", "kind", "python", "words"),
    [
        ("zarr.open_array('no.zarr', mode='r')", "ArrayNotFoundError", FileNotFoundError, "no array there"),
        ("zarr.open_group('no.zarr', mode='r')", "GroupNotFoundError", ValueError, "no group there"),
        ("zarr.create_group('a.zarr')", "ContainsArrayError", FileExistsError, "is there already"),
        ("zarr.open_group('a.zarr')", "ContainsArrayError", ValueError, "an array is there"),
        ("zarr.open_array('g.zarr')", "NodeTypeValidationError", ValueError, "a group is there"),
        ("g.get_array('h')", "ContainsGroupError", ValueError, "there is a group"),
        ("g.get_array('no')", "ArrayNotFoundError", FileNotFoundError, "no array and no group 'no'"),
        ("g.get_group('no')", "GroupNotFoundError", FileNotFoundError, "no array and no group 'no'"),
        ("g.zeros(name='x', shape=2, zarr_format=2)", "BaseZarrError", ValueError, "expected none"),
        ("g.nmembers(max_depth=-1)", "BaseZarrError", ValueError, "max_depth is -1; expected 0 or more"),
        ("g.create_hierarchy({'/': g.metadata})", "BaseZarrError", ValueError, "'/' is the group itself"),
        ("zarr.open('a.zarr', mode='r')[0:1] + zarr.open('a.zarr')[9]", "BoundsCheckError", IndexError, "9"),
        ("zarr.open('a.zarr', mode='r').resize(3)", "BaseZarrError", ValueError, "reading only"),
        ("zarr.zeros(2, codecs=[{'name': 'no'}])", "UnknownCodecError", LookupError, "'no'"),
        ("zarr.create_array({}, shape=2, dtype='no-such')", "BaseZarrError", ValueError, "no-such"),
        ("zarr.zeros(2, chunks=0)", "MetadataValidationError", ValueError, "is 0"),
    ],
)  # fmt: skip
def test_errors_are_caught_by_every_name_they_had(call, kind, python, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours.create_array("a.zarr", shape=(2,), dtype="i4")
    g = ours.open_group("g.zarr", mode="w")
    g.create_group("h")
    for caught in (getattr(ours.errors, kind), python, errors.ZstoreError):
        with pytest.raises(caught, match=words):
            eval(call, {"zarr": ours, "g": g})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("zarr.copy('a', 'b')", r"zstore\.copy"),
        ("zarr.group().move('a', 'b')", r"zstore\.convert"),
        ("zarr.storage.LoggingStore", r"zstore\.trace"),
        ("zarr.registry.register_codec('x', object)", r"zstore\.plugin\.codecs"),
        ("type('Own', (zarr.storage.WrapperStore,), {})(None)", r"zstore\.plugin\.stores"),
        ("zarr.config.enable_gpu()", "cupy"),
        ("zarr.hierarchy", r"zarr\.Group"),
        ("zarr.group().create_dataset", "create_array"),
        ("zarr.config.get('no.such')", r"array\.order"),
        ("zarr.create_array({}, shape=2, dtype='i4', config={'no': 1})", "write_empty_chunks"),
        ("zarr.create_array({}, shape=2)", "expected both"),
        ("zarr.create(2, compressor='x')", "expected compressors"),
        ("zarr.group(stor=1)", "no stor=1; expected mode, path"),
        ("zarr.group().tree(depth=1)", "unexpected"),
        ("zarr.tree(zarr.group(), expand=True)", "expected a level"),
        ("zarr.storage.FSStore", r"FsspecStore\.from_url"),
    ],
)  # fmt: skip
def test_what_a_name_cannot_do_says_what_to_type(call, words):
    with pytest.raises(Exception, match=words):
        eval(call, {"zarr": ours})


def test_every_name_of_zarr_python_is_there():
    owners = {
        "": (ours, zarr),
        "storage": (ours.storage, zarr.storage),
        "codecs": (ours.codecs, zarr.codecs),
        "errors": (ours.errors, zarr.errors),
    }
    # Each of these says what to use in its place.
    refused = {"LoggingStore", "GpuMemoryStore", "StoreLike"}
    # zarr-python 3.4 no longer has these.
    gone = {"array", "create_dataset", "require_dataset"}
    for where, (mine, theirs) in owners.items():
        asked = {name for name in theirs.__all__ if name not in refused}
        assert {name for name in asked if not hasattr(mine, name)} == set(), where
    array, group = zarr.zeros(3), zarr.group()
    public = {name for node in (array, group) for name in dir(node) if name[0] != "_"}
    mine = {*dir(ours.zeros(3)), *dir(ours.group())}
    assert public - mine - gone == set()


def test_a_group_is_at_its_own_root():
    for group in (ours.group(), zarr.group()):
        below = group.create_group("a")
        assert below["/"] == below.get("") == below
        assert "/" in below
        assert below["/"].path == "a"
        del group["a"]
        assert "/" not in below
        assert below.require_group("/") == group["a"]


def test_awaited_functions_are_themselves_and_settings_count_where_an_array_is_found():
    assert ours.api.asynchronous.zeros_like is ours.api.asynchronous.zeros_like
    group = ours.group({})
    group.create_array("x", shape=2, dtype="i4")
    found = group.require_array("x", shape=2, dtype=group["x"].metadata.dtype, config={"order": "F"})
    assert found.config.order == "F"
    with pytest.raises(TypeError, match=r"config has \['nope'\]; expected some of order"):
        group.require_array("x", shape=2, config={"nope": 1})


def test_a_tree_is_drawn_for_terminals_and_notebooks(monkeypatch):
    group = ours.group()
    group.create_array("<i>/a (b)", shape=(2, 3), dtype="i1")
    group.create_group("c")
    tree = group.tree(max_nodes=2)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bold = [f"\x1b[1m{name}\x1b[0m" for name in ("/", "<i>", "a")]
    end = "Truncated at max_nodes=2 of 3 nodes\n"
    assert repr(tree) == f"{bold[0]}\n├── {bold[1]}\n│   └── {bold[2]} (b) (2, 3) int8\n{end}"
    assert repr(group.tree(plain=True)) == "/\n├── <i>\n│   └── a (b) (2, 3) int8\n└── c\n"
    shown = tree._repr_mimebundle_()
    assert shown["text/html"].startswith(
        "<pre><b>/</b>\n├── <b>&lt;i&gt;</b>\n│   └── <b>a</b> (b) (2, 3) int8\n"
    )
    assert shown["text/plain"] == f"/\n├── <i>\n│   └── a (b) (2, 3) int8\n{end}"


def test_sizes_are_said_however_large():
    array = ours.create_array({}, shape=(2**62, 4), chunks=(1, 1), dtype="u1")
    assert f": {2**64} (16.0E)" in repr(array.info)
    assert ": 1536 (1.5K)" in repr(ours.create_array({}, shape=1536, dtype="u1").info)


def test_nobody_pays_who_does_not_import_it():
    code = "import sys, zstore; zstore.open; assert not any('zstore.zarr' == m for m in sys.modules); "
    code += "import zstore.zarr; assert not {'zarr', 'fsspec', 'obstore', 'xarray'} & {*sys.modules}; "
    code += "assert zstore.zarr.storage and zstore.zarr.api.asynchronous and zstore.zarr.abc.store"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_zstore_takes_what_is_behind_an_array(tmp_path):
    z = ours.create_array(tmp_path / "a", data=np.arange(12.0).reshape(3, 4), chunks=(2, 2))
    assert isinstance(z.node, zstore.Array) and zstore.reduce(z.node, "mean") == z.reduce("mean") == 5.5
    assert z.reduce("max", axis=0).tolist() == [8, 9, 10, 11]
    assert zstore.open(tmp_path / "a")[...].tolist() == z[...].tolist()
    assert "reduce" in dir(z)


def test_programs_share_a_store_in_memory_by_its_name():
    g = ours.create_group("memory://door-shared", overwrite=True)
    g.create_array("x", shape=(2,), dtype="i4")[:] = 3
    assert zstore.open("memory://door-shared/x")[:].tolist() == [3, 3]


def test_values_of_a_program_in_a_dictionary_are_read(tmp_path):
    held: dict[str, Any] = {}
    ours.create_array(held, shape=(4,), chunks=(2,), dtype="i4", compressors=None)[:] = range(4)
    again = {key: bytes(value) for key, value in held.items()}
    assert ours.open_array(again, mode="r")[:].tolist() == [0, 1, 2, 3]
    assert json.loads(held["zarr.json"].to_bytes())["shape"] == [4]
    raw = ours.create_array({}, shape=2, dtype=[("a", "V2"), ("b", [("c", "V4"), ("d", ">i2")])])
    assert str(raw.node.model.data_type.render_name()).count("raw_bytes") == 2
    assert raw.dtype == [("a", "V2"), ("b", [("c", "V4"), ("d", "i2")])]
    del again["c/1"]
    assert ours.open_array(again)[:].tolist() == [0, 1, 0, 0]
    with pytest.raises(ValueError, match="chunk is missing"):
        ours.open_array(again, config={"read_missing_chunks": False})[:]
    assert pickle.loads(pickle.dumps(ours.open_array(again)))[:].tolist() == [0, 1, 0, 0]


def test_awaited_stores_give_parts_of_values():
    store = ours.storage.MemoryStore()
    from zstore.zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

    async def ask() -> list[Any]:
        await store.set("a/b", b"0123456789")
        await store.set_if_not_exists("a/b", b"other")
        ranges = RangeByteRequest(2, 5), OffsetByteRequest(8), SuffixByteRequest(3)
        parts = [await store.get("a/b", None, one) for one in ranges]
        sizes = await store.getsize("a/b"), await store.getsize_prefix("a"), await store.is_empty("c")
        await store.delete_dir("a")
        return [*parts, *sizes, await store.exists("a/b")]

    assert asyncio.run(ask()) == [b"234", b"89", b"789", 10, 10, True, False]


def test_the_first_value_of_a_key_stays(tmp_path):
    store = ours.storage.LocalStore(tmp_path)

    async def put(key: str, value: bytes) -> bytes:
        await store.set_if_not_exists(key, value)
        return (await store.get(key)).to_bytes()

    async def race() -> list[list[bytes]]:
        return [await asyncio.gather(*[put(str(k), b"%d" % n) for n in range(4)]) for k in range(50)]

    assert {len({*values}) for values in asyncio.run(race())} == {1}


def test_a_cache_in_another_store_gives_what_its_source_has():
    from zstore.zarr.experimental.cache_store import CacheStore

    source, kept = ours.storage.MemoryStore(), ours.storage.MemoryStore()
    cached = CacheStore(source, cache_store=kept, max_size=2000)
    z = ours.create_array(cached, data=np.arange(400.0), chunks=(50,), compressors=None)
    assert z[:].tolist() == z[:].tolist() == list(range(400))
    info = cached.cache_info()
    assert 0 < info["cached_keys"] <= 5 and info["current_size"] <= 2000
    z[60] = -1
    assert ours.open_array(source)[60] == z[60] == -1 and z[55:65].sum() == sum(range(55, 65)) - 61
    ours.open_array(source)[390:] = 7  # nobody tells the cache, whose values are believed for ever
    asyncio.run(cached.clear_cache())
    assert (cached.cache_info()["current_size"], z[395]) == (0, 7)
    with pytest.raises(ValueError, match="infinity"):
        CacheStore(source, cache_store=kept, max_age_seconds="long")


@pytest.mark.parametrize(
    ("shape", "chunks", "shards", "expected"),
    [
        ((10, 4), -1, None, ((10, 4), None)),
        ((10, 4), False, None, ((10, 4), None)),
        ((10, 4), (-1, 2), None, ((10, 2), None)),
        ((0, 4), False, "auto", ((1, 4), (1, 4))),
        ((10,), -1, "auto", ((10,), (10,))),
        ((10,), (4,), -1, ((4,), (12,))),
        ((8, 0), (4, 3), (-1, 6), ((4, 3), (8, 6))),
        ((10,), 4, False, ((4,), (12,))),
        ((), False, -1, ((), ())),
    ],
)
@pytest.mark.parametrize("most", [None, 1 << 20])
def test_a_length_of_minus_one_spans_its_dimension(shape, chunks, shards, expected, most):
    """As zarr-python 3.4 has it; a shard has whole chunks, and the setting for shards ends where they do."""
    with ours.config.set({"array.target_shard_size_bytes": most}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = ours.create_array({}, shape=shape, dtype="i8", chunks=chunks, shards=shards)
    assert (array.chunks, array.shards) == expected


def test_documents_of_format_2_list_their_filters():
    delta = {"id": "delta", "dtype": "<i4", "astype": "<i4"}
    document = {
        "zarr_format": 2,
        "shape": (4,),
        "chunks": (2,),
        "dtype": "<i4",
        "fill_value": 0,
        "order": "C",
    }
    document |= {"compressor": None, "filters": [delta], "dimension_separator": ".", "attributes": {}}
    assert ours.metadata.ArrayV2Metadata.from_dict(document).to_dict() == document
