"""Pyramids after their finest level has changed: the same as built anew, and no more work than that takes."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, MetadataError, SelectionError, StoreError
from zstore.geo.conventions.read import read_geo
from zstore.jobs import runner
from zstore.storage.memory import MemoryStore

METHODS = ("average", "mode", "med", "nearest", "max", "rms", "bilinear", "cubic", "lanczos", "gauss")


def cells(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 200, shape).astype(dtype)


STEPS = {"standard_name": "forecast_period"}


def make(
    store: object, data: np.ndarray, *, steps: Mapping[str, str] = STEPS, **options: object
) -> zstore.Group:
    """A pyramid whose finest level is its own."""
    root = zstore.create_group(store)
    dims = ("time", "y", "x")[-data.ndim :]
    finest = root.create_group("0")
    finest.create_array("a", data=data, chunks=(1,) * (data.ndim - 2) + (32, 32), dimension_names=dims)
    if data.ndim == 3:
        finest.create_array("time", data=np.arange(len(data)), dimension_names=("time",), attributes=steps)
    for name, size, step in (("y", data.shape[-2], -10), ("x", data.shape[-1], 10)):
        finest.create_array(name, data=100 + step * (np.arange(size) + 0.5), dimension_names=(name,))
    return zstore.build_pyramid(root["0"], root, **{"levels": 3, "chunks": 32, **options})


def chunks_of(store: MemoryStore) -> dict[str, bytes]:
    return {key: bytes(store.get(key) or b"") for key in store.list("") if "/a/c/" in key}


@pytest.mark.parametrize("grid", ["aligned", "gdal"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factors", [2, 3, (1, 2)])
def test_a_region_written_anew(method: str, grid: str, factors: object) -> None:
    data, store = cells((203, 171)), MemoryStore()
    options = {"method": method, "grid": grid, "factors": factors, "nodata": 9}
    pyramid = make(store, data, **options)
    region = (slice(37, 70), slice(101, 108))
    data[region] = cells((33, 7), seed=5)
    pyramid["0/a"][region] = data[region]
    zstore.update_pyramid(pyramid, {"y": region[0], "x": region[1]})
    anew = MemoryStore()
    make(anew, data, **options)
    assert chunks_of(store) == chunks_of(anew)


@pytest.mark.parametrize("method", ["average", "mode", "lanczos", "gauss"])
@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        *((shape, "aligned") for shape in ((230, 171), (203, 180), (260, 260), (150, 171), (64, 32))),
        ((204, 172), "gdal"),  # levels have the lengths that they had, and cells of other sizes
    ],
)
def test_rows_and_columns_more_or_fewer(method: str, shape: tuple[int, int], grid: str) -> None:
    data, store = cells((203, 171)), MemoryStore()
    pyramid = make(store, data, method=method, grid=grid)
    grown = cells(shape, seed=3)
    common = tuple(slice(0, min(a, b)) for a, b in zip(data.shape, shape, strict=True))
    grown[common] = data[common]
    finest = pyramid["0/a"]
    finest.resize(shape)
    finest[...] = grown
    updated = zstore.update_pyramid(pyramid)
    anew = MemoryStore()
    made = make(anew, grown, method=method, grid=grid)
    assert chunks_of(store) == chunks_of(anew)
    assert read_geo(updated) == read_geo(made)
    assert read_geo(updated)[0].affine == (10, 0, 100, 0, -10, 100)
    assert updated.attrs["multiscales"] == made.attrs["multiscales"]
    np.testing.assert_array_equal(updated["2/y"][...], made["2/y"][...])


@pytest.mark.parametrize("steps", [STEPS, {"standard_name": "time", "units": "days since 2020-01-01"}])
def test_a_time_step_more(steps: dict[str, str]) -> None:
    data, store = cells((3, 90, 70)), MemoryStore()
    pyramid = make(store, data, steps=steps)
    before = chunks_of(store)
    pyramid["0/a"].append(cells((1, 90, 70), seed=4))
    pyramid["0/time"].append([3])
    zstore.update_pyramid(pyramid)
    anew = MemoryStore()
    made = make(anew, np.concatenate([data, cells((1, 90, 70), seed=4)]), steps=steps)
    assert pyramid["1/time"].attrs.asdict() == made["1/time"].attrs.asdict()
    assert chunks_of(store) == chunks_of(anew)
    assert list(pyramid["2/time"][...]) == [0, 1, 2, 3]
    assert all(value == chunks_of(store)[key] for key, value in before.items())


class CountingStore(MemoryStore):
    """Remembers how often each key was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()

    def put(self, key, value):
        self.writes[key] += 1
        super().put(key, value)

    def swap(self, changes):
        self.writes.update(key for key, (_, new) in changes.items() if new is not ...)
        return super().swap(changes)


