"""Files of an earlier state, also of one that was killed, are read, named, gone on with or replaced.

`former.zip` has them as that state left them on a disk (November 2026, before version 1), in one folder for
each call: "s" is the source, "t" the target. It is never made anew; later states add files of their own.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import ZstoreError
from zstore.jobs.record import find_unfinished
from zstore.storage.local import LocalStore

FORMER = Path(__file__).with_name("former.zip")


def cells(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5000, (32, 24)).astype("u2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FORMER) as archive:
        archive.extractall(tmp_path)
    return tmp_path


# By folder: the call anew, its name, and the words with which it takes the place of what was interrupted.
CALLS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "converted": (
        lambda p, **how: zstore.convert(p / "s", p / "t", chunks=(4, 24), **how),
        "convert",
        {"overwrite": True},
    ),
    "copied": (lambda p, **how: zstore.copy(p / "s", p / "t", **how), "copy", {"if_exists": "overwrite"}),
    "pyramid": (
        lambda p, **how: zstore.build_pyramid(p / "s", p / "t", levels=2, chunks=16, **how),
        "build_pyramid",
        {"overwrite": True},
    ),
    "reduced": (
        lambda p, **how: zstore.reduce(p / "s", out=p / "t", method="mean", axis=0, **how),
        "reduce",
        {"overwrite": True},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_interrupted_work_is_named_refused_and_replaced(name, folder):
    call, function, how = CALLS[name]
    place = folder / name
    [work] = find_unfinished(LocalStore(place / "t"), "")
    assert work.again.startswith(f"zstore.{function}(")
    assert "resume=True" in work.again
    assert "ZS-09" in {finding.rule for finding in zstore.validate(place / "t").findings}
    assert not zstore.verify(place / "t").is_sound
    with pytest.raises(ZstoreError, match="is unfinished"):
        call(place)
    with pytest.raises(ZstoreError):
        zstore.create_array(place / "t", data=np.zeros(3))
    call(place, **how)
    assert find_unfinished(LocalStore(place / "t"), "") == []
    fresh = folder / "fresh"
    zstore.copy(place / "s", fresh / "s")
    call(fresh)
    assert items_of(place / "t") == items_of(fresh / "t")


def items_of(place: Path) -> dict[str, Any]:
    node = zstore.open(place, mode="r")
    if isinstance(node, zstore.Array):
        return {"": node[...].tolist()}
    return {path: one[...].tolist() for path, one in node.members(None) if isinstance(one, zstore.Array)}


def test_an_interrupted_creation_is_named_and_made_anew(folder):
    place = folder / "created" / "t"
    [work] = find_unfinished(LocalStore(place), "")
    assert work.again.startswith("zstore.create_array(")
    with pytest.raises(ZstoreError):
        zstore.open(place, mode="r")
    zstore.create_array(place, data=cells(), chunks=16, overwrite=True)
    assert find_unfinished(LocalStore(place), "") == []
    np.testing.assert_array_equal(zstore.open(place, mode="r")[...], cells())


def test_an_interrupted_change_of_format_goes_on(folder):
    place = folder / "metadata" / "t"
    [work] = find_unfinished(LocalStore(place), "")
    assert "convert_metadata(" in work.again
    zstore.convert_metadata(place, zarr_format=3, remove_old=True)
    assert find_unfinished(LocalStore(place), "") == []
    group = zstore.open_group(place, mode="r")
    assert group.zarr_format == 3
    np.testing.assert_array_equal(group["a"][...], cells())
    np.testing.assert_array_equal(group["b/c"][...], cells(1))


def test_a_plan_in_parts_is_refused_by_another_state_and_named(folder):
    """Its units may be cut otherwise: parts of two states are never joined."""
    place = folder / "parts"
    [work] = find_unfinished(LocalStore(place / "t"), "")
    assert "run-units" in work.again
    with pytest.raises(ZstoreError):
        zstore.finish_units(place / "plan.json")
    zstore.convert(place / "s", place / "t", chunks=(4, 24), overwrite=True)
    np.testing.assert_array_equal(zstore.open(place / "t", mode="r")[...], cells())


def test_finished_work_is_read_kept_up_to_date_and_verified(folder):
    place = folder / "whole"
    group = zstore.open_group(place / "t", mode="r")
    np.testing.assert_array_equal(zstore.open(place / "s" / "a", mode="r")[...], cells())
    assert [finding for finding in zstore.validate(place / "t").findings if finding.severity == "error"] == []
    assert zstore.verify(place / "s", manifest=place / "manifest.json").is_sound
    level = group["2/a"].shape
    source = zstore.open_array(place / "s" / "a", mode="r+")
    source[:16, :16] = 7
    zstore.update_pyramid(place / "t", {"y": slice(0, 16), "x": slice(0, 16)}, source=place / "s")
    now = zstore.open_array(place / "t" / "2" / "a", mode="r")
    assert now.shape == level
    assert (now[:4, :4] == 7).all()
