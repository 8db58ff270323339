"""Commands take the words of long calls as options, and refuse those without meaning with the same reason."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.jobs.how import refusal, refused

pytest.importorskip("click", reason="the command line needs click (extra 'cli')")


def run(*words: object, code: int = 0) -> str:
    from click.testing import CliRunner

    from zstore.cli.root import zstore as command

    result = CliRunner().invoke(command, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("name", ["verify", "manifest", "copy"])
def test_words_are_options(name: str, tmp_path: Path) -> None:
    from zstore.cli.options import HOW_OPTIONS

    zstore.create_array(tmp_path / "a", data=np.arange(8), chunks=4)
    call, shown = getattr(zstore, name), run(name, "--help")
    for word, (names, _) in HOW_OPTIONS.items():
        assert (names[-1] in shown) == (word not in refused(call)), word
        if word in refused(call):
            value = ["skip"] if word == "if_exists" else []
            said = " ".join(run(name, tmp_path / "a", tmp_path / "t", names[-1], *value, code=2).split())
            assert refusal(name, names[-1], refused(call)[word])[:60] in said
    more = [tmp_path / "t"] if name == "copy" else []
    found = json.loads(run(name, tmp_path / "a", *more, "--dry-run", "--json", "-q"))
    assert (found["is_dry_run"], found["unit_count"]) == (True, 1)
    assert run(name, tmp_path / "a", *more, "--dry-run", "--memory", "1G")
    run(name, tmp_path / "a", *more, "--processes", 1, "-q")


def test_processes_end_with_the_command_that_is_killed(tmp_path: Path) -> None:
    """What they leave open would keep whoever reads the command's output waiting for ever."""
    zstore.create_array(tmp_path / "a", data=np.zeros((4000, 1000), "i1"), chunks=(4, 1000), fill_value=1)
    words = [
        "convert",
        tmp_path / "a",
        tmp_path / "t",
        "--chunks",
        "2,1000",
        "--memory",
        "1M",
        "--processes",
        1,
    ]
    line = [sys.executable, "-m", "zstore", *map(str, words)]
    command = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while command.poll() is None and not any(tmp_path.glob("t/c/*")):
        time.sleep(0.01)
    command.kill()
    command.communicate(timeout=120)
    assert command.returncode == -signal.SIGKILL


COMMANDS: dict[str, list[str]] = {
    "convert": [
        "netcdf_to_zarr",
        "raster_to_zarr",
        "rasters_to_zarr",
        "zarr_to_raster",
        "zarr_to_netcdf",
        "convert",
    ],
    "pyramid": ["build_pyramid", "build_tile_pyramid", "update_pyramid"],
    "mosaic": ["convert"],
    **{name: [name] for name in ("copy", "export", "manifest", "reduce", "tune", "verify", "virtualize")},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_word_is_an_option_of_its_commands(name: str) -> None:
    from tests.jobs.test_how import call_of

    from zstore.cli.options import HOW_OPTIONS

    calls, shown = [call_of(call) for call in COMMANDS[name]], run(name, "--help")
    assert "--json" in shown
    for word, (names, _) in HOW_OPTIONS.items():
        is_taken = any(word not in refused(call) for call in calls)
        if (name, word) == ("virtualize", "overwrite"):
            # The command asks before it replaces a manifest; the call always does.
            is_taken = True
        assert (names[-1] in shown.split()) == is_taken, word
        if not is_taken:
            value = [names[-1], *(["skip"] if word == "if_exists" else ["1"] if word == "executor" else [])]
            value += ["1M"] if word == "memory" else []
            said = " ".join(run(name, "a", "b", *value, code=2).split())
            assert names[-1] + " does not go with" in said
