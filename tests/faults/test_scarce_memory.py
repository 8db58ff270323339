"""Threads with small stacks, as embedding programs give them; memory, files and writes that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from zstore.errors import say_no_memory

from .calls import HERE, KERNELS, MAKE, MEMORY, OPEN, READ, WRITE, build, run_counted

# As verbs.py has them, which imports what cannot be imported here.
NAMES = (
    *("open", "read", "read a part", "read steps", "read points", "read a mask", "read many"),
    *("read awaited", "read text", "read by a codec in Python", "read through a link", "read references"),
    *("write", "write a part", "write points"),
    *(f"write a part, {codec}" for codec in ("zstd:9", "gzip:9", "numcodecs.lz4", "numcodecs.zlib")),
    *("write a part, blosc", "write a part, crc32c"),
    *("create", "append", "resize", "delete", "attributes", "consolidate", "copy", "convert", "rechunk"),
    *("reduce", "pyramid", "average", "mode", "cubic", "verify", "zip"),
)
# Those whose memory the kernels ask for in many places. CPython 3.13's own json ends by a signal where it has
# no memory for a dict, so that what reads much of it is only tried before.
SOME = ("read many", "read references", "write a part", "convert" if sys.version_info < (3, 13) else "append")
KINDS = {"memory": MEMORY, "kernels": KERNELS, "files": OPEN | MAKE, "writes": WRITE, "reads": READ}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("calls"))


def test_a_thread_with_a_stack_of_64_KiB_does_everything(tmp_path):
    words = [sys.executable, str(HERE / "verbs.py"), str(tmp_path / "b"), "|".join(NAMES), "stack", "65536"]
    (tmp_path / "b").mkdir()
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


# CPython waits for ever for a thread of its own that had no memory to begin.
THREADED = (
    "read awaited",
    "read text",
    "read by a codec in Python",
    "copy",
    "convert",
    "rechunk",
    "reduce",
    "pyramid",
    "verify",
    "zip",
)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of addresses")
@pytest.mark.parametrize("names", [("read", "read many"), pytest.param(NAMES, marks=pytest.mark.slow)])
def test_processes_that_may_have_little_more_memory(tmp_path, names):
    # Memory is asked for from the system, and given back to it.
    settings = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    counts = Counter[str]()
    for name in (name for name in names if name not in THREADED):
        place = tmp_path / name
        place.mkdir()
        words = [sys.executable, str(HERE / "verbs.py"), str(place), name, "limited"]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **settings})
        assert done.returncode == 0, f"{name}: {done.returncode}: {done.stderr}"
        counts.update(json.loads(done.stdout)[name])
    print(counts)
    assert counts["MemoryError"] and counts["none"]


def check_refusals(library: Path, place: Path, names: tuple[str, ...], refusal: str, step: int) -> None:
    """Whatever is refused is an error of the right kind, and the same call is done whole afterwards."""
    place.mkdir()
    counts = json.loads(
        run_counted(library, "verbs.py", place, "|".join(names), "refused", KINDS[refusal], step)
    )
    print(refusal, counts)
    assert counts.keys() == set(names)


@pytest.mark.parametrize(("refusal", "step"), [("memory", 41), ("kernels", 3)])
def test_memory_that_is_refused(library, tmp_path, refusal, step):
    check_refusals(library, tmp_path / "b", SOME, refusal, step)


@pytest.mark.slow
@pytest.mark.parametrize("refusal", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_refused(library, tmp_path, name, refusal):
    check_refusals(library, tmp_path / "b", (name,), refusal, 1)


def test_an_error_that_a_lack_of_memory_has_caused_is_one_of_memory():
    error = SystemError("<_json.Encoder object> returned a result with an exception set")
    say_no_memory(error)
    error.__cause__ = MemoryError()
    with pytest.raises(MemoryError, match="no memory: <_json"):
        say_no_memory(error)
