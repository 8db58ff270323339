"""zarr-python's arrays through zstore's engine give what its own pipeline gives."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import random
import re
import threading
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import FsspecStore, LocalStore, LoggingStore, MemoryStore, ZipStore

import zstore
from zstore.errors import ChangedError, ChecksumError, CodecError
from zstore.guests.zarr_python import ZstoreStore
from zstore.guests.zarr_python.arrays import ArrayBinding
from zstore.storage import base
from zstore.storage.memory import MemoryStore as Memory

OURS = {"codec_pipeline.path": "zstore.guests.zarr_python.ZstoreCodecPipeline"}
OWN = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
SHAPE, CHUNKS = (45, 33), (10, 7)


@pytest.fixture(autouse=True)
def ours() -> Iterator[None]:
    with zarr.config.set(OURS):
        yield


@pytest.fixture
def engine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when anything is left to zarr-python's own pipeline."""

    async def refuse(self: Any, *arguments: Any, **named: Any) -> None:
        raise AssertionError("left to zarr-python's own pipeline")

    monkeypatch.setattr(BatchedCodecPipeline, "read", refuse)
    monkeypatch.setattr(BatchedCodecPipeline, "write", refuse)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was left to zarr-python's own pipeline."""
    found: list[str] = []
    for name in ("read", "write"):
        method = getattr(BatchedCodecPipeline, name)

        def noting(self: Any, *given: Any, _name: str = name, _method: Any = method, **named: Any) -> Any:
            found.append(_name)
            return _method(self, *given, **named)

        monkeypatch.setattr(BatchedCodecPipeline, name, noting)
    return found


def make_store(kind: str, place: Path) -> Any:
    if kind == "memory":
        return MemoryStore()
    if kind == "local":
        return LocalStore(place / "a")
    if kind == "fsspec":
        return FsspecStore.from_url(f"local://{place}/a", storage_options={"auto_mkdir": True})
    if kind == "logging":
        return LoggingStore(MemoryStore(), log_level="ERROR")
    return ZstoreStore(Memory())


def random_selection(draw: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    entries: list[Any] = []
    for n in shape:
        kind = draw.randrange(4)
        start = draw.randrange(n)
        if kind == 0:
            entries.append(draw.randrange(-n, n))
        else:
            entries.append(slice(start, draw.randrange(start, n + 1), draw.choice([1, 1, 2, 5])))
    return tuple(entries)


LAYOUTS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2},
    "v2-F": {"zarr_format": 2, "order": "F"},
    "v2-nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v2-delta": {"zarr_format": 2, "filters": [numcodecs.Delta(dtype="<i4")]},
    "v3": {},
    "v3-dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "v3-v2-keys": {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3-transposed": {"filters": [TransposeCodec(order=(1, 0))]},
    "v3-big": {"serializer": BytesCodec(endian="big"), "compressors": [ZstdCodec(), Crc32cCodec()]},
    "v3-sharded": {"shards": (20, 14)},
    "v3-keeps-empty": {"config": {"write_empty_chunks": True}},
    "v3-F": {"config": {"order": "F"}},
}


# Through a store that is asked key by key, the layouts of one format take the same way.
PLACES = [(kind, layout) for kind in ("local", "memory") for layout in LAYOUTS] + [
    (kind, layout) for kind in ("fsspec", "logging", "zstore") for layout in ("v2-F", "v3", "v3-sharded")
]


