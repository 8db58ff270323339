"""Disks that are too small for what long jobs make: refused before the first byte, or gone on with later."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.geo.rasters import netcdf_to_zarr, raster_to_zarr, rasters_to_zarr
from zstore.jobs.source import MADE
from zstore.storage.memory import MemoryStore

from ..faults import test_killed_jobs as kinds


def wide_maps(place: Path) -> None:
    zstore.create_array(place, data=kinds.cells((4, 768, 768)), chunks=(1, 128, 128))


def recode(source: Path, target: Path, **options: Any) -> None:
    zstore.convert(source, target, path="a", chunks=(64, 64), **options)


def by_way_of_scratch(source: Path, target: Path, **options: Any) -> None:
    zstore.convert(source, target, chunks=(64, 8, 8), memory=400_000, **options)


def pyramid(source: Path, target: Path, **options: Any) -> None:
    zstore.build_pyramid(source, target, levels=3, **options)


def reduce(source: Path, target: Path, **options: Any) -> None:
    zstore.reduce(source, "max", 0, groups=np.arange(4) // 2, out=target, **options)


def stack(source: Path, target: Path, **options: Any) -> None:
    rasters_to_zarr(sorted(source.glob("*.tif")), target, stack="time", times="s_%Y%m%d", **options)


# What is made at the source, and what makes about 2 to 4 MB of it that no codec makes smaller.
JOBS: dict[str, tuple[Callable[[Path], None], Callable[..., Any]]] = {
    "recode": (kinds.scene, recode),
    "by way of scratch": (kinds.maps, by_way_of_scratch),
    "pyramid": (kinds.scene, pyramid),
    "reduce": (wide_maps, reduce),
    "raster": (kinds.raster, raster_to_zarr),
    "stack": (kinds.rasters, stack),
    "NetCDF": (kinds.netcdf, partial(netcdf_to_zarr, chunks=64)),
    "copy": (kinds.scene, zstore.copy),
}


def values(place: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    return {key: kinds.PLACE.sub(b"", data) for key, data in found.items() if MADE not in key}


def limit(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=1, free=size))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A disk of so many KiB, or the same one grown to so many."""
    place = tmp_path / "disk"

    def resized(size: int) -> Path:
        is_new = not place.exists()
        place.mkdir(exist_ok=True)
        options = f"size={size}k" if is_new else f"remount,size={size}k"
        run = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True)
        if run.returncode:
            place.rmdir()
            pytest.skip(f"a small disk cannot be mounted here: {run.stderr.decode().strip()}")
        return place

    yield resized
    if place.exists():
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("kind", JOBS)
def test_a_small_disk_is_refused_or_fills_up_and_the_job_goes_on(kind, tmp_path, disk, monkeypatch):
    # Of a few units, all are made to learn what they take.
    for module, values_of in kinds.SMALL.items():
        for name, value in values_of.items():
            monkeypatch.setattr(f"{module}.{name}", value)
    prepare, run = JOBS[kind]
    prepare(tmp_path / "s")
    run(tmp_path / "s", tmp_path / "whole")
    expected = values(tmp_path / "whole")
    total = sum(map(len, expected.values()))
    small = disk(total // 1024 // 3)
    with pytest.raises(StoreError, match=r"disk of .* free; expected .* at least for|no room for"):
        run(tmp_path / "s", small / "t")
    assert not [*small.iterdir()], "nothing was written"
    if kind == "copy":
        return  # what it takes is known
    # What is learned of all units, or of many, is too near to the truth for a disk to pass and then fill up.
    monkeypatch.setattr("zstore.jobs.plan.SAMPLE_COUNT", 4)
    monkeypatch.setattr("zstore.jobs.plan.CERTAIN_SHARE", 0.5)
    disk(total * 3 // 4 // 1024)
    with pytest.raises(StoreError, match=r"No space left .*; make room there, then resume=True goes on"):
        run(tmp_path / "s", small / "t")
    disk(total * 40 // 1024)  # files take whole pages
    run(tmp_path / "s", small / "t", resume=True)
    assert values(small / "t") == expected


def test_a_disk_that_is_large_enough_is_never_refused(tmp_path, monkeypatch):
    """Where little is stored, codecs make little of it, or chunks differ as much as can be."""
    chance, side = np.random.default_rng(0), 512
    noise = chance.integers(1, 60000, (side, side)).astype("u2")
    sources = {"sparse": np.zeros_like(noise), "flat": np.full_like(noise, 7), "column": np.zeros_like(noise)}
    sources["sparse"][:64, :64] = noise[:64, :64]
    sources["column"][...] = 1
    sources["column"][:, 256:320] = noise[:, 256:320]
    for name, data in sources.items():
        zstore.create_array(tmp_path / name, data=data, chunks=(64, 64))
        zstore.convert(tmp_path / name, tmp_path / "r" / name, chunks=(32, 64))
        stored = sum(map(len, values(tmp_path / "r" / name).values()))
        limit(monkeypatch, stored)
        zstore.convert(tmp_path / name, tmp_path / "again" / name, chunks=(32, 64))
        assert values(tmp_path / "again" / name) == values(tmp_path / "r" / name)
        monkeypatch.undo()


def test_what_is_replaced_makes_room_and_nothing_is_measured_where_all_fits(tmp_path, monkeypatch):
    data = np.random.default_rng(0).integers(0, 2**16, (256, 256)).astype("u2")
    zstore.create_array(tmp_path / "s", data=data, chunks=(64, 64))
    call = zstore.convert
    call(tmp_path / "s", tmp_path / "t", chunks=(32, 32))
    limit(monkeypatch, data.nbytes // 3)
    with pytest.raises(StoreError, match=r"expected .* at least for chunks"):
        call(tmp_path / "s", tmp_path / "u", chunks=(32, 32))
    call(tmp_path / "s", tmp_path / "t", chunks=(32, 32), overwrite=True)
    call(tmp_path / "s", MemoryStore(), chunks=(32, 32))
    limit(monkeypatch, data.nbytes)
    monkeypatch.setattr("zstore.jobs.upkeep.rechunk.expect_size", None)
    call(tmp_path / "s", tmp_path / "v", chunks=(32, 32))


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({}, 0.95),
        ({"grid": "gdal"}, 0.95),
        ({"method": "cubic", "levels": 5}, 0.95),
        ({"memory": 500_000}, 0.7),
    ],
)
def test_a_pyramid_asks_for_what_it_fills(options, share, tmp_path, monkeypatch):
    """All of it where all units are made to learn it, and never more."""
    group = zstore.create_group(tmp_path / "s")
    data = np.random.default_rng(0).integers(1, 60000, (768, 768)).astype("u2")
    group.create_array("v", data=data, chunks=(64, 64), dimension_names=["y", "x"])
    zstore.build_pyramid(group, tmp_path / "whole", **options)
    filled = sum(map(len, values(tmp_path / "whole").values()))
    for free in (filled * share, filled):
        limit(monkeypatch, free)
        if free < filled:
            with pytest.raises(StoreError, match="at least for levels"):
                zstore.build_pyramid(group, tmp_path / "t", **options)
        else:
            zstore.build_pyramid(group, tmp_path / "t", **options)
