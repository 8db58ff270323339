"""Files of an earlier state, also of one that was killed, are read, named, gone on with or replaced.

`former.zip` has them as that state left them on a disk (November 2026, before version 1), in one folder for
each call: "s" is the source, "t" the target. It is never made anew; later states add files of their own. What
they say of where and when the sources were written is replaced by where and when they are.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import MetadataError, ZstoreError
from zstore.storage.local import LocalStore

FORMER = Path(__file__).with_name("former.zip")


def cells(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5000, (32, 24)).astype("u2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FORMER) as archive:
        archive.extractall(tmp_path)
    for file in (*tmp_path.rglob("record"), tmp_path / "parts" / "plan.json"):
        file.write_text(file.read_text().replace("/tmp/former", str(tmp_path)))
    for versions in tmp_path.rglob(".zstore-job/*/source"):
        versions.unlink()
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


# The same calls with another value of one argument.
CHANGED: dict[str, Callable[..., Any]] = {
    "converted": lambda p, **how: zstore.convert(p / "s", p / "t", chunks=(4, 24), checksum=True, **how),
    "copied": lambda p, **how: zstore.copy(p / "s", p / "t", delete=True, **how),
    "pyramid": lambda p, **how: zstore.build_pyramid(p / "s", p / "t", levels=1, chunks=16, **how),
    "reduced": lambda p, **how: zstore.reduce(
        p / "s", out=p / "t", method="mean", axis=0, missing="error", **how
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


@pytest.mark.parametrize("name", CALLS)
def test_interrupted_work_goes_on_though_arguments_were_added_since(name, folder):
    call, _, _ = CALLS[name]
    place, fresh = folder / name, folder / "fresh"
    with pytest.raises(MetadataError, match="other arguments"):
        CHANGED[name](place, resume=True)
    call(place, resume=True)
    assert find_unfinished(LocalStore(place / "t"), "") == []
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


def test_a_plan_in_parts_goes_on(folder):
    """Plans are told by how their units are cut: parts that are cut otherwise are never joined."""
    place = folder / "parts"
    [work] = find_unfinished(LocalStore(place / "t"), "")
    assert "run-units" in work.again
    said = json.loads((place / "plan.json").read_text())
    (place / "other.json").write_text(
        json.dumps(said | {"first": {"name": "convert-0-0-4x1", "unit_count": 2}})
    )
    with pytest.raises(ZstoreError, match=r"comes to 1 units of .* expected 2 of"):
        zstore.finish_units(place / "other.json")
    assert zstore.run_units(place / "plan.json", 1, 1) == 0
    zstore.finish_units(place / "plan.json")
    assert find_unfinished(LocalStore(place / "t"), "") == []
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