@pytest.mark.parametrize(("kind", "layout"), PLACES)
def test_every_selection_reads_and_writes_as_numpy_does(engine_only, tmp_path, kind, layout):
    draw = random.Random(f"{kind} {layout}")
    values = np.random.default_rng(draw.randrange(1000))
    store = make_store(kind, tmp_path)
    array = zarr.create_array(
        store, name="x/y", shape=SHAPE, chunks=CHUNKS, dtype="<i4", fill_value=3, **LAYOUTS[layout]
    )
    expected = np.full(SHAPE, 3, "<i4")
    assert np.array_equal(array[...], expected)
    for _ in range(12):
        where = random_selection(draw, SHAPE)
        value = values.integers(0, 4, expected[where].shape).astype("<i4")
        value = draw.choice([value, np.int32(3), np.int32(7)])
        array[where] = value
        expected[where] = value
        where = random_selection(draw, SHAPE)
        got = array[where]
        assert np.array_equal(got, expected[where]) and np.shape(got) == expected[where].shape
    rows = [draw.randrange(45) for _ in range(6)]
    columns = values.random(33) < 0.3
    columns[5] = True
    for index in ((rows, slice(2, 30, 3)), (slice(None), columns), (rows, columns), (7, columns), (rows, 4)):
        array.oindex[index] = 9
        grid = np.ix_(*(np.atleast_1d(np.arange(n)[i]) for n, i in zip(SHAPE, index, strict=True)))
        expected[grid] = 9
        chosen = expected[grid].reshape(array.oindex[index].shape)
        assert np.array_equal(array.oindex[index], chosen)
    other = [draw.randrange(33) for _ in rows]
    array.vindex[rows, other] = np.arange(100, 106)
    for row, column, value in zip(rows, other, range(100, 106), strict=True):
        expected[row, column] = value
    assert np.array_equal(array.vindex[rows, other], expected[rows, other])
    assert np.array_equal(array.vindex[expected == 9], expected[expected == 9])
    blocks = array.shards or array.chunks
    assert np.array_equal(array.blocks[1, 0:2], expected[blocks[0] : 2 * blocks[0], : 2 * blocks[1]])
    assert np.array_equal(array[...], expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_pipelines_store_the_same_chunks(layout):
    draw = np.random.default_rng(5)
    value = draw.integers(0, 9, SHAPE).astype("<i4")
    value[10:20, 7:14] = 3
    stored, read = [], []
    for pipeline in (OURS, OWN):
        with zarr.config.set(pipeline):
            store = MemoryStore()
            array = zarr.create_array(
                store, shape=SHAPE, chunks=CHUNKS, dtype="<i4", fill_value=3, **LAYOUTS[layout]
            )
            array[...] = value
            array[12:14] = 3
            stored.append(sorted(store._store_dict))
        with zarr.config.set(OWN):
            read.append(zarr.open_array(store)[...])
    assert stored[0] == stored[1]
    assert np.array_equal(read[0], read[1])


TYPES = [
    "b1",
    "i1",
    ">u2",
    "<f2",
    ">f8",
    "<c8",
    "<M8[ns]",
    ">M8[s]",
    "S5",
    ">U4",
    [("a", ">i4"), ("b", "f4")],
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 2},
        {},
        {"shards": (14, 16)},
        {"shards": (14, 16), "serializer": BytesCodec(endian="big")},
    ],
    ids=["v2", "v3", "sharded", "sharded-big"],
)
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_items_of_every_type_and_order(left, dtype, options):
    draw = np.random.default_rng(1)
    numbers = draw.integers(0, 2 if dtype == "b1" else 99, (30, 20))
    kind = np.dtype(dtype)
    if kind.kind in "SU":
        value = numbers.astype(str).astype(kind)
    elif kind.names:
        value = np.zeros(numbers.shape, kind)
        for name in kind.names:
            value[name] = numbers
    else:
        value = numbers.astype(kind)
    store: dict[str, Any] = {}
    array = zarr.create_array(store, shape=(30, 20), chunks=(7, 8), dtype=dtype, **options)
    assert np.array_equal(array[...], np.full((30, 20), array.fill_value, kind), equal_nan=kind.kind in "fcM")
    array[...] = value
    array[3:9, 2] = value[3:9, 2]
    got = array[...]
    assert got.dtype == array.dtype
    assert np.array_equal(got, value)
    assert left == []
    if kind.names and "shards" in options:
        return  # zarr-python's own pipeline reads no such shards
    with zarr.config.set(OWN):
        assert np.array_equal(zarr.open_array(store)[...], value)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_strings(zarr_format):
    value = np.array([["é" * (k % 4), "x" * k] for k in range(20)], dtype=object)
    array = zarr.create_array({}, shape=(20, 2), chunks=(7, 1), dtype=str, zarr_format=zarr_format)
    array[...] = value
    array[3, 1] = "new"
    value[3, 1] = "new"
    assert np.array_equal(array[...].astype(object), value)
    with zarr.config.set(OWN):
        assert np.array_equal(zarr.open_array(array.store)[...].astype(object), value)


