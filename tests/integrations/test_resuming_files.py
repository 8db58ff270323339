"""Files made Zarr: interrupted and gone on with, in any order, by others; and of files that change."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import ChangedError, MetadataError, StoreError, UnsupportedError
from zstore.geo.rasters import files as files_module
from zstore.geo.rasters import netcdf, netcdf_to_zarr, raster, raster_to_zarr, rasters_to_zarr
from zstore.geo.rasters.hdf5_headers import Row
from zstore.jobs.source import MADE
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

KINDS = ["raster", "pyramid", "time", "mosaic", "netcdf", "classic"]
PLACE = re.compile(rb'"(source|build)": "[^"]*"')
CELLS = np.arange(90 * 70, dtype="u2").reshape(90, 70) % 251


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many units of little."""
    monkeypatch.setattr("zstore.base.boxes.BLOCK_SIZE", 2000)
    monkeypatch.setattr(files_module, "WINDOW_SIZE", 1000)


def write_raster(path: Path, cells: Any, corner: tuple[int, int] = (0, 0)) -> Path:
    rasterio = pytest.importorskip("rasterio", reason="rasters need rasterio (extra 'raster')")
    if path.exists():
        return path
    place = rasterio.Affine(10, 0, 600_000 + 10 * corner[1], 0, -10, 5_000_000 - 10 * corner[0])
    height, width = cells.shape
    kept = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": cells.dtype}
    with rasterio.open(path, "w", **kept, crs="EPSG:32631", transform=place, nodata=0) as file:
        file.write(cells, 1)
    return path


def prepare(kind: str, place: Path) -> tuple[list[Path], Any]:
    """(files, what makes a Zarr of them at a target)."""
    if kind in ("raster", "pyramid"):
        file = write_raster(place / "a.tif", CELLS)
        levels = 0 if kind == "raster" else 2
        return [file], partial(raster_to_zarr, file, chunks=16, levels=levels)
    if kind == "levels in time":
        days, make = prepare("time", place)
        return days, partial(make, levels=2)
    if kind == "time":
        days = [write_raster(place / f"s_202001{n:02}.tif", CELLS[:20, :20] + n) for n in range(1, 25)]
        return days, partial(rasters_to_zarr, days, stack="time", chunks=16)
    if kind == "mosaic":
        # They begin within chunks, and lie on each other.
        corners = [(y, x) for y in (0, 23, 51) for x in (0, 30)]
        parts = [CELLS[y : y + 35, x : x + 40] + np.uint16(n) for n, (y, x) in enumerate(corners)]
        for part in parts:
            part[::7] = 0
        files = [
            write_raster(place / f"m{n}.tif", part, corner)
            for n, (part, corner) in enumerate(zip(parts, corners, strict=True))
        ]
        return files, partial(rasters_to_zarr, files, stack="mosaic", chunks=16)
    file = place / "a.nc"
    if file.exists():
        return [file], partial(netcdf_to_zarr, file, chunks=16)
    if kind == "classic":
        library = pytest.importorskip("netCDF4", reason="NetCDF classic needs netCDF4 (extra 'netcdf')")
        with library.Dataset(file, "w", format="NETCDF3_CLASSIC") as made:
            fill(made)
    else:
        library = pytest.importorskip("h5netcdf.legacyapi", reason="NetCDF-4 needs h5netcdf (extra 'netcdf')")
        with library.Dataset(file, "w") as made:
            fill(made)
    return [file], partial(netcdf_to_zarr, file, chunks=16)


def fill(made: Any) -> None:
    for name, length in (("y", 90), ("x", 70)):
        made.createDimension(name, length)
    for name in ("t", "u"):
        made.createVariable(name, "i4", ("y", "x"))[:] = CELLS.astype("i4")
    for number in range(12):
        made.createVariable(f"small{number}", "i4", ("x",))[:] = np.arange(70) + number
    made.createVariable("one", "f8", ())[...] = 7.5


def values(store: Any) -> dict[str, bytes]:
    """Every value, but for what a pyramid says of where it lies: each target is another place."""
    stored = {key: bytes(store.get(key) or b"") for key in store.list("") if MADE not in key}
    return {key: PLACE.sub(rb'"\1": ""', value) for key, value in stored.items()}


