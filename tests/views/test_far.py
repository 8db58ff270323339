"""Views of arrays in stores with latency: chunks of many arrays are asked for at once, each one time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import ByteRange
from zstore.storage.base import Request, Values
from zstore.storage.memory import MemoryStore

from ..storage.bucket_server import BucketServer

# Seconds after which requests that should be there are not coming any more, however busy the machine is.
HANG = 300
DATA = np.arange(24 * 8 * 12).reshape(24, 8, 12)


class DistantStore(MemoryStore):
    """A store in memory that takes 20 ms for an answer, and has none before `expected` are waited for."""

    in_memory = False
    request_count = 32

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()
        self.waiting = self.most_waiting = self.expected = 0
        self._guard = threading.Condition()

    def get_many(self, requests: Sequence[Request]) -> Values:
        with self._guard:
            self.asked.update(key for key, _ in requests)
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            self._guard.notify_all()
            self._guard.wait_for(lambda: self.most_waiting >= self.expected, HANG)
        time.sleep(0.02)
        with self._guard:
            self.waiting -= 1
        return [self.get(*request) for request in requests]

    def hold(self, is_held: bool) -> None:
        """Answer nobody until it is let go of."""
        with self._guard:
            self.expected = self.most_waiting + 1000 if is_held else 0
            self._guard.notify_all()

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | memoryview | None:
        return super().get(key, byte_range)


READERS: list[Callable[[Any], Any]] = [
    lambda view: view.read(),
    lambda view: asyncio.run(view.read_async()),
]


@pytest.fixture
def store() -> DistantStore:
    return DistantStore()


@pytest.fixture
def days(store: DistantStore) -> list[zstore.Array]:
    group = zstore.create_group(store)
    made = [group.create_array(f"{n}", data=day, chunks=(4, 6)) for n, day in enumerate(DATA + 1)]
    store.asked.clear()
    store.most_waiting = 0
    return made


@pytest.mark.parametrize("read", READERS)
def test_arrays_are_asked_for_at_the_same_time(store: Any, days: list[zstore.Array], read: Any) -> None:
    store.expected = 4
    np.testing.assert_array_equal(read(zstore.stack(days)[::-1, :4]), DATA[::-1, :4] + 1)
    assert len(store.asked) == 24 * 2 and set(store.asked.values()) == {1}
    # An event loop asks a store without awaitable methods on a few threads of its own.
    assert store.most_waiting > 3


@pytest.mark.parametrize("read", READERS)
def test_layers_are_asked_for_at_the_same_time(store: Any, days: list[zstore.Array], read: Any) -> None:
    store.expected = 4
    np.testing.assert_array_equal(read(zstore.overlay(days, nodata=0)), DATA[-1] + 1)
    # Four at first, and none of those that they cover.
    assert store.most_waiting > 3 and len(store.asked) == 4 * 4 and set(store.asked.values()) == {1}
    holes = [np.where(DATA[0] % 24 == n, n + 1, 0) for n in range(24)]
    layers = [zstore.create_array(store, f"h{n}", data=one, chunks=(8, 12)) for n, one in enumerate(holes)]
    store.asked.clear()
    np.testing.assert_array_equal(read(zstore.overlay(layers, nodata=0)), np.max(holes, 0))
    assert len(store.asked) == 24


@pytest.mark.parametrize("read", READERS)
def test_a_computation_asks_once_for_a_chunk(store: Any, days: list[zstore.Array], read: Any) -> None:
    first, last = days[0].lazy, zstore.concat(days[1:3])
    np.testing.assert_array_equal(
        read((last[:8] - first) / (last[:8] + first)), (DATA[1] - DATA[0]) / (DATA[1] + DATA[0] + 2)
    )
    assert len(store.asked) == 2 * 4 and set(store.asked.values()) == {1}
    assert store.most_waiting > 1


def test_a_cancelled_read_asks_no_more(store: Any, days: list[zstore.Array]) -> None:
    async def read() -> None:
        view = zstore.stack([*days, *(day.lazy + 1 for day in days)] * 20)
        store.hold(True)  # so that it does not come to its end before
        task = asyncio.ensure_future(view.read_async())
        while not store.waiting:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.hold(False)
        asked = store.asked.total()
        await asyncio.sleep(0.1)
        assert store.asked.total() <= asked + 32

    asyncio.run(read())


def test_hierarchies_that_are_joined_are_walked_at_the_same_time(store: DistantStore) -> None:
    for number in range(12):
        group = zstore.create_group(store, f"{number}")
        group.create_array("time", data=np.array([number]), dimension_names=("time",))
        group.create_array("t", data=DATA[number : number + 1], dimension_names=("time", "y", "x"))
    store.most_waiting = 0
    joined = zstore.open_group([zstore.open_group(store, f"{number}") for number in range(12)])
    assert store.most_waiting > 3
    np.testing.assert_array_equal(joined["t"][...], DATA[:12])


def test_scenes_of_a_mosaic_are_asked_for_at_the_same_time(store: DistantStore) -> None:
    pytest.importorskip("pyproj", reason="a CRS is read with pyproj (extra 'geo')")
    said = {"proj:code": "EPSG:32632", "spatial:dimensions": ["y", "x"], "_FillValue": 0}
    said["spatial:transform"] = [10, 0, 600000, 0, -10, 5300000]
    stripes = np.repeat(np.arange(8), 8)[:, None] + np.zeros(32, int)
    options: Any = {"chunks": (32, 32), "attributes": said, "dimension_names": ("y", "x")}
    scenes = [
        zstore.create_array(store, f"s{n}", data=np.where(stripes == n, n + 1, 0), **options)
        for n in range(8)
    ]
    store.most_waiting = 0
    np.testing.assert_array_equal(zstore.mosaic(scenes).read(), stripes + 1)
    assert store.most_waiting > 3


def test_a_window_of_a_cube_of_many_scenes_takes_three_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="the package behind the store")
    pytest.importorskip("pyproj", reason="a CRS is read with pyproj (extra 'geo')")
    said: dict[str, Any] = {"spatial:dimensions": ["y", "x"], "proj:code": "EPSG:32632", "_FillValue": 0}
    items = list[Any]()
    with BucketServer() as server:
        variables = {
            "ENDPOINT_URL": server.url,
            "ACCESS_KEY_ID": "k",
            "SECRET_ACCESS_KEY": "s",
            "REGION": "r",
        }
        for name, value in {**variables, "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        for number in range(2_000):
            tile, day = number % 4, number // 4
            affine = [10, 0, 600000 + tile % 2 * 500, 0, -10, 5300000 - tile // 2 * 500]
            place = {"proj:code": "EPSG:32632", "proj:shape": [64, 64], "proj:transform": affine}
            values = [{"data_type": "uint16", "nodata": 0}]
            asset = {**place, "href": f"s3://b/{number}.zarr", "raster:bands": values}
            date = f"{np.datetime64('2000-01-01') + np.timedelta64(day, 'D')}T10:00:00Z"
            item = {"type": "Feature", "properties": {"datetime": date}, "assets": {"red": asset}}
            items.append(item)
            if day == 400:
                zstore.create_array(
                    f"s3://b/{number}.zarr", data=np.full((64, 64), tile + 1, "u2"), chunks=(32, 32),
                    dimension_names=("y", "x"), attributes={**said, "spatial:transform": affine},
                )  # fmt: skip
        cube = zstore.cube(items, bands="red", storage_options={"allow": "s3://b"})
        cube.save("s3://b/cube.view.json")
        documents = [f"/b/{4 * 400 + tile}.zarr/zarr.json" for tile in range(4)]
        # Of the scene above left a chunk, of those beside and below it two, of the last one four.
        under = {0: ["1/1"], 1: ["1/0", "1/1"], 2: ["0/1", "1/1"], 3: ["0/0", "0/1", "1/0", "1/1"]}
        chunks = [f"/b/{4 * 400 + tile}.zarr/c/{chunk}" for tile in under for chunk in under[tile]]
        del server.requests[:]
        server.expect(documents, chunks)
        view: Any = zstore.open("s3://b/cube.view.json")
        made = view[400, 40:110, 40:110].read()
        assert {*np.unique(made)} == {1, 2, 3, 4} and server.late == []
        wanted = ["/b/cube.view.json", *documents, *chunks]
        assert sorted(path for _, path in server.requests) == sorted(wanted)
