"""Appends to arrays in a bucket that meet other changes at every moment, and such as are killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine import intents, resize
from zstore.errors import NotFoundError, StoreError
from zstore.storage.objects.backend import Backend
from zstore.storage.objects.curl import HttpError
from zstore.storage.objects.store import ObjectStore

from .bucket_server import BucketServer, forget_settings

pytest.importorskip("obstore", reason="the package behind the store")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BucketServer]:
    """A bucket whose writers have no lock in common, as in processes of their own."""
    forget_settings(monkeypatch, tmp_path)
    for module in (intents, resize):
        monkeypatch.setattr(module, "hold_name", lambda name: nullcontext())
    with BucketServer() as server:
        yield server


def create(server: BucketServer, **options: Any) -> zstore.Array:
    options = {"data": np.arange(4, dtype="i4"), "chunks": (2,), "fill_value": -1, **options}
    return zstore.create_array("s3://b/g", "a", storage_options=server.options(), **options)


def another(server: BucketServer, mode: Any = "r+") -> zstore.Array:
    return zstore.open_array("s3://b/g", "a", mode=mode, storage_options=server.options())


OLD = [0, 1, 2, 3]
Items = list[int]
# What others do meanwhile, and what the array may be then: theirs was first, or the append of `new`.
MEETINGS: dict[str, tuple[Callable[[zstore.Array], Any], Callable[[Items], list[Items]]]] = {
    "appends": (
        lambda a: a.append([7, 7]),
        lambda new: [[*OLD, 7, 7, *new], [*OLD, *new, 7, 7]],
    ),
    "appends half a chunk": (
        lambda a: a.append([7]),
        lambda new: [[*OLD, 7, *new], [*OLD, *new, 7]],
    ),
    "grows": (
        lambda a: a.resize((a.shape[0] + 3,)),
        lambda new: [[*OLD, -1, -1, -1, *new], [*OLD, *new, -1, -1, -1]],
    ),
    "shrinks": (lambda a: a.resize((1,)), lambda new: [[0, *new], [0]]),
    "shrinks and grows": (
        lambda a: [a.resize((2,)), a.resize((6,))],
        lambda new: [[0, 1, -1, -1, -1, -1, *new], [0, 1, -1, -1, -1, -1]],
    ),
    "clears what is outside": (lambda a: a.resize(a.shape), lambda new: [[*OLD, *new]]),
    "changes an attribute": (lambda a: a.attrs.update(x=1), lambda new: [[*OLD, *new]]),
}


@pytest.mark.parametrize("meets", MEETINGS)
@pytest.mark.parametrize("count", [4, 3])
def test_an_append_that_meets_others_is_before_or_after_them(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch, meets: str, count: int
) -> None:
    act, expected = MEETINGS[meets]
    new = count * [9]
    original, put_at_once, moments = ObjectStore.put_over, ObjectStore.put_many, 0
    for moment in range(100):
        server.values.clear()
        array = create(server)
        mine, left = array.store, [moment]

        def meet(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                act(another(server))

        def put_over(store: Any, *words: Any, mine: Any = mine, meet: Any = meet) -> Any:
            if store is not mine:
                return original(store, *words)
            meet()
            made = original(store, *words)
            meet()
            return made

        def put_many(store: Any, *words: Any, mine: Any = mine, meet: Any = meet) -> Any:
            """One after the other, so that others meet each of them."""
            if store is not mine or not words[0]:
                return put_at_once(store, *words)
            made: list[Any] = []
            for each in zip(*words, strict=True):
                meet()
                made += put_at_once(store, *([word] for word in each))
                meet()
            return made

        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "put_over", put_over)
            patch.setattr(ObjectStore, "put_many", put_many)
            array.append(np.array(new, "i4"))
        if left[0] >= 0:
            break
        moments += 1
        assert another(server, "r")[...].tolist() in expected(new), moment
    assert moments >= 4


@pytest.mark.parametrize("is_stored", [False, True])
def test_of_two_who_append_the_same_neither_takes_the_chunks_of_the_other_for_its_own(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    original, moments = Backend.put_tried, 0
    for moment in range(10):
        server.values.clear()
        array = create(server)
        mine, left = array.store, [moment]

        def put_tried(backend: Any, items: Any, mine: Any = mine, left: Any = left) -> Any:
            """The answers; once, none comes, and the other one appends before the value is put again."""
            if backend is not mine._backend:
                return original(backend, items)
            left[0] -= 1
            if left[0] != -1:
                return original(backend, items)
            if is_stored:
                original(backend, items)
            another(server).append([9, 9])
            error = HttpError("the server answers with status code: 503")
            error.is_sent = True
            return [error]

        monkeypatch.setattr(Backend, "put_tried", put_tried)
        error = None
        try:
            array.append(np.array([9, 9], "i4"))
        except StoreError as caught:
            error = caught
        monkeypatch.setattr(Backend, "put_tried", original)
        if left[0] >= 0:
            break
        moments += 1
        # A document that another one was put over does not tell whether this append had put it.
        is_unsure = is_stored and moment == 1
        assert ("the answer to an append was lost" in str(error)) == is_unsure, error
        found = another(server, "r")[...].tolist()
        assert found == [*OLD, 9, 9, 9, 9], moment
    assert moments >= 2


def test_who_has_lost_the_answer_to_an_intent_goes_on_with_it(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, original, lost = create(server), Backend.put_tried, list[str]()

    def put_tried(backend: Any, items: Any) -> Any:
        made = original(backend, items)
        if lost or not items[0][0].endswith(intents.INTENT):
            return made
        lost.append(items[0][0])
        error = HttpError("the server answers with status code: 503")
        error.is_sent = True
        return [error]

    monkeypatch.setattr(Backend, "put_tried", put_tried)
    monkeypatch.setattr(intents, "PATIENCE", 2.0)
    array.resize((3,))
    assert lost
    assert another(server, "r")[...].tolist() == OLD[:3]
    assert not any(key.endswith(intents.INTENT) for key in server.values)


def test_an_append_is_two_rounds(server: BucketServer) -> None:
    array = create(server)
    array.attrs.update(n=1)  # whether the server keeps conditions is asked before the first
    server.expect([f"/b/g/{name}" for name in ("a/c/2", "a/c/3", "a/.zstore-job/record", "zarr.json")])
    server.requests.clear()
    array.append([9, 9, 9, 9])
    assert not server.late
    first, [last] = server.requests[:4], server.requests[4:]
    assert last == ("PUT", "/b/g/a/zarr.json")
    assert sorted(method for method, _ in first) == ["GET", "GET", "PUT", "PUT"]


def test_what_a_killed_append_leaves_is_shown_by_nobody_and_replaced(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ObjectStore.put_over

    def put_over(store: Any, key: str, value: Any, version: Any) -> Any:
        if key.endswith("zarr.json"):
            raise KeyboardInterrupt
        return original(store, key, value, version)

    array = create(server)
    monkeypatch.setattr(ObjectStore, "put_over", put_over)
    with pytest.raises(KeyboardInterrupt):
        array.append(np.full(4, 9, "i4"))
    monkeypatch.setattr(ObjectStore, "put_over", original)
    assert "/b/g/a/c/3" in server.values
    assert another(server, "r")[...].tolist() == OLD
    for change, expected in (
        (lambda a: a.append([8, 8]), [*OLD, 8, 8]),
        (lambda a: a.resize((10,)), [*OLD, 8, 8, -1, -1, -1, -1]),
    ):
        change(another(server))
        assert another(server, "r")[...].tolist() == expected


def test_an_append_to_an_array_that_goes_leaves_nothing(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ObjectStore.put_over
    array = create(server)

    def put_over(store: Any, key: str, value: Any, version: Any) -> Any:
        made = original(store, key, value, version)
        if "/c/" in key:
            with suppress(KeyError):
                del zstore.open_group("s3://b/g", mode="r+", storage_options=server.options())["a"]
        return made

    monkeypatch.setattr(ObjectStore, "put_over", put_over)
    with pytest.raises(NotFoundError):
        array.append(np.full(2, 9, "i4"))
    assert sorted(server.values) == ["/b/g/zarr.json"]


@pytest.mark.parametrize("count", [40, pytest.param(334, marks=pytest.mark.slow)])
def test_three_appenders_lose_nothing(server: BucketServer, count: int) -> None:
    create(server, data=np.zeros(0, "i4"))
    server.faults = {"503": 0.01, "reset": 0.01}
    together = threading.Barrier(3)

    def work(k: int) -> None:
        array = another(server)
        together.wait(60)
        for step in range(count):
            array.append(np.full(2, 1000 * k + step, "i4"))

    with ThreadPoolExecutor(3) as pool:
        [*pool.map(work, range(3))]
    server.faults = {}
    pairs = another(server, "r")[...].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert sorted(pairs[:, 0].tolist()) == [1000 * k + step for k in range(3) for step in range(count)]
    for k in range(3):
        mine = [item for item in pairs[:, 0].tolist() if item // 1000 == k]
        assert mine == sorted(mine)


def test_an_append_is_kept_out_by_other_work(server: BucketServer) -> None:
    array = create(server)
    server.values["/b/g/a/.zstore-job/record"] = b'{"work": "copy"}'
    with pytest.raises(StoreError, match="a copy is unfinished"):
        array.append([9, 9])
    assert another(server, "r")[...].tolist() == OLD


def test_a_group_above_forgets_the_shape_that_it_had(server: BucketServer) -> None:
    array = create(server)
    zstore.consolidate("s3://b/g", storage_options=server.options())
    array.append([9, 9])
    group = zstore.open_group("s3://b/g", mode="r", storage_options=server.options())
    assert group["a"].shape == (6,)
