"""A call needs its result and a little per thread: no copy of the input, whatever that looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
from pathlib import Path
from zstore.geo.resampling.methods import downsample

def kilobytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])

n = 2048
base = (np.arange(n * n) % 251).reshape(n, n)
holed = base.astype("f4")
holed[::3, ::5] = np.nan
views = {
    "contiguous": base.astype("f4"), "big-endian": base.astype(">f4"), "half": base.astype("f2"),
    "columns": np.asfortranarray(base.astype("i4")), "reversed": base.astype("f4")[::-1, ::-1],
    "every other": base.astype("i4")[:, ::2], "holes": holed,
}
del base
downsample(np.ones((512, 512), "f4"), (2, 2), "lanczos", threads=2)
for name, source in views.items():
    for method in ("average", "mode", "med", "max", "rms", "bilinear", "nearest"):
        for grid, factors in (("aligned", (2, 2)), ("gdal", (3, 3))):
            if method == "nearest" and grid == "gdal":
                continue
            Path("/proc/self/clear_refs").write_text("5")
            before = kilobytes("VmRSS")
            made = downsample(source, factors, method, grid=grid, threads=2)
            peak = kilobytes("VmHWM") - before
            print(name, method, grid, peak * 1024 - made.nbytes)
            del made
"""
SCRATCH_SIZE = 4 << 20  # of two threads together, and the allocator's rounding


def test_no_copy_of_the_input() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux's /proc to reset a process's peak memory")
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    if "PermissionError" in done.stderr:
        pytest.skip("this system does not let a process reset its peak memory")
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert len(rows) == 7 * 13
    assert {name: int(size) for name, size in rows if int(size) > SCRATCH_SIZE} == {}