def test_arrays_without_dimensions_and_without_items(engine_only):
    point = zarr.create_array({}, shape=(), dtype="i4", fill_value=5)
    assert point[()] == 5
    point[()] = 7
    assert point[...] == 7
    empty = zarr.create_array({}, shape=(0, 4), chunks=(2, 2), dtype="i4")
    assert empty[...].shape == (0, 4)
    empty[...] = 3


def _resized(place: Path, shards: tuple[int, ...] | None) -> list[Any]:
    array = zarr.create_array(LocalStore(place), shape=(25,), chunks=(5,), shards=shards, dtype="i4")
    array[...] = np.arange(25)
    array.resize((42,))
    array[30:] = 1
    seen = [array[...].tolist()]
    array.resize((13,))
    array[...] = 8
    seen.append(array[...].tolist())
    array.append(np.full(4, 9))
    array.resize((20,))
    return [*seen, array[...].tolist()]


@pytest.mark.parametrize("shards", [None, (10,)])
def test_a_pipeline_that_was_made_before_the_array_was_resized(tmp_path, shards):
    seen = _resized(tmp_path / "ours", shards)
    assert seen[0] == [*range(25), *[0] * 5, *[1] * 12]
    assert seen[1] == [8] * 13
    assert seen[2][:17] == [8] * 13 + [9] * 4
    with zarr.config.set(OWN):
        assert _resized(tmp_path / "own", shards) == seen


def test_damage_is_an_error_that_names_the_chunk(tmp_path):
    store = LocalStore(tmp_path)
    array = zarr.create_array(
        store, name="x", shape=(20,), chunks=(5,), dtype="i4", compressors=Crc32cCodec()
    )
    array[...] = np.arange(20)
    chunk = tmp_path / "x" / "c" / "1"
    chunk.write_bytes(b"\0" + chunk.read_bytes()[1:])
    with pytest.raises(ChecksumError, match="c/1"):
        array[...]
    chunk.write_bytes(b"")
    with pytest.raises(CodecError, match="c/1"):
        array[4:6]
    with pytest.raises(CodecError, match="c/1"):
        array[5:7] = 1
    array[5:10] = 1
    assert array[5] == 1


class _Failing(MemoryStore):
    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if "/c/" in key or key.startswith("c/"):
            raise PermissionError(13, "denied")
        return await super().get(key, prototype, byte_range)


def test_what_the_store_raises_is_raised():
    array = zarr.create_array(_Failing(), shape=(20,), chunks=(5,), dtype="i4")
    with pytest.raises(PermissionError):
        array[...]
    with pytest.raises(PermissionError):
        array[3:8] = 1


class _Overtaken(Memory):
    """Somebody else is always faster."""

    in_memory = False

    def put(self, key: str, value: Any) -> None:
        if "c/" in key:
            raise ChangedError("value was written by somebody else", path=self.url, key=key)
        super().put(key, value)


def test_who_is_always_too_late_is_told(left, monkeypatch):
    monkeypatch.setattr(base, "FIRST_PAUSE", 0.0)
    array = zarr.create_array(ZstoreStore(_Overtaken()), shape=(20,), chunks=(5,), dtype="i4")
    with pytest.raises(ChangedError, match="c/0"):
        array[1] = 1
    assert left == []


def test_read_only_stores_refuse_as_they_do(tmp_path):
    zarr.create_array(LocalStore(tmp_path), shape=(4,), dtype="i4")
    array = zarr.open_array(LocalStore(tmp_path, read_only=True), mode="r")
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 1