@pytest.mark.parametrize("method", ["average", "bilinear"])
def test_only_chunks_that_depend_on_the_region_are_written(method: str) -> None:
    store = CountingStore()
    pyramid = make(store, cells((512, 512)), method=method, memory=400_000)
    region = (slice(130, 170), slice(200, 210))
    pyramid["0/a"][region] = 7
    store.writes.clear()
    heard: list[tuple[int, int]] = []
    zstore.update_pyramid(pyramid, region, progress=lambda *counts: heard.append(counts))
    # The units that hold the region: not the whole, but where windows reach far.
    assert 40 * 10 <= heard[-1][0] == heard[-1][1] < 512 * 512 * (1 if method == "average" else 2)
    written = {key: count for key, count in store.writes.items() if "/c/" in key}
    # Windows of bilinear reach one cell of the result further: at level 2 into the chunk above.
    above = {"2/a/c/0/1": 1} if method == "bilinear" else {}
    assert written == {"1/a/c/2/3": 1, "2/a/c/1/1": 1, "3/a/c/0/0": 1, **above}


def test_the_levels_tell_of_an_update_and_the_next_one_makes_up_for_it(monkeypatch) -> None:
    data, store = cells((203, 171)), MemoryStore()
    pyramid = make(store, data)
    former = pyramid["1"].attrs["zstore"]["build"]
    data[:50, :40], data[150:, 150:] = 3, 4
    pyramid["0/a"][...] = data

    def fail(*args: object, **options: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StoreError, match="the disk is full"):
        patched.setattr("zstore.geo.pyramid.build.run_step", fail)
        zstore.update_pyramid(pyramid, (slice(0, 50), slice(0, 40)))
    halfway = zstore.open_group(store, mode="r")
    assert {halfway[level].attrs["zstore"]["state"] for level in "123"} == {"updating"}
    assert "zstore" not in halfway["0"].attrs
    updated = zstore.update_pyramid(pyramid, (slice(150, None), slice(150, None)))
    builds = [updated[level].attrs["zstore"] for level in "123"]
    assert builds[0] == builds[1] == builds[2] == {"build": updated.attrs["zstore"]["pyramid"]["build"]}
    assert builds[0]["build"] != former
    assert "state" not in updated.attrs["zstore"]["pyramid"]
    anew = MemoryStore()
    make(anew, data)
    assert chunks_of(store) == chunks_of(anew)


LEFT = {"y": slice(0, 512)}


def grow_it(pyramid: Path) -> None:
    zstore.open_array(pyramid / "0/a", mode="r+").append(cells((40, 512), seed=7))
    zstore.open_array(pyramid / "0/y", mode="r+").append(100 - 10 * (np.arange(512, 552) + 0.5))


def bring_back(pyramid: Path) -> None:
    """Have the chunks that were there before, as a power cut may."""
    for file in sorted((pyramid / "before").rglob("*")):
        if file.is_file():
            file.replace(pyramid / file.relative_to(pyramid / "before"))


def describe_anew(pyramid: Path) -> None:
    document = (pyramid / "0/a/zarr.json").read_text()
    (pyramid / "0/a/zarr.json").write_text(document.replace('"fill_value": 0', '"fill_value": 1'))


