"""zarr-python's stores and zstore's, one as the other."""

from __future__ import annotations

import asyncio
import pickle
import tomllib
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.storage import LocalStore, LoggingStore, MemoryStore, ZipStore
from zarr.testing.store import StoreTests

import zstore
from zstore.base.byterange import ByteRange
from zstore.errors import ReadOnlyError, StoreError
from zstore.guests.zarr_python import ZarrStore, ZstoreStore
from zstore.storage.base import Store
from zstore.storage.local import LocalStore as Directory
from zstore.storage.memory import MemoryStore as Memory
from zstore.testing.stores import StoreContract


class _Contract(StoreTests[ZstoreStore, cpu.Buffer]):
    """zarr-python's own promises of a store, one coroutine after the other, without its pytest plugin."""

    store_cls = ZstoreStore
    buffer_cls = cpu.Buffer

    async def set(self, store: ZstoreStore, key: str, value: Buffer) -> None:
        store.store.put(key, value.to_bytes())

    async def get(self, store: ZstoreStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.store.get(key))

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> ZstoreStore:
        return asyncio.run(self.store_cls.open(**store_kwargs))

    @pytest.fixture
    def open_kwargs(self, store_kwargs: dict[str, Any]) -> dict[str, Any]:
        return store_kwargs

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> ZstoreStore:
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: ZstoreStore) -> None:
        assert store.store.url in repr(store)

    def test_store_supports_writes(self, store: ZstoreStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: ZstoreStore) -> None:
        assert store.supports_listing


def _awaited(test: Any) -> Any:
    """A coroutine function as a test: what it is given it is given, and then it is run."""
    import functools

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


for _name, _test in vars(StoreTests).items():
    if _name.startswith("test_") and asyncio.iscoroutinefunction(_test):
        setattr(_Contract, _name, _awaited(_test))


class TestZstoreStoreInADirectory(_Contract):
    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"store": str(tmp_path / "a")}


class TestZstoreStoreInMemory(_Contract):
    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {"store": Memory()}

    def test_serializable_store(self, store: ZstoreStore) -> None:
        with pytest.raises(StoreError, match="cannot be pickled"):
            pickle.dumps(store)


class TestZarrMemory(StoreContract):
    can_reopen = False
    can_pickle = False
    shares_processes = False
    excludes_processes = False

    def make_store(self, place: Path) -> Store:
        return ZarrStore(MemoryStore())


class TestZarrLocal(StoreContract):
    """Behind a `ZarrStore` only when asked for, as here: `zstore.open` goes to the directory itself."""

    excludes_processes = False
    tells_trouble = False  # zarr-python's own takes what it cannot open for what is not there

    def make_store(self, place: Path) -> Store:
        return ZarrStore(LocalStore(place / "a"))


class TestZarrLogging(StoreContract):
    """Every request goes over zarr-python's event loop."""

    can_reopen = False
    can_pickle = False
    shares_processes = False
    excludes_processes = False
    tells_trouble = False  # its coroutines are warned of where they never begin

    def make_store(self, place: Path) -> Store:
        return ZarrStore(LoggingStore(MemoryStore(), log_level="ERROR"))


def test_zarr_over_a_store_of_zstore():
    store = ZstoreStore(Memory())
    array = zarr.create_array(store, name="a/b", shape=(20, 30), chunks=(7, 9), dtype="i4", fill_value=-1)
    array[3:19, 2:] = np.arange(16 * 28).reshape(16, 28)
    assert np.array_equal(zstore.open(store.store, "a/b")[...], array[...])
    assert zarr.open_group(store)["a/b"][4, 5] == array[4, 5]
    assert array[0, 0] == -1


def test_zstore_opens_zarr_stores(tmp_path):
    memory = MemoryStore()
    zarr.create_array(memory, name="x", data=np.arange(10), chunks=(4,))
    assert np.array_equal(zstore.open(memory, "x")[2:9], np.arange(2, 9))
    zstore.open(memory, "x")[3] = 77
    assert zarr.open_array(memory, path="x")[3] == 77
    logged = LoggingStore(memory, log_level="ERROR")
    assert zstore.open(logged, "x", mode="r")[3] == 77
    with ZipStore(tmp_path / "a.zip", mode="w") as zipped:
        zstore.create_array(zipped, "y", data=np.arange(6))
        assert np.array_equal(zarr.open_array(zipped, path="y")[...], np.arange(6))
    # Where zstore knows the place, it goes there by itself.
    opened = zstore.open_group(LocalStore(tmp_path / "d"), mode="a")
    assert isinstance(opened.store, Directory)
    assert zstore.open_group(ZstoreStore(opened.store)).store is opened.store


