"""Threads with small stacks, as embedding programs give them; memory, files and writes that are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
# Those whose memory the kernels ask for in many places.
SOME = ("read many", "read references", "write a part", "convert")
KINDS = {"memory": MEMORY, "kernels": KERNELS, "files": OPEN | MAKE, "writes": WRITE, "reads": READ}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("calls"))


def test_a_thread_with_a_stack_of_64_KiB_does_everything(tmp_path):
    words = [sys.executable, str(HERE / "verbs.py"), str(tmp_path / "b"), "|".join(NAMES), "stack", "65536"]
    (tmp_path / "b").mkdir()
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


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