class _Doubling(ZstdCodec):
    """Somebody's own codec under a name that zstore knows."""

    calls = 0

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        type(self).calls += 1
        return await super()._decode_single(chunk_bytes, chunk_spec)


def test_codecs_of_somebody_elses_are_called(left):
    array = zarr.create_array({}, shape=(8,), chunks=(4,), dtype="i4", compressors=_Doubling())
    array[...] = np.arange(8)
    assert np.array_equal(array[...], np.arange(8))
    assert _Doubling.calls == 2 and left == ["write", "read"]


class _Metadata:
    zarr_format = 2
    filters = (numcodecs.Pickle(),)
    compressor = None


def test_pickled_objects_are_left_to_who_knows_whether_they_may_be_opened():
    assert ArrayBinding(_Metadata()).model is None


def test_memory_of_other_kinds_is_left_to_zarr(left):
    from zarr.core.buffer import BufferPrototype, cpu

    class Own(cpu.NDBuffer):
        pass

    array = zarr.create_array({}, shape=(8,), chunks=(4,), dtype="i4")
    array[...] = np.arange(8)
    prototype = BufferPrototype(buffer=cpu.Buffer, nd_buffer=Own)
    assert np.array_equal(array.get_basic_selection(slice(2, 6), prototype=prototype), np.arange(2, 6))
    assert left == ["read"]


def test_out_is_filled_in_place(engine_only):
    from zarr.core.buffer import cpu

    array = zarr.create_array({}, shape=(8, 6), chunks=(4, 4), dtype="i4")
    array[...] = np.arange(48).reshape(8, 6)
    memory = np.zeros((12, 8), "i4", order="F")
    array.get_basic_selection((slice(1, 7), slice(2, 6)), out=cpu.NDBuffer(memory[:6, ::2]))
    assert np.array_equal(memory[:6, ::2], np.arange(48).reshape(8, 6)[1:7, 2:6])
    assert not memory[6:].any() and not memory[:, 1::2].any()


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
def test_shards_in_shards_and_codecs_around_them():
    inner = ShardingCodec(chunk_shape=(4, 4), codecs=[BytesCodec(), ZstdCodec()])
    for serializer, compressors in (
        (ShardingCodec(chunk_shape=(8, 8), codecs=[inner]), ()),
        (ShardingCodec(chunk_shape=(8, 8), codecs=[inner], index_location="start"), (ZstdCodec(),)),
    ):
        array = zarr.create_array(
            {}, shape=(40, 40), chunks=(16, 16), dtype="i4", serializer=serializer, compressors=compressors
        )
        expected = np.arange(1600).reshape(40, 40)
        array[...] = expected
        array[3:5, 30:] = 1
        expected[3:5, 30:] = 1
        assert np.array_equal(array[...], expected)
        with zarr.config.set(OWN):
            assert np.array_equal(zarr.open_array(array.store)[...], expected)


def test_one_pipeline_serves_many_threads_and_loops(tmp_path):
    array = zarr.create_array(make_store("fsspec", tmp_path), shape=(64,), chunks=(4,), dtype="i4")
    array[...] = np.arange(64)
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for k in range(10):
                assert np.array_equal(array[k : k + 40], np.arange(k, k + 40))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)

    async def read_alone() -> Any:
        opened = await zarr.api.asynchronous.open_array(
            store=LoggingStore(MemoryStore(dict(copied)), "ERROR")
        )
        return await opened.getitem(slice(5, 50))

    memory = MemoryStore()
    zarr.create_array(memory, data=np.arange(64), chunks=(4,))
    copied = memory._store_dict
    for _ in range(2):
        assert np.array_equal(asyncio.run(read_alone()), np.arange(5, 50))


