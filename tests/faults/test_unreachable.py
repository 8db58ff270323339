"""Chunks out of reach are an error in every read and job, never taken for chunks that were never written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import StoreError, ZstoreError

ITEMS = np.arange(1, 65, dtype="i4").reshape(8, 8)


def move(chunks: Path, outside: Path) -> None:
    """To another disk, with a link where it was."""
    chunks.rename(outside)
    chunks.symlink_to(outside)


def unmount(chunks: Path, outside: Path) -> None:
    """To another disk, which is not mounted."""
    move(chunks, outside)
    outside.rename(outside.with_name("unmounted"))


def overlay(chunks: Path, outside: Path) -> None:
    """A file stands where the directory was."""
    chunks.rename(outside)
    chunks.write_bytes(b"")


# Which directory or file of the array is gone from its place, and how.
LAYOUTS = {
    f"{how.__name__} {name or 'the array'}": (name, how)
    for name in ("c", "c/0", "c/0/1")
    for how in (move, unmount, overlay)
    if (name, how) != ("c/0/1", overlay)
}

JOBS: dict[str, Callable[[Path, Path], object]] = {
    "read": lambda store, _: zstore.open(store, "a")[...],
    "read many": lambda store, _: zstore.open(store, "a").read_many([np.s_[0:8, 0:8]]),
    "reduce": lambda store, _: zstore.open(store, "a").reduce("sum"),
    "convert": lambda store, out: zstore.convert(store, out),
    "convert, checked": lambda store, out: zstore.convert(store, out, check=True),
    "rechunk": lambda store, out: zstore.convert(store, out, chunks=(3, 3)),
    "copy": lambda store, out: zstore.copy(store, out),
    "pyramid": lambda store, out: zstore.build_pyramid(zstore.open(store, "a"), out, levels=1),
}


def lay(layout: str, tmp_path: Path) -> Path:
    """A store with one array, whose chunks are gone so."""
    name, how = LAYOUTS[layout]
    zstore.create_array(tmp_path / "s.zarr", "a", data=ITEMS, chunks=(4, 4))
    how(tmp_path / "s.zarr" / "a" / name, tmp_path / "elsewhere")
    return tmp_path / "s.zarr"


# A copy has every file as it is, also one that stands in the way.
CASES = [(layout, job) for layout in LAYOUTS for job in JOBS if not (job == "copy" and "overlay" in layout)]


@pytest.mark.parametrize(("layout", "job"), CASES)
def test_what_cannot_be_reached_is_an_error(tmp_path, layout, job):
    store = lay(layout, tmp_path)
    with pytest.raises(StoreError, match=r"c/0|'a/c'|'c'"):
        JOBS[job](store, tmp_path / "out.zarr")
    with pytest.raises(ZstoreError):
        zstore.open(tmp_path / "out.zarr", mode="r")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_cannot_be_reached_is_not_sound(tmp_path, layout):
    store = lay(layout, tmp_path)
    verified = zstore.verify(store)
    assert verified.damage_count and all("/c" in str(damage.key) for damage in verified.damages)
    assert CliRunner().invoke(command, ["verify", str(store)]).exit_code == 1


def test_links_within_the_store_are_followed(tmp_path):
    array = zstore.create_array(tmp_path / "s.zarr", "a", data=ITEMS, chunks=(4, 4))
    move(tmp_path / "s.zarr/a/c/0", tmp_path / "s.zarr/moved")
    assert (array[...] == ITEMS).all() and array.nchunks_initialized == 4
    assert (zstore.convert(tmp_path / "s.zarr", tmp_path / "t.zarr", "a")[...] == ITEMS).all()