class Failing(MemoryStore):
    """Takes so many values, and no more."""

    left = 1 << 60

    def put(self, key: str, value: Any) -> None:
        self.change(key)
        super().put(key, value)

    def swap(self, changes: Any) -> bool:
        for key in [*changes][-1:]:
            self.change(key)
        return super().swap(changes)

    def change(self, key: str) -> None:
        if self.left <= 0:
            raise StoreError("no more", key=key)
        self.left -= 1


class Keeping(Failing):
    """Lets go of no more values, either."""

    def delete(self, key: str) -> None:
        self.change(key)
        super().delete(key)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_interrupted_anywhere_comes_out_the_same(kind, tmp_path, monkeypatch):
    files, make = prepare(kind, tmp_path)
    whole = Failing()
    make(whole)
    whole.left = 0
    expected, chance = values(whole), random.Random(5)
    opened = list[str]()
    plain = netcdf.open_netcdf if "netcdf" in kind or kind == "classic" else raster.open_raster
    room = netcdf if plain is netcdf.open_netcdf else raster
    monkeypatch.setattr(room, plain.__name__, lambda path, **n: opened.append(str(path)) or plain(path, **n))
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", 0)
    target = Failing()
    for attempt in range(1000):
        # Each time it comes a little further; documents are written all at once.
        target.left = chance.randrange(2, 6) + attempt * len(expected) // 8
        opened.clear()
        try:
            made = make(target, resume=True)
            break
        except StoreError as error:
            assert "no more" in str(error)
        target.left = 1 << 60
        assert find_unfinished(target, "") or not values(target)
    assert values(target) == expected
    assert sorted(made) == sorted(zstore.open_group(whole, mode="r"))
    assert not find_unfinished(target, "")
    assert files


def test_a_pyramid_that_was_interrupted_when_its_levels_were_there_goes_on(tmp_path, monkeypatch):
    # As many values are put however long that takes.
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", 1e9)
    _, make = prepare("pyramid", tmp_path)
    whole = Failing()
    make(whole)
    put_count = (1 << 60) - whole.left
    for left in range(put_count - 14, put_count - 2):
        target = Failing()
        target.left = left
        with pytest.raises(StoreError, match="no more"):
            make(target)
        target.left = 1 << 60
        make(target, resume=True)
        assert values(target) == values(whole)


@pytest.mark.parametrize("kind", ["raster", "time", "netcdf"])
def test_files_and_arguments_are_those_of_before(kind, tmp_path):
    files, make = prepare(kind, tmp_path)
    target = Failing()
    target.left = 20
    with pytest.raises(StoreError, match="no more"):
        make(target)
    target.left = 1 << 60
    with pytest.raises(StoreError, match=r"is unfinished; go on with: .*resume=True"):
        make(target)
    with pytest.raises(MetadataError, match="with other arguments was interrupted here: arrays"):
        make(target, resume=True, chunks=8)
    status = files[-1].stat()
    os.utime(files[-1], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ChangedError, match=rf"was written since .*{files[-1].name}"):
        make(target, resume=True)
    os.utime(files[-1], ns=(status.st_atime_ns, status.st_mtime_ns))
    make(target, resume=True)
    expected = MemoryStore()
    make(expected)
    assert values(target) == values(expected)


def test_a_file_goes_on_where_nothing_was_known_of_variables_like_its_own(tmp_path):
    library = pytest.importorskip("h5netcdf.legacyapi", reason="NetCDF-4 needs h5netcdf (extra 'netcdf')")
    with library.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 77)  # no other file of the tests has variables of this length
        for name, dtype in (("a", "i4"), ("b", "i4"), ("c", "f4")):
            file.createVariable(name, dtype, ("x",))[:] = np.arange(77)
    make = partial(netcdf_to_zarr, tmp_path / "a.nc", chunks=16)
    target, expected = Failing(), MemoryStore()
    target.left = 10
    with pytest.raises(StoreError, match="no more"):
        make(target)
    target.left = 1 << 60
    make(target, resume=True)
    make(expected)
    assert values(target) == values(expected)


