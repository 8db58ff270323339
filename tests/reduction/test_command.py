"""`zstore reduce`: what it makes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import zstore

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.root import zstore as command  # noqa: E402

VALUES = np.random.default_rng(0).integers(0, 99, (6, 5, 4)).astype("u2")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zstore.create_array(tmp_path / "a", data=VALUES, chunks=(2, 5, 4), dimension_names=["t", "y", "x"])
    return tmp_path / "a"


def run(*words: object, code: int = 0) -> str:
    result = testing.CliRunner().invoke(command, ["reduce", *map(str, words)])
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output}") from result.exception
    return str(result.output)


def test_a_result_is_stored_or_printed(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "m", "--axis", "t") == f"{tmp_path / 'm'} (5, 4) float64\n"
    made = zstore.open_array(tmp_path / "m")
    assert made.dims == ("y", "x")
    np.testing.assert_array_equal(made[...], VALUES.mean(0))
    assert run(source, "--method", "sum") == f"{VALUES.sum()}\n"
    run(source, tmp_path / "m", "--axis=-1,0", "--method", "max", "--overwrite", "--keepdims")
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "m")[...], VALUES.max((0, 2), keepdims=True))
    zstore.create_array(tmp_path / "zones", data=np.repeat([[1, 2]], 5, 0).repeat(2, 1))
    run(source, tmp_path / "z", "--axis", "y,x", "--groups", tmp_path / "zones", "--dtype", "f4")
    zones = np.stack([VALUES[:, :, :2].mean((1, 2)), VALUES[:, :, 2:].mean((1, 2))], 1)
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "z")[...], zones.astype("f4"))


def test_json_is_valid_where_numbers_are_not_finite(tmp_path: Path) -> None:
    items = np.array([[np.nan, np.inf, -np.inf, 1.5], [0, 0, 0, 0]])
    zstore.create_array(tmp_path / "f", data=items, fill_value=np.nan)
    printed = run(tmp_path / "f", "--axis", "0", "--nodata", "none", "--json")
    assert json.loads(printed, parse_constant=str.upper)["items"] == ["NaN", "Infinity", "-Infinity", 0.75]


def test_a_dry_run_says_what_would_be_done(source: Path, tmp_path: Path) -> None:
    said = run(source, tmp_path / "m", "--axis", "t", "--dry-run").splitlines()
    assert said[0] == "result  (5, 4) float64"
    assert said[1].endswith("1 units") and said[2].startswith("  reads   240")
    assert not (tmp_path / "m").exists()


def test_what_cannot_be_is_one_line(source: Path, tmp_path: Path) -> None:
    assert "axis 'z', expected one of the dimensions" in run(source, "--axis", "z", code=1)
    assert "axis '--1', expected one of the dimensions" in run(source, "--axis=--1", code=1)
    assert "nodata -1 is not a value" in run(source, "--nodata", "-1", code=1)
    assert "neither a number nor none" in run(source, "--nodata", "much", code=2)
    run(source, tmp_path / "m")
    assert "already" in run(source, tmp_path / "m", code=1)
    zstore.create_array(tmp_path / "s", data=np.array(["a", "b"]))
    assert "no meaning" in run(tmp_path / "s", code=1)


def test_months_of_a_group_are_made_at_the_prompt_and_in_parts(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "g")
    said = {"units": "days since 2001-01-01"}
    group.create_array("time", data=np.arange(60), dimension_names=["time"], attributes=said)
    degrees = {"units": "degrees_north"}
    group.create_array("lat", data=[0.0, 60.0], dimension_names=["lat"], attributes=degrees)
    values = np.random.default_rng(0).random((60, 2))
    for name in "ab":
        group.create_array(name, data=values, chunks=(7, 2), dimension_names=["time", "lat"])
    group.create_array("words", data=np.array(["x"] * 60), dimension_names=["time"])
    told, *printed = run(tmp_path / "g", tmp_path / "m", "--every", "month").splitlines()
    assert told.startswith("notice: 'words' is left out: mean of data type <U1 has no meaning")
    shown = ("a (3, 2)", "b (3, 2)", "lat (2,)", "time (3,)", "time_bnds (3, 2)")
    assert [line.removeprefix(f"{tmp_path}/m/").rpartition(" ")[0] for line in printed] == [*shown]
    months = np.stack([values[:31].mean(0), values[31:59].mean(0), values[59:].mean(0)])
    np.testing.assert_allclose(zstore.open_array(tmp_path / "m/b")[...], months)
    weighted = run(tmp_path / "g/a", "--by", "month", "--axis", "time,lat", "--weights", "latitude", "--json")
    np.testing.assert_allclose(json.loads(weighted)["items"], months @ [2 / 3, 1 / 3])
    zstore.plan_units(
        tmp_path / "p.json",
        zstore.reduce,
        str(tmp_path / "g/a"),
        "mean",
        every="month",
        out=str(tmp_path / "n"),
    )
    assert zstore.run_units(tmp_path / "p.json", 1, 1) == 0
    made = zstore.finish_units(tmp_path / "p.json")
    np.testing.assert_allclose(made["a"][...], months)
    assert sorted(name for name, _ in made.members()) == ["a", "lat", "time", "time_bnds"]
