"""Views are sources of jobs: converted, rechunked, reduced, and made into pyramids as stored arrays are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError, StoreError
from zstore.jobs.source import MADE

ROOT = Path(__file__).parents[2]
DAYS = np.random.default_rng(0).integers(0, 200, (6, 40, 70)).astype("i2")


@pytest.fixture
def days(tmp_path: Path) -> list[zstore.Array]:
    group = zstore.create_group(tmp_path / "days.zarr")
    return [group.create_array(f"{n}", data=day, chunks=(20, 30)) for n, day in enumerate(DAYS)]


def test_chunks_of_views_are_those_of_their_sources(days: list[zstore.Array]) -> None:
    assert zstore.stack(days).write_chunk_sizes == ((1,) * 6, (20, 20), (30, 30, 10))
    assert zstore.concat(days[:2]).chunks == (20, 30)
    uneven = zstore.concat([days[0].lazy[5:], days[1]])[::-2, 40:]
    assert uneven.write_chunk_sizes == ((10, 10, 10, 8), (20, 10)) and uneven.chunks == (10, 20)
    assert (days[0].lazy + 1.5).T.chunks == (30, 20)
    assert zstore.concat([np.zeros(0)]).write_chunk_sizes == ((),)


def test_a_view_is_converted_and_rechunked(days: list[zstore.Array], tmp_path: Path) -> None:
    view = zstore.stack(days).T[::-1] * 0.5
    made = zstore.convert(view, tmp_path / "made.zarr", chunks=(7, 40, 6), memory=1 << 20, check=True)
    assert isinstance(made, zstore.Array) and made.chunks == (7, 40, 6)
    np.testing.assert_array_equal(made[...], DAYS.T[::-1] * 0.5)


def test_a_view_is_reduced(days: list[zstore.Array], tmp_path: Path) -> None:
    view = zstore.stack(days)
    np.testing.assert_array_equal(view.reduce("max", axis=0), DAYS.max(0))
    made = zstore.reduce(np.where(view > 100, view, 0), "sum", 0, out=tmp_path / "sum")
    np.testing.assert_array_equal(made[...], np.where(DAYS > 100, DAYS, 0).sum(0))


def test_a_view_is_made_into_a_pyramid(tmp_path: Path) -> None:
    data = np.arange(600 * 500, dtype="f4").reshape(600, 500)
    array = zstore.create_array(tmp_path / "a.zarr", data=data, chunks=(128, 128))
    view = zstore.concat([array.lazy[:300], array.lazy[300:]]) * 2
    of_view = zstore.build_pyramid(view, tmp_path / "view.zarr", copy_base=True)
    doubled = zstore.create_array(tmp_path / "doubled.zarr", data=data * 2, chunks=(128, 128))
    of_array = zstore.build_pyramid(doubled, tmp_path / "array.zarr", copy_base=True)
    for level in ("0", "1"):
        [one], [other] = ([*group[level].arrays()] for group in (of_view, of_array))
        np.testing.assert_array_equal(one[1][...], other[1][...])


def test_views_go_to_other_processes(days: list[zstore.Array], tmp_path: Path) -> None:
    view = zstore.stack(days) + 1
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        made = zstore.convert(view, tmp_path / "made.zarr", chunks=(6, 10, 10), executor=pool)
    assert isinstance(made, zstore.Array)
    np.testing.assert_array_equal(made[...], DAYS + 1)


class Interrupted(Exception):
    """Raised in the middle of a job."""


calls: list[int] = []


def until_stopped(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    calls.append(1)
    if len(calls) == 5:
        raise Interrupted
    return block + 1


def test_an_interrupted_job_of_a_view_goes_on(days: list[zstore.Array], tmp_path: Path) -> None:
    def convert(**words: Any) -> Any:
        view = zstore.stack(days).map(until_stopped, dtype="i2")
        return zstore.convert(view, tmp_path / "made.zarr", memory=10_000, **words)

    calls.clear()
    with pytest.raises(Interrupted):
        convert()
    calls.extend([1] * 5)
    made = convert(resume=True)
    np.testing.assert_array_equal(made[...], DAYS + 1)
    first = len(calls) - 10
    calls.clear()
    calls.extend([1] * 5)
    zstore.convert(zstore.stack(days).map(until_stopped, dtype="i2"), tmp_path / "again", memory=10_000)
    assert first < len(calls) - 5  # units that were done are not made again
    calls.clear()
    convert(resume=True)
    assert calls == []  # nothing has changed
    days[3][0, 0] = -7
    with pytest.raises(ChangedError, match="source was written to since"):
        convert(resume=True)
    calls.extend([1] * 5)
    assert convert(overwrite=True)[3, 0, 0] == -6


def until_killed(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    calls.append(1)
    if len(calls) == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return block + 1


def store_mosaic(place: Path, target: str, **words: Any) -> int:
    """The number of blocks that were computed to store the scenes of two zones as one."""
    grid = zstore.GeoGrid("EPSG:32632", (10.0, 0.0, 699900.0, 0.0, -10.0, 5300100.0), (300, 400))
    scenes = [zstore.open_array(place / f"{number}.zarr") for number in range(3)]
    made = zstore.mosaic(scenes, grid).map(until_killed, dtype="u2")
    before = len(calls)
    with patch.multiple("zstore.jobs.journal", WAITING_SECONDS=-1, PAUSE=-1):
        zstore.convert(made, place / target, chunks=(16, 16), memory=40_000, **words)
    return len(calls) - before


def test_a_mosaic_of_two_zones_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("pyproj", reason="a CRS is read with pyproj (extra 'geo')")
    for number, (zone, east) in enumerate(((32, 700000), (33, 254000), (32, 700300))):
        said = {"proj:code": f"EPSG:326{zone}", "spatial:dimensions": ["y", "x"], "_FillValue": 0}
        said["spatial:transform"] = [10, 0, east, 0, -10, 5300000]
        data = np.arange(1, 3601, dtype="u2").reshape(60, 60) * (number + 1)
        path = tmp_path / f"{number}.zarr"
        zstore.create_array(path, data=data, dimension_names=("y", "x"), attributes=said)
    calls[:] = [1] * 9
    whole = store_mosaic(tmp_path, "whole.zarr")
    code = "import pathlib, sys; from tests.views.test_jobs import store_mosaic as store\n"
    code += "store(pathlib.Path(sys.argv[1]), 'made.zarr')"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert 0 < store_mosaic(tmp_path, "made.zarr", resume=True) < whole
    # Who resumes keeps the fingerprint of what was done.
    shutil.rmtree(tmp_path / "made.zarr" / MADE)
    files = [
        {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
        for place in (tmp_path / "whole.zarr", tmp_path / "made.zarr")
    ]
    assert files[0] == files[1] and len(files[0]) > 20


def warped(group: zstore.Group) -> Any:
    """An array of a group on another grid, whose cells the group's mask hides."""
    said = {"proj:code": "EPSG:32632", "spatial:dimensions": ["y", "x"], "_FillValue": 0}
    said["spatial:transform"] = [10, 0, 700000, 0, -10, 5300000]
    scene = group.create_group("scene", attributes=said)
    for name, words in (("red", {}), ("mask", {"color_interpretation": "alpha"})):
        data = DAYS[0].astype("u2" if name == "red" else "u1")
        scene.create_array(name, data=data, dimension_names=("y", "x"), attributes={**said, **words})
    grid = zstore.GeoGrid("EPSG:32632", (20.0, 0.0, 700000.0, 0.0, -20.0, 5300000.0), (20, 35))
    return zstore.reproject(scene, grid)


