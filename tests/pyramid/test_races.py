"""Two calls that build one pyramid at once: both leave equal documents, or a sentence refuses one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import StoreError
from zstore.geo.pyramid import build
from zstore.jobs.source import MADE

# Builds one target after the other, each when a line says so, and tells how it ended.
CALLS = """
import sys, zstore
from zstore.errors import ZstoreError
from zstore.geo.pyramid.build import build_pyramid
source, word = sys.argv[1:]
options = {} if word == "plain" else {word: True}
print("ready", flush=True)
for target in map(str.strip, sys.stdin):
    try:
        build_pyramid(source, target, **options)
        print("made", flush=True)
    except ZstoreError as error:
        print("refused:", error, flush=True)
"""


def make_source(place: Path) -> Path:
    data = np.arange(1, 256 * 256 + 1, dtype="u4").reshape(256, 256)
    root = zstore.create_group(place)
    root.create_array("v", data=data, chunks=(64, 64), dimension_names=["y", "x"])
    return place


def files(place: Path) -> dict[str, bytes]:
    kept = (file for file in place.rglob("*") if file.is_file() and MADE not in file.parts)
    return {str(file.relative_to(place)): file.read_bytes() for file in kept}


def check_whole(made: Path, expected: dict[str, bytes]) -> None:
    """The pyramid has the same chunks and documents, all of them consolidated, and nothing beside them."""
    found = files(made)
    assert found == expected
    told = json.loads(found["zarr.json"])["consolidated_metadata"]["metadata"]
    assert {f"{path}/zarr.json" for path in told} == {k for k in found if k.endswith("/zarr.json")}


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["plain", "resume", "overwrite"])
def test_two_processes_at_once_leave_one_whole_pyramid(tmp_path, way, count):
    source = make_source(tmp_path / "s")
    zstore.build_pyramid(source, tmp_path / "whole")
    expected = files(tmp_path / "whole")
    calls = [
        subprocess.Popen(
            [sys.executable, "-c", CALLS, source, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        assert [call.stdout.readline() for call in calls] == ["ready\n"] * 2
        for number in range(count):
            target = tmp_path / f"t{number}"
            for call in calls:
                call.stdin.write(f"{target}\n")
                call.stdin.flush()
            ends = sorted(call.stdout.readline().strip() for call in calls)
            assert ends[0] == "made"
            sentences = (
                "made",
                "refused: the building of a pyramid is unf",
                "refused: levels 0",
                "refused: somebody",
            )
            assert ends[1].startswith(sentences)
            check_whole(target, expected)
    finally:
        for call in calls:
            call.stdin.close()
            call.wait(60)
            call.stdout.close()


# Fails in a process that lives on.
FAILS = """
import sys, zstore
from zstore.geo.pyramid import build
def fail(*args, **options):
    raise zstore.errors.StoreError("the network is down")
build.run_step = fail
try:
    build.build_pyramid(*sys.argv[1:])
except zstore.errors.StoreError as error:
    print(error, flush=True)
input()
"""


def test_a_build_at_work_is_not_overwritten(tmp_path, monkeypatch):
    source, target, make = make_source(tmp_path / "s"), tmp_path / "t", build.run_step
    zstore.build_pyramid(source, tmp_path / "whole")
    begun, may_go_on = threading.Event(), threading.Event()

    def wait(*args, **options):
        begun.set()
        assert may_go_on.wait(60)
        return make(*args, **options)

    monkeypatch.setattr(build, "run_step", wait)
    thread = threading.Thread(target=zstore.build_pyramid, args=(source, target))
    thread.start()
    try:
        assert begun.wait(60)
        with pytest.raises(StoreError, match=r"somebody else is at work there, in process \d+: .*a pyramid"):
            zstore.build_pyramid(source, target, overwrite=True)
    finally:
        may_go_on.set()
        thread.join(60)
    check_whole(target, files(tmp_path / "whole"))
    zstore.build_pyramid(source, target, overwrite=True)
    check_whole(target, files(tmp_path / "whole"))


def test_a_build_that_failed_in_a_living_process_is_overwritten(tmp_path):
    source, target = make_source(tmp_path / "s"), tmp_path / "t"
    zstore.build_pyramid(source, tmp_path / "whole")
    command = [sys.executable, "-c", FAILS, source, target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as failed:
        assert failed.stdout.readline().startswith("the network is down")
        assert failed.poll() is None
        zstore.build_pyramid(source, target, overwrite=True)
        failed.stdin.write("\n")
    check_whole(target, files(tmp_path / "whole"))


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("moment", ["check_begun", "_check_fits", "begin", "_clear"])
def test_a_pyramid_that_another_call_has_just_built_stays(tmp_path, monkeypatch, moment, resume):
    source, target = make_source(tmp_path / "s"), tmp_path / "t"
    zstore.build_pyramid(source, tmp_path / "whole")
    expected, original, times = files(tmp_path / "whole"), getattr(build, moment), []

    def other_first(*args, **options):
        monkeypatch.setattr(build, moment, original)
        if moment == "_clear" and not resume:
            with pytest.raises(StoreError, match="the building of a pyramid is unfinished"):
                zstore.build_pyramid(source, target)
            return original(*args, **options)
        zstore.build_pyramid(source, target, resume=resume)
        times.extend(file.stat().st_mtime_ns for file in sorted(target.rglob("zarr.json")))
        return original(*args, **options)

    monkeypatch.setattr(build, moment, other_first)
    if moment == "_clear" and not resume:
        zstore.build_pyramid(source, target)
    else:
        expectation = "somebody else" if moment == "_clear" else "levels 0, 1, 2 are there already"
        with pytest.raises(StoreError, match=expectation):
            zstore.build_pyramid(source, target, resume=resume)
        assert times == [file.stat().st_mtime_ns for file in sorted(target.rglob("zarr.json"))]
    check_whole(target, expected)
