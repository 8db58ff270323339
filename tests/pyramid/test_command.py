"""`zstore pyramid`: made, gone on with, brought up to date, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.resampling.methods import downsample

pytest.importorskip("click", reason="the command line needs click (extra 'cli')")


def run(*words: object) -> str:
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    result = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    return f"{result.exit_code} {result.output}"


def test_update_resume_and_preview(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(1, 200, (300, 200)).astype("u2")
    zstore.create_array(tmp_path / "a", data=data, chunks=64, dimension_names=("y", "x"))
    made = run("pyramid", tmp_path / "a", tmp_path / "p", "--preview", tmp_path / "p.png", "--memory", "1G")
    assert made.startswith("0") and "p.png" in made
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    data[5:9, 7:80] = 3
    pyramid = zstore.open_group(tmp_path / "p")
    pyramid["0/a"][5:9, 7:80] = 3
    assert run("pyramid", tmp_path / "p", "--update", "y=5:9,x=7:80", "--resume").startswith("0")
    np.testing.assert_array_equal(pyramid["2/a"][...], downsample(data, (4, 4)))
    assert run("pyramid", tmp_path / "p", "--update", "grown").startswith("0")
    assert run("pyramid", tmp_path / "a", tmp_path / "q", "--levels", 2, "--resume").startswith("0")
    array = zstore.open_array(tmp_path / "a")
    array[...] = 4
    assert run("pyramid", tmp_path / "a", tmp_path / "q", "--update", "y=0:300").startswith("0")
    assert (zstore.open_array(tmp_path / "q" / "1" / "a")[...] == 4).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "much"], "'much' is no size, like 512M, 1.5G or 2GiB"),
        (["--memory", "0"], "'0' is no size"),
        (["--memory", "1.5"], "'1.5' is no size"),
        (["--update", "y"], "'y' is no part of a region"),
        (["--update", "y=1:2:3"], "'y=1:2:3' is no part of a region"),
    ],
)
def test_words_that_make_no_sense(tmp_path: Path, words: list[str], message: str) -> None:
    zstore.create_array(tmp_path / "a", data=np.ones((9, 9), "u1"))
    found = run("pyramid", tmp_path / "a", *words)
    assert found.startswith("2") and message in " ".join(found.replace("│", " ").split())


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError("Unable to allocate 64 GiB"), "memory ran out: Unable"), (KeyError("x"), "KeyError: 'x'")],
)
def test_what_nobody_foresaw_is_one_line(
    tmp_path: Path, monkeypatch: Any, error: Exception, said: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(zstore, "build_pyramid", fails)
    shown = run("pyramid", tmp_path / "a", tmp_path / "b")
    assert shown.startswith("1 error: " + said) and shown.count("\n") == 1
    with pytest.raises(type(error)):
        run("--traceback", "pyramid", tmp_path / "a", tmp_path / "b")
