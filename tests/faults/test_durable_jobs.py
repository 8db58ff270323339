"""Long work that is durable: bytes, names and directories are confirmed in order."""

from __future__ import annotations

import json

import numpy as np

import zstore

from .calls import build, check_durability, run_counted


def test_what_is_durable_is_confirmed_in_order(tmp_path):
    zstore.create_array(
        tmp_path / "source",
        data=np.arange(64 * 64, dtype="f4").reshape(64, 64),
        chunks=(32, 32),
        dimension_names=["y", "x"],
    )
    logs = json.loads(run_counted(build(tmp_path), "recorded_jobs.py", tmp_path))
    assert len(logs) == 10
    check_durability(logs)
