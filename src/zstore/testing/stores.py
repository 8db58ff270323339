"""The contract of stores, as a test class to inherit from.

    class TestAcmeStore(StoreContract):
        def make_store(self, place):
            return AcmeStore(place / "acme")

It needs pytest, which zstore itself does not. A promise that a store cannot keep is switched off by its flag
in the class, where everyone can see it.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zstore.base.byterange import ByteRange
from zstore.errors import ChangedError, ReadOnlyError, StoreError
from zstore.nodes.open import create_array
from zstore.storage.base import (
    CAPABILITIES,
    OPENING,
    PRIMITIVES,
    BatchStore,
    Part,
    PrefixStore,
    Store,
    check_key,
)
from zstore.storage.url import open_store
from zstore.testing.contract import broken_attributes, broken_calls, broken_files, needs
from zstore.testing.sharing import StoreSharing

__all__ = ["StoreContract"]

BAD_KEYS = ("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b")
TROUBLED = {"a/b": b"a value", "a/c": bytes(5000)}
UNICODE_KEYS = ("é/ü", "数据/块", "a b/c d", "100%/x", "a+b&c=d", "q?a#b", "[1]*", "🌍", "a%2Fb")


class StoreContract(StoreSharing):
    """The tests of every promise of `zstore.plugin.stores.Store`: inherit and define `make_store`.

    can_write           put and delete work; if not, `make_store_with` must be defined
    can_list            list, list_children and delete_prefix work
    can_reopen          `open_store(store.url)` reaches the same values
    can_pickle          an unpickled store reaches the same values
    has_whole_puts      while a value is being replaced, readers get the old or the new one
    excludes_threads    `lock` keeps other threads that lock the same key waiting
    shares_processes    several processes can read and write the same values at once
    excludes_processes  `lock` keeps other processes that lock the same key waiting
    tells_trouble       failures are errors, never missing values
    """

    can_write = True
    can_list = True
    can_reopen = True
    can_pickle = True
    has_whole_puts = True
    excludes_threads = True
    shares_processes = True
    excludes_processes = True
    tells_trouble = True

    many = 1200
    """A number of keys that is more than one page of a listing; fewer where each takes the store long."""

    def make_store(self, place: Path) -> Store:
        """A new, empty store; `place` is an empty directory of this test."""
        raise NotImplementedError

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        """A new store that holds exactly `values`."""
        store = self.make_store(place)
        for key, value in values.items():
            store.put(key, value)
        return store

    @pytest.fixture
    def filled(self, tmp_path: Path) -> Any:
        """A fixture: a function from values to a store that has them; the stores are closed afterwards."""
        made: list[Store] = []

        def make(values: dict[str, bytes] | None = None) -> Store:
            place = tmp_path / str(len(made))
            place.mkdir()
            made.append(self.make_store_with(place, values or {}))
            return made[-1]

        yield make
        for store in made:
            store.close()

    # What it is made of

    def test_a_store_is_primitives_and_capabilities(self, filled: Any) -> None:
        everything = {
            name for name in vars(Store) if not name.startswith("_") and callable(getattr(Store, name))
        }
        allowed = {*PRIMITIVES, *OPENING, *chain.from_iterable(CAPABILITIES.values())}
        for kind in type(filled()).__mro__:
            if kind not in (Store, BatchStore, PrefixStore):
                defined = {name for name in vars(kind) if name in everything}
                assert defined <= allowed, f"{kind} defines what is made of primitives"

    # Reading

    @pytest.mark.parametrize("size", [0, 1, 15, 4096, 3_000_001])
    def test_get_gives_what_was_put(self, filled: Any, size: int) -> None:
        value = random.Random(size).randbytes(size)
        store = filled({"a/b/c": value})
        assert bytes(store.get("a/b/c")) == value
        assert store.size("a/b/c") == size

    def test_what_get_gives_cannot_be_written_to(self, filled: Any) -> None:
        store = filled({"a": b"0123456789"})
        for found in (store.get("a"), store.get("a", ByteRange(2, 3)), store.get("a", ByteRange(0))):
            assert memoryview(found).readonly

    def test_missing_is_none(self, filled: Any) -> None:
        store = filled({"a/b": b"1", "a/bc": b"2"})
        for key in ("x", "a", "a/x", "a/b/c", "a/b/c/d", "a/bcd"):
            assert store.get(key) is None
            assert store.get(key, ByteRange(0, 4)) is None
            assert store.get(key, ByteRange(-4)) is None
            assert store.get(key, ByteRange(3, 0)) is None
            assert store.size(key) is None

    @pytest.mark.parametrize("size", [None, 0, 1, 4, 10, 11, 1000])
    def test_get_gives_the_range(self, filled: Any, size: int | None) -> None:
        value = b"0123456789"
        store = filled({"a/b": value})
        for start in (0, 1, 9, 10, 11, 1000, -1, -4, -10, -11, -1000):
            wanted = ByteRange(start, size)
            begin, end = wanted.resolve(len(value))
            assert bytes(store.get("a/b", wanted)) == value[begin:end], wanted

    def test_range_of_an_empty_value_is_empty(self, filled: Any) -> None:
        store = filled({"a": b""})
        for wanted in (ByteRange(0), ByteRange(0, 4), ByteRange(4, 4), ByteRange(-4), ByteRange(-4, 2)):
            assert bytes(store.get("a", wanted)) == b""

    def test_range_of_a_large_value(self, filled: Any) -> None:
        value = random.Random(7).randbytes(2_000_000)
        store = filled({"a": value})
        for start, size in ((1_999_990, 100), (1_000_000, 500_000), (0, 1), (-77, None), (-77, 7)):
            begin, end = ByteRange(start, size).resolve(len(value))
            assert bytes(store.get("a", ByteRange(start, size))) == value[begin:end]

    def test_get_many_answers_in_the_order_asked(self, filled: Any) -> None:
        values = {f"a/{i}": random.Random(i).randbytes(100 + i) for i in range(20)}
        store = filled(values)
        draw = random.Random(1)
        requests: list[tuple[str, ByteRange | None]] = [("a/nothing", None), ("a/nothing", ByteRange(1, 2))]
        for _ in range(100):
            start, size = draw.randrange(-150, 150), draw.choice([None, 0, 1, 30, 500])
            requests.append((f"a/{draw.randrange(20)}", draw.choice([None, ByteRange(start, size)])))
        draw.shuffle(requests)
        found = store.get_many(requests)
        assert len(found) == len(requests)
        for (key, wanted), value in zip(requests, found, strict=True):
            whole = values.get(key)
            if whole is None:
                assert value is None
                continue
            begin, end = wanted.resolve(len(whole)) if wanted else (0, len(whole))
            assert bytes(value) == whole[begin:end]
        assert store.get_many([]) == []

    def test_get_parts_says_how_long_values_are(self, filled: Any) -> None:
        store = filled({"a/b": b"0123456789", "empty": b""})
        requests = [
            ("a/b", None),
            ("a/b", ByteRange(-3)),
            ("nothing", None),
            ("empty", None),
            ("nothing", ByteRange(-3)),
            ("a/b", ByteRange(8, 100)),
            ("empty", ByteRange(-3)),
            ("a/b", ByteRange(50, 1)),
        ]
        found = store.get_parts(requests)
        assert [None if part is None else (bytes(part.data), part.total_size) for part in found] == [
            (b"0123456789", 10),
            (b"789", 10),
            None,
            (b"", 0),
            None,
            (b"89", 10),
            (b"", 0),
            (b"", 10),
        ]

    def test_awaited_answers_are_those_of_calls(self, filled: Any) -> None:
        values = {"a/x": b"0123456789", "a/y": b"of a", "b/y": b"of b", "b/z": b""}
        store = filled(values)
        requests = [("a/x", ByteRange(2, 3)), ("nothing", None), ("b/z", None), ("a/x", ByteRange(-2))]

        async def ask() -> list[Any]:
            return await asyncio.gather(
                store.get_many_async(requests),
                store.get_parts_async(requests),
                *(store.get_many_async([(key, None)]) for key in values),
            )

        many, parts, *single = asyncio.run(ask())
        assert [value and bytes(value) for value in many] == [b"234", None, b"", b"89"]
        assert [part and (bytes(part.data), part.total_size) for part in parts] == [
            (b"234", 10),
            None,
            (b"", 0),
            (b"89", 10),
        ]
        assert [bytes(value) for [value] in single] == [*values.values()]

    def test_get_first_gives_the_first_choice_that_is_there(self, filled: Any) -> None:
        store = filled({"a/x": b"0123456789", "a/y": b"of a", "b/y": b"of b", "b/z": b""})
        first = store.get_first(["a", "b", "c"], [["x"], ["y", "z"]])
        assert [{name: bytes(value) for name, value in found.items()} for found in first] == [
            {"x": b"0123456789"},
            {"y": b"of b", "z": b""},
            {},
        ]

    def test_arrays_can_be_awaited(self, filled: Any) -> None:
        if not self.can_write:
            return
        store = filled()
        items, rows = np.arange(400, dtype="i4").reshape(20, 20), range(0, 20, 2)
        for shards in (None, (10, 10)):
            array = create_array(store, f"{shards}", data=items, chunks=(5, 5), shards=shards)

            async def use(array: Any = array) -> Any:
                await asyncio.gather(*(array.write_async(np.s_[n, n:], -n) for n in rows))
                return await asyncio.gather(*(array.read_async(np.s_[n : n + 7]) for n in rows))

            expected = items.copy()
            for n in rows:
                expected[n, n:] = -n
            for n, found in zip(rows, asyncio.run(use()), strict=True):
                assert np.array_equal(found, expected[n : n + 7])

    @pytest.mark.parametrize("key", UNICODE_KEYS)
    def test_keys_are_any_text(self, filled: Any, key: str) -> None:
        store = filled({key: b"here", "other": b"there"})
        assert bytes(store.get(key)) == b"here"
        assert bytes(store.get(key, ByteRange(1, 2))) == b"er"
        if self.can_list:
            assert sorted(store.list()) == sorted([key, "other"])
            assert store.list_children() == sorted([key.partition("/")[0], "other"])

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_keys_that_leave_the_store_are_refused(self, filled: Any, key: str) -> None:
        with pytest.raises(StoreError):
            check_key(key)
        store = filled({"a/b": b"1"})
        with pytest.raises(StoreError):
            store.get(key)
        with pytest.raises(StoreError):
            store.get_many([("a/b", None), (key, None)])
        with pytest.raises(StoreError):
            store.size(key)
        if self.can_write:
            with pytest.raises(StoreError):
                store.put(key, b"")
            with pytest.raises(StoreError):
                store.delete(key)
        if self.can_list and key:
            with pytest.raises(StoreError):
                sorted(store.list(key))
            with pytest.raises(StoreError):
                store.list_children(key)
        if self.can_list and self.can_write and key:
            with pytest.raises(StoreError):
                store.delete_prefix(key)

    # Writing

    @needs("can_write")
    def test_put_replaces(self, filled: Any) -> None:
        store = filled({"a/b": b"a long value to begin with"})
        for value in (b"short", b"", b"a much longer value than the one that was there before"):
            store.put("a/b", value)
            assert bytes(store.get("a/b")) == value
            assert store.size("a/b") == len(value)

    @needs("can_write")
    def test_put_keeps_a_copy(self, filled: Any) -> None:
        store = filled()
        value = bytearray(b"as it was")
        store.put("a", value)
        store.put("b", memoryview(value)[3:])
        value[:] = b"XXXXXXXXX"
        assert bytes(store.get("a")) == b"as it was"
        assert bytes(store.get("b")) == b"it was"

    @needs("can_write")
    def test_put_takes_any_buffer(self, filled: Any) -> None:
        store = filled()
        numbers: Any = np.arange(12, dtype="<u2").reshape(3, 4)
        for value in (memoryview(numbers), memoryview(numbers[:, ::2]), memoryview(numbers[:0])):
            store.put("a", value)
            assert bytes(store.get("a")) == value.tobytes()

    @needs("can_write")
    def test_delete_removes(self, filled: Any) -> None:
        store = filled({"a/b": b"1", "a/c": b"2", "x/y/z": b"3"})
        store.delete("a/b")
        assert store.get("a/b") is None
        store.delete("a/b")
        store.delete("never/there")
        store.delete("x")
        store.delete("x/y/z")
        assert bytes(store.get("a/c")) == b"2"
        if self.can_list:
            assert [*store.list()] == ["a/c"]
        store.put("a/b", b"again")
        assert bytes(store.get("a/b")) == b"again"

    def test_read_only_refuses_to_write(self, filled: Any) -> None:
        store = filled({"a/b": b"1"})
        view: Store = store.as_read_only()
        assert view.read_only
        assert bytes(view.get("a/b") or b"") == b"1"
        for key in ("a/b", "new"):
            with pytest.raises(ReadOnlyError):
                view.put(key, b"2")
            with pytest.raises(ReadOnlyError):
                view.delete(key)
        for prefix in ("a", ""):
            with pytest.raises(ReadOnlyError):
                view.delete_prefix(prefix)
        assert bytes(store.get("a/b")) == b"1"
        assert store.get("new") is None
        if self.can_write:
            store.put("a/b", b"3")
            assert bytes(view.get("a/b") or b"") == b"3"
        view.close()

    # Listing

    @needs("can_list")
    def test_list_gives_the_keys_below(self, filled: Any) -> None:
        keys = ["zarr.json", "6/f/0", "6/f/1/2", "6/faNT/0", "6/f-/0", "6/f0", "6.f", "60/f", ".hidden/x"]
        store = filled(dict.fromkeys(keys, b"1"))
        assert sorted(store.list()) == sorted(keys)
        assert sorted(store.list("6")) == sorted(key for key in keys if key.startswith("6/"))
        assert sorted(store.list("6/f")) == ["6/f/0", "6/f/1/2"]
        assert [*store.list("6/f/1")] == ["6/f/1/2"]
        for prefix in ("6/f/0", "6/fa", "nothing", "6/f/1/2/3"):
            assert [*store.list(prefix)] == []

    @needs("can_list")
    def test_entries_say_how_long_values_are(self, filled: Any) -> None:
        values = {"zarr.json": b"{}", "a/b": b"", "a/c/0": bytes(5000), "ab/c": b"123"}
        store = filled(values)
        assert {entry.key: entry.size for entry in store.entries()} == {k: len(v) for k, v in values.items()}
        assert sorted(entry.key for entry in store.entries("a")) == ["a/b", "a/c/0"]
        entry = store.entry("ab/c")
        assert (entry.key, entry.size) == ("ab/c", 3)
        # Listings and single entries have the same version of a value.
        assert list(store.entries("ab")) == [entry] == [store.entry("ab/c")]
        assert store.entry("a") is None
        if self.can_write and entry.version is not None:
            store.put("ab/c", b"456")
            assert store.entry("ab/c").version != entry.version

    @needs("can_write")
    def test_values_come_out_of_files(self, filled: Any, tmp_path: Path) -> None:
        store, file = filled({"a/b": b"old"}), tmp_path / "given"
        file.write_bytes(bytes(range(256)) * 30)
        with file.open("rb") as given:
            for key in ("a/b", "a/new/c"):
                store.put_file(key, given.fileno(), 7000)
                assert bytes(store.get(key)) == file.read_bytes()[:7000]

    @needs("can_write")
    def test_values_are_put_at_once_or_not_at_all(self, filled: Any) -> None:
        store = filled({"a/b": b"old"})
        values = {f"a/{name}": name.encode() for name in "bcd"}
        made = store.put_many([*values], [*values.values()])
        assert (made is None) == (store.put_many([], []) is None)
        kept = {"a/b": b"old", "a/c": None, "a/d": None} if made is None else values
        assert {key: store.get(key) for key in values} == kept
        if made is not None:
            versions = [made[0], None, made[2]]
            found = store.put_many([*values], [b"1", b"2", b"3"], versions)
            assert [isinstance(one, ChangedError) for one in found] == [False, True, False]
            assert [store.get(key) for key in values] == [b"1", b"c", b"3"]

    @needs("can_write", "can_list")
    def test_values_are_swapped_where_all_are_as_expected(self, filled: Any) -> None:
        long = bytes(range(256)) * 400
        values = {"a/d": b"1", "a/c/0": long, "a/c/1": b""}
        store = filled(values)
        if store.swap({}) is None:
            assert store.swap({"a/d": (b"1", b"2")}) is None
            assert bytes(store.get("a/d")) == b"1"
            return
        for wrong in (
            *({"a/d": (b"2", ...)}, {"a/d": (None, ...)}, {"a/x": (b"", ...)}, {"x/y/z": (b"1", ...)}),
            *({"a/c/0": (long[:-1], ...)}, {"a/c/0": (long[:-1] + b"x", ...)}, {"a/c/1": (None, ...)}),
        ):
            [key] = wrong
            others = {"a/d": (b"1", b"3"), "a/c/0": (..., None), "a/c/2": (None, b"new")}
            with store.lock("a/c/0"):
                assert store.swap({**others, **wrong}) is False, wrong
            assert {key: bytes(store.get(key)) for key in store.list()} == values, wrong
            assert store.get(key) is None or bytes(store.get(key)) == values[key]
        with store.lock("a/c/0"):
            assert store.swap(
                {
                    "a/d": (memoryview(b"1"), ...),
                    "a/c/0": (long, memoryview(long[1:])),
                    "a/c/1": (b"", None),
                    "a/c/2": (None, bytearray(b"new")),
                    "a/c/3": (..., b""),
                    "a/c/4": (..., None),
                }
            )
        expected = {"a/d": b"1", "a/c/0": long[1:], "a/c/2": b"new", "a/c/3": b""}
        assert {key: bytes(store.get(key)) for key in store.list()} == expected
        assert store.swap({"b/c/d": (None, b"1")})
        assert bytes(store.get("b/c/d")) == b"1"
        with pytest.raises(StoreError):
            store.swap({"a/d": (b"1", ...), "a/../b": (..., b"")})
        view = store.as_read_only()
        with pytest.raises(ReadOnlyError):
            view.swap({"a/d": (b"1", b"2")})

    @needs("can_list")
    def test_list_children_gives_names(self, filled: Any) -> None:
        store = filled(dict.fromkeys(("zarr.json", "b/zarr.json", "b/c/0/0", "b/c/0/1", "a/x", "bc/y"), b""))
        assert store.list_children() == ["a", "b", "bc", "zarr.json"]
        assert store.list_children("b") == ["c", "zarr.json"]
        assert store.list_children("b/c") == ["0"]
        assert store.list_children("b/c/0") == ["0", "1"]
        assert store.list_children("nothing") == []
        assert store.list_children("zarr.json") == []

    @needs("can_list")
    def test_many_keys_are_listed_once_each(self, filled: Any) -> None:
        keys = [f"a/c/{i % 7}/{i}" for i in range(self.many)]
        store = filled(dict.fromkeys(keys, b"1"))
        assert sorted(store.list("a")) == sorted(keys)
        assert store.list_children("a/c") == [*"0123456"]

    @needs("can_list")
    def test_lists_of_an_empty_store_are_empty(self, filled: Any) -> None:
        store = filled()
        assert [*store.list()] == []
        assert store.list_children() == []
        assert store.get("zarr.json") is None

    @needs("can_list", "can_write")
    def test_delete_prefix_leaves_siblings(self, filled: Any) -> None:
        keys = ["6/f/0", "6/f/1/2", "6/faNT/0", "6/f0", "6/f.x", "6/e/0", "6/%/0", "6/_/0", "6/*/0"]
        store = filled({key: key.encode() for key in keys})
        for prefix in ("6/%", "6/_", "6/*", "6/f", "nothing", "6/f0"):
            store.delete_prefix(prefix)
            keys = [key for key in keys if not key.startswith(f"{prefix}/")]
            assert sorted(store.list()) == sorted(keys)
        for key in keys:
            assert bytes(store.get(key)) == key.encode()
        store.delete_prefix("")
        assert [*store.list()] == []
        store.put("6/f/0", b"again")
        assert [*store.list()] == ["6/f/0"]

    # Trouble

    def broken(self, store: Store) -> AbstractContextManager[None]:
        """A context in which the storage behind `store` fails, as a dead server or disk does.

        By default all objects in the store's attributes fail. The tests also make its files, and Python's
        calls for files and sockets, fail. Override it for a store that none of these affects.
        """
        return broken_attributes(store)

    @needs("tells_trouble")
    def test_trouble_is_never_a_missing_value(self, filled: Any, tmp_path: Path) -> None:
        ways = (broken_files(tmp_path), broken_calls(), self.broken(store := filled(TROUBLED)))
        noticed = [_is_noticed(store, way) for way in ways]
        assert any(noticed), f"nothing that the contract breaks reaches {store!r}: override `broken`"

    @needs("tells_trouble", "can_list")
    def test_trouble_is_never_an_empty_list(self, filled: Any) -> None:
        store = filled(TROUBLED)
        for way in (broken_calls(), self.broken(store)):
            with way:
                keys = _answer(lambda: sorted(store.list()))
                children = _answer(lambda: store.list_children("a"))
            assert isinstance(keys, Exception) or keys == sorted(TROUBLED)
            assert isinstance(children, Exception) or children == ["b", "c"]

    @needs("tells_trouble", "can_write")
    def test_what_could_not_be_put_is_said(self, filled: Any) -> None:
        for breaks in (lambda _: broken_calls(), self.broken):
            store = filled(TROUBLED)
            with breaks(store):
                replaced = _answer(partial(store.put, "a/b", b"another value"))
                added = _answer(partial(store.put, "a/new", b"a new one"))
                removed = _answer(partial(store.delete, "a/c"))
            found = [store.get(key) for key in ("a/b", "a/new", "a/c")]
            assert found[0] is not None
            assert bytes(found[0]) in [b"another value", *[TROUBLED["a/b"]] * isinstance(replaced, Exception)]
            assert isinstance(added, Exception) or bytes(found[1] or b"") == b"a new one"
            assert isinstance(removed, Exception) or found[2] is None

    # Opening again

    @needs("can_reopen")
    def test_url_opens_the_same_store(self, filled: Any) -> None:
        store = filled({"a/b": b"1"})
        again = open_store(store.url, read_only=True)
        assert bytes(again.get("a/b") or b"") == b"1"
        assert again.read_only
        again.close()
        assert bytes(store.get("a/b")) == b"1"

    @needs("can_pickle")
    def test_pickle_gives_the_same_store(self, filled: Any) -> None:
        store = filled({"a/b": b"1"})
        again = pickle.loads(pickle.dumps(store))
        assert bytes(again.get("a/b")) == b"1"
        assert (again.url, again.read_only) == (store.url, store.read_only)
        assert pickle.loads(pickle.dumps(store.as_read_only())).read_only
        again.close()

    def test_a_with_block_closes(self, filled: Any) -> None:
        store = filled({"a/b": b"1"})
        with store as same:
            assert same is store
            assert bytes(store.get("a/b")) == b"1"
        if self.can_reopen:
            with open_store(store.url, read_only=True) as again:
                assert bytes(again.get("a/b") or b"") == b"1"

    def test_repr_names_the_store(self, filled: Any) -> None:
        store = filled()
        assert store.url in repr(store)


def _answer(ask: Callable[[], Any]) -> Any:
    """The answer, or a copy of the exception with its text alone (the exception would keep objects alive)."""
    try:
        return ask()
    except Exception as error:
        return RuntimeError(repr(error))


def _is_noticed(store: Store, way: AbstractContextManager[None]) -> bool:
    """Whether a call failed while the store was broken this way; the answers of all others must be right."""
    value = TROUBLED["a/b"]
    asked: list[tuple[Callable[[], Any], Any]] = [
        (lambda: store.get("a/b"), value),
        (lambda: store.get("a/b", ByteRange(2, 3)), value[2:5]),
        (lambda: store.get("a/b", ByteRange(-3)), value[-3:]),
        (lambda: store.get_many([("a/b", None), ("a/c", ByteRange(1, 2))]), [value, bytes(2)]),
        (lambda: store.get_parts([("a/b", None)]), [(value, len(value))]),
        (lambda: store.get_first(["a"], [("b",)]), [{"b": value}]),
        (lambda: store.size("a/b"), len(value)),
    ]
    with way:
        answers = [_answer(ask) for ask, _ in asked]
    for answer, (_, expected) in zip(answers, asked, strict=True):
        if not isinstance(answer, Exception):
            assert _plain(answer) == expected, f"{store!r} answered {answer!r} while it could not know"
    return any(isinstance(answer, Exception) for answer in answers)


def _plain(answer: Any) -> Any:
    """The answer of a store with bytes instead of buffers, and without versions."""
    if isinstance(answer, memoryview | bytearray):
        return bytes(answer)
    if isinstance(answer, Part):
        return bytes(answer.data), answer.total_size
    if isinstance(answer, list):
        return [_plain(item) for item in answer]
    if isinstance(answer, dict):
        return {key: _plain(item) for key, item in answer.items()}
    return answer