def test_threads_that_share_a_chunk_lose_nothing(tmp_path):
    array = zarr.create_array(LocalStore(tmp_path), shape=(64,), chunks=(64,), dtype="i4")

    def write(first: int) -> None:
        for k in range(first, 64, 4):
            array[k] = k + 1

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(array[...], np.arange(1, 65))


def _read_in_child(array: Any, queue: Any) -> None:
    queue.put(array[...].sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_read_what_their_parents_have_open(tmp_path, method):
    array = zarr.create_array(LocalStore(tmp_path), shape=(64,), chunks=(4,), dtype="i4")
    array[...] = np.arange(64)
    assert array[...].sum() == 2016
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(_Carried(array), queue))
    child.start()
    assert queue.get(timeout=60) == 2016
    child.join(60)


class _Carried:
    """An array on its way to another process, which has to import zstore's pipeline before it opens it."""

    def __init__(self, array: Any) -> None:
        self._bytes = pickle.dumps(array)

    def __getitem__(self, selection: Any) -> Any:
        return pickle.loads(self._bytes)[selection]


def test_pipelines_compare_and_pickle():
    array = zarr.create_array({}, shape=(8,), chunks=(4,), dtype="i4")
    pipeline = array.async_array.codec_pipeline
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    assert pipeline == zarr.open_array(array.store).async_array.codec_pipeline
    assert (
        pipeline != zarr.create_array({}, shape=(8,), dtype="i4", compressors=None).async_array.codec_pipeline
    )
    assert "BytesCodec" in repr(pipeline)


@pytest.mark.parametrize("group", ["", "a/", "a/c/"])
@pytest.mark.parametrize(
    ("ndim", "encoding"),
    [(2, ("default", "/")), (2, ("default", ".")), (3, ("v2", ".")), (1, ("v2", "/")), (0, ("default", "/"))],
)
def test_keys_are_read_as_they_are_written(ndim, encoding, group):
    name, separator = encoding
    array = zarr.create_array(
        {}, shape=(8,) * ndim, chunks=(1,) * ndim, dtype="i1",
        chunk_key_encoding={"name": name, "separator": separator},
    )  # fmt: skip
    binding = ArrayBinding(array.metadata)
    for count in (1, 20):
        cells = [*islice(product(range(3, 8), repeat=ndim), count)]
        keys = [group + array.metadata.encode_chunk_key(cell) for cell in cells]
        assert binding.prefix(keys[0]) == group
        assert binding._cells(group, keys) == cells
        for odd in ("b/c/1/2", group + "zarr.json", keys[0] + separator + "1"):
            assert binding._cells(group, [*keys, odd]) is None


def test_results_say_which_chunks_are_missing(tmp_path):
    for store in (LocalStore(tmp_path), MemoryStore()):
        array = zarr.create_array(store, shape=(12,), chunks=(4,), dtype="i4")
        array[4:8] = 1
        answers: list[Any] = []
        pipeline = array.async_array.codec_pipeline
        read = pipeline.read

        async def noting(*arguments: Any, _read: Any = read, _to: Any = answers, **named: Any) -> None:
            _to.append(await _read(*arguments, **named))

        pipeline.read = noting
        array[...]
        assert [answer["status"] for answer in answers[0]] == ["missing", "present", "missing"]


def test_zstore_reads_what_zarr_writes_through_it(tmp_path):
    array = zarr.create_array(
        LocalStore(tmp_path), name="a", data=np.arange(100).reshape(10, 10), chunks=(3, 4)
    )
    array[2, 3] = -1
    assert np.array_equal(zstore.open(tmp_path, "a")[...], array[...])
    with ZipStore(tmp_path / "b.zip", mode="w") as zipped:
        zarr.create_array(zipped, name="a", data=np.arange(30), chunks=(7,))
    with ZipStore(tmp_path / "b.zip", mode="r") as zipped:
        assert np.array_equal(zarr.open_array(zipped, path="a", mode="r")[3:22], np.arange(3, 22))


def test_the_document_runs():
    text = (Path(__file__).parents[2] / "docs" / "zarr-python.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "zarr-python.md", "exec"), names)
