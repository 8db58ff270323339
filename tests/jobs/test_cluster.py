"""Jobs on a dask cluster of processes: a worker and the client killed midway, and the job gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.jobs.record import find_unfinished
from zstore.storage.local import LocalStore

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

OPTIONS = {
    "build_pyramid": {"levels": 3, "chunks": 32, "memory": 600_000},
    "reduce": {"method": "std", "axis": 0},
}
SIZES = dict.fromkeys(("UNIT_SIZE", "BOX_SIZE", "PATCH_SIZE"), 1 << 13)
# Kills a worker when it hears of the second unit, and itself some units later.
SCRIPT = """
    import os, signal, sys
    from unittest import mock
    import distributed, zstore

    if __name__ == "__main__":
        client = distributed.Client({address!r})
        [worker, *_] = client.run(os.getpid).values()
        heard = 0

        def hear(done, total):
            global heard
            heard += 1
            if heard == 2:
                os.kill(worker, signal.SIGKILL)
            if heard == 5:
                os.kill(os.getpid(), signal.SIGKILL)

        with mock.patch.multiple("zstore.reduction.plan", **{sizes!r}):
            zstore.{function}({source!r}, executor=client, progress=hear, **{options!r})
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as made:
        yield made


def files_of(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


@pytest.mark.parametrize("function", ["build_pyramid", pytest.param("reduce", marks=pytest.mark.slow)])
def test_a_killed_worker_and_a_killed_client_cost_units_only(
    function: str, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in SIZES.items():
        monkeypatch.setattr(f"zstore.reduction.plan.{name}", size)
    cells = np.random.default_rng(0).integers(1, 5000, (700, 500)).astype("u2")
    zstore.create_array(tmp_path / "s", data=cells, chunks=32, dimension_names=("y", "x"))
    source, target, options = str(tmp_path / "s"), str(tmp_path / "t"), OPTIONS[function]

    def call(place: str, **more: Any) -> None:
        where = {"out": place} if function == "reduce" else {"target": place}
        getattr(zstore, function)(source, **where, **options, **more)

    call(str(tmp_path / "whole"))
    said = {**options, "out" if function == "reduce" else "target": target}
    script = SCRIPT.format(
        address=cluster.scheduler_address, function=function, source=source, options=said, sizes=SIZES
    )
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(find_unfinished(LocalStore(target), "")) == 1 and not (tmp_path / "t" / "zarr.json").exists()
    with distributed.Client(cluster) as client:
        call(target, executor=client, resume=True)
    assert files_of(tmp_path / "t") == files_of(tmp_path / "whole")