@pytest.mark.parametrize(
    ("find", "place"),
    [
        (lambda group: zstore.stack([group["0"], group["1"]]) * 2, ""),
        (lambda group: zstore.stack([group["0"], group["1"]]) * 2, "1"),
        (lambda group: zstore.view(group["0"].lazy[1:]), "0/below"),
        (lambda group: zstore.select(group, arrays=["0"])["0"], ""),
        (warped, "scene/red"),
        (warped, "scene/mask"),
    ],
    ids=["group", "array", "below", "part", "warped", "mask"],
)
def test_what_a_view_reads_is_never_replaced(
    find: Any, place: str, days: list[zstore.Array], tmp_path: Path
) -> None:
    group = zstore.open_group(tmp_path / "days.zarr")
    view, target = find(group), tmp_path / "days.zarr" / place
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for job in (zstore.convert, lambda view, out, **how: zstore.reduce(view, "sum", 0, out=out, **how)):
        with pytest.raises(StoreError, match=r"cannot put .* into itself; expected a target elsewhere"):
            job(view, target, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    zstore.convert(view, tmp_path / "days.zarr" / "new", overwrite=True)


def test_files_that_are_joined_are_never_replaced(tmp_path: Path) -> None:
    pytest.importorskip("h5netcdf", reason="NetCDF is written with h5netcdf (extra 'netcdf')")
    (tmp_path / "files").mkdir()
    for number in range(2):
        group = zstore.create_group(tmp_path / f"{number}.zarr")
        group.create_array("v", data=np.full((1, 4), number, "f8"), dimension_names=("t", "x"))
        group.create_array("t", data=np.array([number], "f8"), dimension_names=("t",))
        zstore.zarr_to_netcdf(tmp_path / f"{number}.zarr", tmp_path / "files" / f"{number}.nc")
    with pytest.raises(StoreError, match=r"cannot replace what holds .*0\.nc"):
        zstore.convert(tmp_path / "files" / "*.nc", tmp_path / "files", overwrite=True)
    assert zstore.convert(tmp_path / "files" / "*.nc", tmp_path / "v.zarr")["v"].shape == (2, 4)


def test_a_source_that_changes_meanwhile_makes_no_target(days: list[zstore.Array], tmp_path: Path) -> None:
    def change(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        days[5][0, 0] += 1
        return block

    with pytest.raises(ChangedError, match="view:"):
        zstore.convert(zstore.stack(days).map(change, dtype="i2"), tmp_path / "made.zarr")


def test_a_version_is_that_of_all_sources(days: list[zstore.Array]) -> None:
    memory = np.zeros((40, 70))
    view = zstore.concat([*days, memory])
    before, url = view.version(), view.url
    assert zstore.concat([*days, memory]).url == url != zstore.concat(days).url
    memory[0, 0] = 1
    after = view.version()
    assert before != after and view.url != url
    days[0][0, 0] += 1
    assert view.version() not in (before, after)