def test_read_only_zarr_stores_refuse_writes():
    memory = MemoryStore()
    zarr.create_array(memory, name="x", data=np.arange(10))
    store = ZarrStore(memory.with_read_only(read_only=True))
    with pytest.raises(ReadOnlyError):
        store.put("a", b"1")
    with pytest.raises(ReadOnlyError):
        zstore.open(store, "x", mode="r+")[0] = 1


def test_objects_that_are_no_stores_are_refused():
    for target in (5, object(), None, [1]):
        with pytest.raises(StoreError, match="expected a path, a URL or a Store"):
            zstore.open(target)
    with pytest.raises(StoreError, match="storage options"):
        zstore.open(MemoryStore(), storage_options={"anon": True})


class _Failing(MemoryStore):
    async def get(self, key, prototype, byte_range=None):
        raise PermissionError(13, "denied")


def test_failures_are_store_errors_never_missing_values():
    store = ZarrStore(_Failing())
    with pytest.raises(StoreError, match="PermissionError") as caught:
        store.get("a")
    assert isinstance(caught.value.__cause__, PermissionError)
    with pytest.raises(StoreError):
        store.get_many([("a", None), ("b", None)])


class _Strict(MemoryStore):
    """Refuses ranges that begin or end after the end of the value, as servers do."""

    broken = False

    async def get(self, key, prototype, byte_range=None):
        value = await super().get(key, prototype)
        if byte_range is not None:
            if value is None:
                raise FileNotFoundError(key)
            start, end = getattr(byte_range, "start", getattr(byte_range, "offset", 0)), len(value)
            last = getattr(byte_range, "end", getattr(byte_range, "suffix", end))
            if start >= end or last > end or self.broken:
                raise OSError("416 Range Not Satisfiable")
        return await super().get(key, prototype, byte_range)


def test_ranges_beyond_the_end_are_cut_where_the_store_refuses_them():
    inner, data = _Strict(), b"0123456789"
    store = ZarrStore(inner)
    store.put("a", data)
    for start, size in product((0, 3, 9, 10, 12, -1, -4, -10, -15), (None, 0, 1, 4, 10, 30)):
        found = store.get("a", ByteRange(start, size))
        begin, end = ByteRange(start, size).resolve(len(data))
        assert found is not None and bytes(found) == data[begin:end], (start, size)
        assert store.get("b", ByteRange(start, size)) is None
    inner.broken = True
    for asked in (ByteRange(0, 4), ByteRange(2), ByteRange(5, 30), ByteRange(-4)):
        with pytest.raises(StoreError, match="416"):
            store.get("a", asked)


def test_wrappers_that_only_know_loops_are_not_passed_by():
    seen = []

    class Noting(MemoryStore):
        async def get(self, key, prototype, byte_range=None):
            seen.append(key)
            return await super().get(key, prototype, byte_range)

    store = Noting({"a": default_buffer_prototype().buffer.from_bytes(b"12")})
    assert bytes(ZarrStore(store).get("a")) == b"12"
    assert seen == ["a"]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """zstore's adapter of URLs, with what zarr-python's branch has for it."""
    branch = {
        "AdapterResolution": lambda store: SimpleNamespace(store=store, path="", zarr_format=None),
        "URLPipelineError": ValueError,
    }
    monkeypatch.setattr(zarr.abc, "url_pipeline", SimpleNamespace(**branch), raising=False)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [(name, place)] = project["entry-points"]["zarr.url_adapters"].items()
    return EntryPoint(name, place, "zarr.url_adapters").load()


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_any_store_opens_by_its_url_behind_zstore(adapter, mode, tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    zstore.create_array(url, "t", data=np.arange(5))
    segment = SimpleNamespace(raw=f"zstore:{url}")
    context = SimpleNamespace(preceding=(), read_only=mode == "r", storage_options=None)
    found = asyncio.run(adapter.open_pipeline_segment(segment, context))
    assert found.store._is_open
    array = zarr.open_array(found.store, path="t", mode=mode)
    assert array[3] == 3
    if mode == "r":
        with pytest.raises(ValueError, match="read-only"):
            array[3] = 4


def test_nothing_stands_before_zstore_in_a_url(adapter):
    segment = SimpleNamespace(raw="zstore:memory://a")
    context = SimpleNamespace(preceding=("s3://b",), preceding_url="s3://b")
    with pytest.raises(ValueError, match=r"expected it at the beginning, as in 'zstore:sqlite:///a\.db'"):
        asyncio.run(adapter.open_pipeline_segment(segment, context))