@pytest.mark.parametrize(
    ("meanwhile", "again", "is_left"),
    [
        (lambda pyramid: None, {"region": LEFT, "resume": True}, True),
        (lambda pyramid: None, {"resume": True}, True),
        (lambda pyramid: None, {"region": LEFT}, False),
        (lambda pyramid: None, {"region": {"y": slice(0, 511)}, "resume": True}, False),
        (lambda pyramid: None, {"region": LEFT, "resume": True, "memory": 60_000}, False),
        (bring_back, {"region": LEFT, "resume": True}, False),
        (grow_it, {"resume": True}, False),
        (describe_anew, {"region": LEFT, "resume": True}, None),
    ],
)
def test_an_interrupted_update_goes_on(
    meanwhile: Callable[[Path], None], again: dict, is_left: bool | None, tmp_path: Path, monkeypatch
) -> None:
    """After 11 of 16 units: the others are made, or all where it is not the same, or the source is not."""
    options = {"method": "max", "memory": 400_000}
    make(tmp_path, cells((512, 512)), **options)
    for level in "123":
        shutil.copytree(tmp_path / level / "a/c", tmp_path / "before" / level / "a/c", copy_function=os.link)
    zstore.open_array(tmp_path / "0/a", mode="r+")[...] = cells((512, 512), seed=1)
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    made, carry_out = list[object](), runner._make

    def fail_after(count: int) -> None:
        def make_one(sent: object, unit: object) -> object:
            if len(made) == count:
                raise StoreError("the disk is full")
            made.append(unit)
            return carry_out(sent, unit)

        made.clear()
        monkeypatch.setattr(runner, "_make", make_one)

    fail_after(11)
    with pytest.raises(StoreError, match="the disk is full"):
        zstore.update_pyramid(tmp_path, LEFT, memory=400_000)
    meanwhile(tmp_path)
    fail_after(-1)
    if is_left is None:
        with pytest.raises(ChangedError, match=r"written since the job began.*0/a"):
            zstore.update_pyramid(tmp_path, **{"memory": 400_000, **again})
        del again["resume"]
    updated = zstore.update_pyramid(tmp_path, **{"memory": 400_000, **again})
    assert len(made) <= 16 - 11 + 3 if is_left else len(made) >= 16, len(made)
    anew = make(tmp_path / "anew", updated["0/a"][...], **options)
    for level in "123":
        files = {f.relative_to(tmp_path): f for f in (tmp_path / level / "a/c").rglob("*") if f.is_file()}
        assert files and {name: file.read_bytes() for name, file in files.items()} == {
            name: (tmp_path / "anew" / name).read_bytes() for name in files
        }
        assert updated[f"{level}/a"].shape == anew[f"{level}/a"].shape
    assert not zstore.verify(tmp_path).unfinished


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("shape", [(107, 139), (90, 120)])
def test_a_source_that_is_as_long_as_before_an_interrupted_update(
    shape: tuple[int, int], is_known: bool, monkeypatch
) -> None:
    """The levels have been made for another length since; records of older updates do not say which."""
    data, store = cells((97, 127)), MemoryStore()
    pyramid = make(store, data)
    finest = pyramid["0/a"]

    def fail(*args: object, **options: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StoreError, match="the disk is full"):
        patched.setattr("zstore.geo.pyramid.build._finish", fail)
        finest.resize(shape)
        zstore.update_pyramid(pyramid)
    if not is_known:
        job = json.loads(bytes(store.get(".zstore-job/record")))
        del job["plan"]["shapes"]
        store.put(".zstore-job/record", json.dumps(job).encode())
    finest.resize(data.shape)
    finest[...] = data
    updated, anew = zstore.update_pyramid(pyramid, resume=True), MemoryStore()
    made = make(anew, data)
    assert chunks_of(store) == chunks_of(anew)
    assert [updated[f"{n}/a"].shape for n in "123"] == [made[f"{n}/a"].shape for n in "123"]


