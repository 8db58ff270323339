"""How much memory reads take: the result, and a chunk or so per thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).parents[2] / "src")
PROGRAM = """
import resource, sys
sys.path.insert(0, {source!r})
import numpy as np, zstore

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

array = zstore.open_array({path!r}, mode="r")
out = np.empty(array.shape, array.dtype)
out[...] = 1
small = zstore.open_array({path!r}, mode="r")[:1, :1]
before = peak()
if {into}:
    array.read(out=out)
else:
    del out
    out = array[...]
assert out[-1, -1] == array.shape[0] - 1, out[-1, -1]
print(before, peak(), out.nbytes, zstore.engine.schedulers.thread_count())
"""
MIB = 1 << 20


@pytest.fixture(scope="module", params=["chunks", "shards"])
def path(request, tmp_path_factory):
    import numpy as np

    import zstore

    path = tmp_path_factory.mktemp("large") / request.param
    options = (
        {"chunks": (1024, 1024)}
        if request.param == "chunks"
        else {"chunks": (256, 1024), "shards": (4096, 1024)}
    )
    array = zstore.create_array(path, shape=(8192, 8192), dtype="i4", compressors="zstd", **options)
    array[...] = np.arange(8192, dtype="i4")[:, None]
    return path


@pytest.mark.parametrize("into", [True, False], ids=["into memory given", "into memory of its own"])
def test_the_peak_of_a_whole_read(path, into):
    program = PROGRAM.format(source=SOURCE, path=str(path), into=into)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after, size, threads = map(int, result.stdout.split())
    assert size == 256 * MIB
    # `before` holds memory of the result's size already.
    assert after - before <= 32 * MIB + threads * 4 * MIB


def test_the_peak_of_reading_little(path):
    program = PROGRAM.format(source=SOURCE, path=str(path), into=False).split("array = ")[0] + (
        f"array = zstore.open_array({str(path)!r}, mode='r'); array[0, 0]; before = peak()\n"
        "for row in range(0, 8192, 64): assert array[row, 7] == row\n"
        "print(peak() - before)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(result.stdout) <= 32 * MIB
