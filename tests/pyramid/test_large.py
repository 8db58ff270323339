"""Pyramids of a scene that no budget holds: within their memory, and right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.geo.resampling.methods import downsample

SIDE, SHARD = 40_000, 2048
PROGRAM = """
    import json
    from pathlib import Path
    import zstore
    group = {call}
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    print(json.dumps([peak * 1024, sorted(group)]))
"""
CALLS = {
    "native": "zstore.build_pyramid('{0}/source', '{0}/made', levels=7, memory=1 << 30)",
    "tiles": (
        "zstore.build_tile_pyramid('{0}/source', '{0}/made', nodata=0, memory=1 << 30, tile_length=512)"
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("kind", CALLS)
def test_forty_thousand_squared_within_two_gigabytes(tmp_path: Path, kind: str) -> None:
    if shutil.disk_usage(tmp_path).free < 12 << 30:
        pytest.skip("the scene and its levels take up to 8 GiB of disk")
    if kind == "tiles":
        pytest.importorskip("pyproj")
    said = {
        "proj:code": "EPSG:32632",
        "spatial:transform": [10, 0, 300000, 0, -10, 5500000],
        "spatial:dimensions": ["y", "x"],
    }
    group = zstore.create_group(tmp_path / "source", attributes=said)
    array = group.create_array(
        "b",
        shape=(SIDE, SIDE),
        dtype="u2",
        chunks=512,
        shards=SHARD,
        compressors="zstd",
        dimension_names=("y", "x"),
    )
    block = np.random.default_rng(0).integers(1, 4000, (SHARD, SHARD)).astype("u2") // 64 + 1
    for row in range(0, SIDE, SHARD):
        for column in range(0, SIDE, SHARD):
            part = array[row : row + SHARD, column : column + SHARD].shape
            array[row : row + SHARD, column : column + SHARD] = block[: part[0], : part[1]] + row // SHARD
    program = textwrap.dedent(PROGRAM.format(call=CALLS[kind].format(tmp_path)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, levels = json.loads(done.stdout)
    assert peak < 2 << 30
    made = zstore.open_group(tmp_path / "made", mode="r")
    if kind == "native":
        for level in range(1, 8):
            corner = array[-(2**level) * 64 :, : 2**level * 64] if level < 5 else None
            found = made[f"{level}/b"]
            assert found.shape == (-(-SIDE // 2**level),) * 2
            if corner is not None:
                np.testing.assert_array_equal(found[-64:, :64], downsample(corner, (2**level, 2**level)))
    else:
        finest = max(levels, key=lambda name: int(name) if name.isdecimal() else -1)

        limits = made.attrs["multiscales"]["tile_matrix_limits"][finest]
        row = (limits["minTileRow"] + limits["maxTileRow"]) // 2
        column = (limits["minTileCol"] + limits["maxTileCol"]) // 2
        assert made.tile(finest, column, row).all()