@pytest.mark.parametrize("kind", ["raster", "time", "netcdf"])
def test_a_file_that_is_written_while_it_is_read_makes_no_nodes(kind, tmp_path, monkeypatch):
    _, make = prepare(kind, tmp_path)
    opened = list[Any]()

    def late(plain: Any) -> Any:
        def call(*arguments: Any) -> Any:
            path = arguments[-1]
            opened.append(path)
            if len(opened) == 3:
                os.utime(path, ns=(0, Path(path).stat().st_mtime_ns + 1))
            return plain(*arguments)

        return call

    target = MemoryStore()
    with monkeypatch.context() as patch:
        for kept, name in ((files_module.OpenFiles, "open"), (Row, "read")):
            patch.setattr(kept, name, late(getattr(kept, name)))
        with pytest.raises(ChangedError, match="was written while it was read"):
            make(target)
    assert "zarr.json" not in {key.rpartition("/")[2] for key in target.list()}
    with pytest.raises(ChangedError, match="was written since"):
        make(target, resume=True)
    make(target, overwrite=True)
    expected = MemoryStore()
    make(expected)
    assert values(target) == values(expected)


def test_arrays_of_a_group_are_replaced_wherever_that_was_interrupted(tmp_path, monkeypatch):
    """Nothing that was below them is left, and no mark; who does not overwrite is told of it."""
    monkeypatch.setattr(files_module, "WINDOW_SIZE", 1 << 20)
    _, make_new = prepare("netcdf", tmp_path)
    make = partial(make_new, overwrite=True)

    def begin(left: int) -> tuple[Keeping, zstore.Group]:
        target = Keeping()
        group = zstore.create_group(target).create_group("g")
        group.create_array("t", data=np.full(60, 9, "i4"), chunks=20)
        group.create_group("u").create_array("c", data=np.arange(3))
        target.left = left
        return target, group

    whole, group = begin(1 << 60)
    make(group)
    for left in range(1, 16):
        target, group = begin(left)
        with pytest.raises(StoreError, match="no more"):
            make(group)
        target.left = 1 << 60
        if left > 13:
            with pytest.raises(StoreError, match="is unfinished; go on with: "):
                make_new(zstore.open_group(target, "g"))
        make(zstore.open_group(target, "g"), resume=True)
        assert values(target) == values(whole)


def test_what_cannot_be_put_into_a_group_is_said_before_anything_begins(tmp_path):
    library = pytest.importorskip("h5netcdf.legacyapi", reason="NetCDF-4 needs h5netcdf (extra 'netcdf')")
    with library.Dataset(tmp_path / "a.nc", "w") as file:
        file.createGroup("below")
    target = MemoryStore()
    group = zstore.create_group(target)
    group.create_array("below", data=np.arange(3))
    before = values(target)
    with pytest.raises(MetadataError, match="'below' is an array, expected a group"):
        netcdf_to_zarr(tmp_path / "a.nc", group, overwrite=True)
    assert values(target) == before