def test_from_a_source_elsewhere_and_with_its_copy(tmp_path: Path) -> None:
    data = cells((130, 90))
    source = zstore.create_array(tmp_path / "s" / "a", data=data, chunks=32, dimension_names=("y", "x"))
    for copy_base in (False, True):
        name = f"p{copy_base}"
        made = zstore.build_pyramid(source, tmp_path / name, levels=2, copy_base=copy_base)
        source[3:9, 40:50] = data[3:9, 40:50] = 5 + copy_base
        region = {"y": slice(3, 9), "x": slice(40, 50)}
        zstore.update_pyramid(tmp_path / name, region, source=source)
        anew = zstore.build_pyramid(source, tmp_path / f"{name}-anew", levels=2, copy_base=copy_base)
        for level in made:
            np.testing.assert_array_equal(made[f"{level}/a"][...], anew[f"{level}/a"][...])
    # A copy that has grown itself is the finest level, and not waited for.
    made["0/a"].append(cells((4, 90)))
    grown = zstore.update_pyramid(tmp_path / "pTrue")
    assert grown["1/a"].shape == (67, 45) and "state" not in grown["0"].attrs["zstore"]
    (tmp_path / "s").rename(tmp_path / "moved")
    source = zstore.open_array(tmp_path / "moved" / "a", mode="r+")
    zstore.update_pyramid(tmp_path / "pFalse", region, source=source)
    source[9] = 1
    again = zstore.update_pyramid(tmp_path / "pFalse", {"y": 9}, source=source)
    np.testing.assert_array_equal(again["1/a"][...], zstore.downsample(source[...], (2, 2)))


def test_a_source_beside_the_pyramid_in_one_store_needs_no_name() -> None:
    """Where the source was found last, it is looked for next time, as long as that is in the same store."""
    store = MemoryStore("one")
    data = cells((60, 50))
    group = zstore.create_group(store)
    source = group.create_array("a", data=data, chunks=32, dimension_names=("y", "x"))
    made = zstore.build_pyramid(source, group.create_group("p"), levels=1, copy_base=False)
    source[3] = data[3] = 9
    zstore.update_pyramid(made, {"y": 3})
    np.testing.assert_array_equal(made["1/a"][...], zstore.downsample(data, (2, 2)))


def test_a_dry_run_tells_what_a_refresh_would_make() -> None:
    """Nothing while the source is as it was, which is no reason to return the pyramid."""
    source, target = zstore.create_group(MemoryStore()), MemoryStore()
    data = source.create_array("a", data=cells((64, 64)), chunks=32, dimension_names=("y", "x"))
    made = zstore.build_pyramid(source, target, levels=1, resume=True)

    def counts() -> list[int]:
        calls = (
            lambda **words: zstore.build_pyramid(source, target, levels=1, **words),
            lambda **words: zstore.update_pyramid(made, source=source, **words),
        )
        return [call(resume=True, dry_run=True).unit_count for call in calls]

    assert counts() == [0, 0]
    data[0, 0] = 7
    assert counts() == [1, 1]


def test_refusals() -> None:
    pyramid = make(MemoryStore(), cells((64, 64)), levels=1)
    for region, message in (
        ((slice(0, 5),), "region has 1 slices; expected 2"),
        ({"y": slice(0, 9, 2)}, r"region has slice\(0, 9, 2\) for 'y'"),
        ({"y": 64}, "region has 64 for 'y'"),
        ({"z": 0}, "region names z; the dimensions are x, y"),
    ):
        with pytest.raises(SelectionError, match=message):
            zstore.update_pyramid(pyramid, region)
    with pytest.raises(MetadataError, match="arrays b are not both"):
        zstore.update_pyramid(pyramid, arrays=["b"])
    for data in (cells((2, 64, 64)), cells((64, 64), "f4")):
        other = zstore.create_group(MemoryStore())
        other.create_array("a", data=data, chunks=32, dimension_names=("t", "y", "x")[-data.ndim :])
        with pytest.raises(MetadataError, match=r"'a' has \d dimensions .*; expected 2 and uint16, as"):
            zstore.update_pyramid(pyramid, source=other)
    with pytest.raises(MetadataError, match="memory is 100 bytes; expected at least"):
        zstore.update_pyramid(pyramid, memory=100)
    assert "state" not in pyramid.attrs["zstore"]["pyramid"] and "state" not in pyramid["1"].attrs["zstore"]
    del pyramid.attrs["zstore"]
    with pytest.raises(MetadataError, match="nothing says how this pyramid was built"):
        zstore.update_pyramid(pyramid)