@pytest.mark.parametrize("kind", ["mosaic", "netcdf"])
def test_units_are_made_anywhere_in_any_order_and_twice(kind, tmp_path, monkeypatch):
    _, make = prepare(kind, tmp_path)
    make(LocalStore(tmp_path / "expected"))
    plans, run = [], zstore.jobs.runner.Runner.run

    def disordered(self, plan, name, take, **options):
        units = [*plan.units()] * 2
        random.Random(1).shuffle(units)
        for unit in units:
            pickle.loads(pickle.dumps(plan)).make(unit)
        plans.append(len(units) // 2)
        run(self, plan, name, take, **options)

    monkeypatch.setattr(zstore.jobs.runner.Runner, "run", disordered)
    make(LocalStore(tmp_path / "disordered"))
    monkeypatch.undo()
    with ProcessPoolExecutor(1) as pool:
        make(LocalStore(tmp_path / "elsewhere"), executor=pool)
    assert plans[0] > 3
    expected = values(LocalStore(tmp_path / "expected"))
    assert values(LocalStore(tmp_path / "disordered")) == expected
    assert values(LocalStore(tmp_path / "elsewhere")) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_made_in_parts(kind, tmp_path, monkeypatch):
    files, make = prepare(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "expected")
    [given], plan, target = make.args, tmp_path / "plan.json", tmp_path / "made"
    names = [file.name for file in given] if isinstance(given, list) else given.name
    count = zstore.plan_units(plan, make.func, names, "made", **make.keywords)
    said = json.loads(plan.read_bytes())
    for file in files:
        status = file.stat()
        assert str((str(file), status.st_size, status.st_mtime_ns)) in said["versions"][str(file)]
    assert count == said["first"]["unit_count"] > 3
    monkeypatch.chdir("/")
    with pytest.raises(StoreError, match="of 2 parts, 1, 2 are not whole"):
        zstore.finish_units(plan, part_count=2)
    assert [zstore.run_units(plan, part, 2) for part in (2, 2, 1)] == [(count + 1) // 2] * 2 + [0]
    assert not (target / "zarr.json").exists()
    status = files[0].stat()
    os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ChangedError, match="was written since"):
        zstore.run_units(plan, 1, 2)
    os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    made = zstore.finish_units(plan)
    assert sorted(made) == sorted(zstore.open_group(tmp_path / "expected", mode="r"))
    assert values(LocalStore(target)) == values(LocalStore(tmp_path / "expected"))
    with pytest.raises(StoreError, match="not under way"):
        zstore.run_units(plan, 1, 2)
    plan.unlink()
    for function, place in ((make.func, made), (zstore.open, made)):
        with pytest.raises(UnsupportedError, match=r"the place of a new one|cannot be made in parts"):
            zstore.plan_units(plan, function, *make.args, place, **make.keywords)


@pytest.mark.parametrize("kind", ["raster", "netcdf"])
def test_windows_without_anything_in_them_are_not_read_again(kind, tmp_path, monkeypatch):
    """All of them are done when it is interrupted, and most are empty."""
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    monkeypatch.setattr("zstore.jobs.journal.PAUSE", -1)
    cells = np.zeros((90, 70), "i4")
    cells[20:25, 40:50] = CELLS[20:25, 40:50]
    monkeypatch.setattr(sys.modules[__name__], "CELLS", cells)
    _, make = prepare(kind, tmp_path)
    target = tmp_path / "made"
    with monkeypatch.context() as failing:
        failing.setattr(files_module, "publish_nodes", lambda *nodes, **how: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(target)
    before, read = values(LocalStore(target)), list[Any]()
    real = files_module.FileWindows.make
    monkeypatch.setattr(
        files_module.FileWindows, "make", lambda self, unit: read.append(unit) or real(self, unit)
    )
    chunks = sorted(key for key in before if re.search(r"(band_1|t)/c/", key))
    assert 0 < len(chunks) < 12
    # What is gone of what was stored is made again, and no more than that.
    (target / chunks[0]).unlink()
    make(target, resume=True)
    assert len(read) == 1
    assert {key: before[key] for key in chunks} == {
        key: value for key, value in values(LocalStore(target)).items() if key in chunks
    }


def meant(store: Any) -> dict[str, Any]:
    """Every value; documents as JSON, whose members may have another order where they were written again."""
    return {key: json.loads(v) if key.endswith("zarr.json") else v for key, v in values(store).items()}


def rewrite(file: Path, cells: Any, corner: tuple[int, int] = (0, 0)) -> None:
    file.unlink()
    write_raster(file, cells, corner)


def change(kind: str, place: Path) -> tuple[Any, set[str]]:
    """(the same call after some of its files have changed, the names of those that are to be read)."""
    files, make = prepare(kind, place)
    if kind == "netcdf":
        library = pytest.importorskip("h5netcdf.legacyapi")
        with library.Dataset(files[0], "a") as file:
            file.variables["t"][20:30] = 77
        return make, {"a.nc"}
    if kind in ("raster", "pyramid"):
        rewrite(files[0], CELLS + np.uint16(1))
        return make, {"a.tif"}
    if kind == "mosaic":
        # One has other cells, and one in a corner is gone, and with it all that only it had.
        rewrite(files[4], np.full((35, 40), 9, "u2"), (51, 0))
        gone = files.pop(1).name
        return partial(make.func, files, **make.keywords), {file.name for file in files} - {gone}
    # One moment is new, one has changed, one is gone.
    rewrite(files[3], CELLS[:20, :20] + np.uint16(99))
    files.pop()
    files.insert(0, write_raster(place / "s_20200201.tif", CELLS[:20, :20] + np.uint16(50)))
    return partial(make.func, files, **make.keywords), {"s_20200201.tif", "s_20200104.tif"}


@pytest.mark.parametrize("kind", ["raster", "pyramid", "time", "levels in time", "mosaic", "netcdf"])
def test_every_night_what_has_changed_is_read_again_and_nothing_else(kind, tmp_path, monkeypatch):
    _, make = prepare(kind, tmp_path)
    target, read = Failing(), list[str]()
    plain = files_module.OpenFiles.open
    monkeypatch.setattr(
        files_module.OpenFiles,
        "open",
        lambda self, opener, path: read.append(Path(path).name) or plain(self, opener, path),
    )
    make(target, resume=True)
    before, count, _ = values(target), len(read), read.clear()
    assert sorted(make(target, resume=True)) and not read and values(target) == before
    again, names = change(kind, tmp_path)
    # Interrupted anywhere, it comes out the same.
    for left in range(4, 16 if kind != "pyramid" else 52, 4):
        target.left = left
        with pytest.raises(StoreError, match="no more"):
            again(target, resume=True)
        assert find_unfinished(target, "")
    target.left = 1 << 60
    read.clear()
    again(target, resume=True)
    assert set(read) <= names and (len(names) == 1 or len(read) < count)
    expected = MemoryStore()
    again(expected)
    assert values(target) != before
    assert meant(target) == meant(expected)
    read.clear()
    again(target, resume=True)
    assert not read
    nodes = again(target, resume=True).members(None)
    array = next(node for _, node in nodes if isinstance(node, zstore.Array))
    array.attrs["mine"] = 1
    with pytest.raises(ChangedError, match="was written to since"):
        again(target, resume=True)


def test_levels_without_a_record_of_how_they_were_built_are_told_of(tmp_path):
    files, make = prepare("pyramid", tmp_path)
    group = make(MemoryStore(), resume=True)
    del group.attrs["zstore"]
    rewrite(files[0], CELLS + np.uint16(1))
    with pytest.raises(MetadataError, match="nothing says how this pyramid was built"):
        make(group.store, resume=True)


@pytest.mark.parametrize("kind", ["time", "raster"])
def test_what_cannot_be_made_again_in_part_is_refused(kind, tmp_path):
    files, make = prepare(kind, tmp_path)
    store = MemoryStore()
    # Other arrays may lie on the coordinates of a group that was there.
    target = zstore.create_group(store) if kind == "raster" else store
    make(target, resume=True)
    before = values(store)
    make(target, resume=True)
    assert values(store) == before
    if kind != "time":
        rewrite(files[0], CELLS + np.uint16(1))
        with pytest.raises(ChangedError, match="expected overwrite=True"):
            make(target, resume=True)
    else:
        others = [write_raster(tmp_path / f"s_202103{n:02}.tif", CELLS[:20, :20]) for n in (1, 2)]
        with pytest.raises(StoreError, match="an array or group is there already"):
            rasters_to_zarr(others, target, stack="time", chunks=16, resume=True)
        with pytest.raises(StoreError, match="an array or group is there already"):
            make(target, resume=True, chunks=8)
    assert values(store) == before


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.integrations import test_resuming_files as mine
import zstore.base.boxes
zstore.base.boxes.BLOCK_SIZE, mine.files_module.WINDOW_SIZE = 2000, 1000
_, make = mine.prepare({kind!r}, Path({place!r}))
make(sys.argv[1], resume=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_moment_it_comes_out_the_same(kind, seed, tmp_path):
    files, make = prepare(kind, tmp_path)
    make(tmp_path / "expected")
    kept = {file: file.read_bytes() for file in files}
    script = KILLED.format(root=str(Path(__file__).parents[2]), kind=kind, place=str(tmp_path))
    chance, target = random.Random(seed), tmp_path / "made"
    for _ in range(4):
        began = subprocess.Popen([sys.executable, "-c", script, str(target)], stderr=subprocess.PIPE)
        while began.poll() is None and not (target / ".zstore-job" / "record").exists():
            time.sleep(0.01)
        time.sleep(chance.random() * 0.4)
        began.send_signal(signal.SIGKILL)
        began.communicate()
        if (target / "zarr.json").exists() and not (target / ".zstore-job" / "record").exists():
            break
    else:
        make(target, resume=True)
    assert {file: file.read_bytes() for file in files} == kept
    assert values(LocalStore(target)) == values(LocalStore(tmp_path / "expected"))
