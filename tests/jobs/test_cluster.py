"""Jobs on a dask cluster of processes, bucket to bucket: killed, stopped, refused, and gone on with."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, StoreError, UnsupportedError
from zstore.jobs.source import MADE
from zstore.storage.url import use_storage_options

from ..storage.bucket_server import BucketServer

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
pytest.importorskip("obstore", reason="buckets need obstore (extra 's3')")

ROOT = Path(__file__).parents[2]
SECRET = "k3epTh1sQuiet"
WORKERS, HEARD = 2, 7
# Small units, and a journal that is written after each of them.
SMALL: dict[str, dict[str, Any]] = {
    "zstore.jobs.journal": {"WAITING_SECONDS": -1, "PAUSE": -1},
    "zstore.jobs.reduction.plan": dict.fromkeys(("UNIT_SIZE", "BOX_SIZE", "PATCH_SIZE"), 1 << 13),
    "zstore.jobs.upkeep.rechunk": {
        **dict.fromkeys(("FILE", "STRETCH", "UNIT", "REQUEST"), 10.0),
        "WINDOWS_SIZE": 0,
    },
    "zstore.jobs.upkeep.windows": {"WINDOW_COUNT": 4},
}
JOBS: dict[str, Callable[..., Any]] = {
    "build_pyramid": lambda s, t, **options: zstore.build_pyramid(
        s, t, levels=3, chunks=32, memory=600_000, **options
    ),
    "reduce": lambda s, t, **options: zstore.reduce(s, "std", 0, out=t, **options),
    "convert": lambda s, t, **options: zstore.convert(s, t, chunks=(128, 8), memory=2 << 20, **options),
    "verify": lambda s, t, *, resume=False, **options: zstore.verify(s, journal=t, **options),
}
# Kills a worker when it hears of the second unit, and itself some units later.
SCRIPT = """
    import os, signal, sys
    sys.path[:0] = [{root!r}]
    import distributed
    from tests.jobs import test_cluster as mine

    if __name__ == "__main__":
        client = distributed.Client({address!r})
        [worker, *_] = client.run(os.getpid).values()
        heard = 0

        def hear(done, total):
            global heard
            heard += 1
            if heard == 2:
                os.kill(worker, signal.SIGKILL)
            if heard == {heard}:
                os.kill(os.getpid(), signal.SIGKILL)

        mine.carry_out({name!r}, "s3://to/t", {options!r}, executor=client, progress=hear)
"""


class Slow(BucketServer):
    """A bucket some way off, with an array in it; how often each of its chunks was read."""

    def __init__(self) -> None:
        super().__init__()
        self.delay = 0.0

    def options(self, **others: Any) -> dict[str, Any]:
        return super().options(secret=SECRET, **others)

    def serve(self, request: Any) -> None:
        # As if chunks of the source were large.
        time.sleep(self.delay if request.path.startswith("/from/s/c/") else 0)
        super().serve(request)

    def reads(self) -> Counter[str]:
        with self.lock:
            return Counter(p for method, p in self.requests if method == "GET" and p.startswith("/from/s/c/"))

    def made(self, name: str) -> dict[str, bytes]:
        """The objects below a name, without fingerprints and a killed writer's look for conditions."""
        place = f"/to/{name}/"
        with self.lock:
            found = {k.removeprefix(place): v for k, v in self.values.items() if k.startswith(place)}
        return {k: v for k, v in found.items() if ".zstore-conditions-" not in k and MADE not in k}


def carry_out(name: str, target: str, options: dict[str, Any], **more: Any) -> Any:
    with ExitStack() as patches, use_storage_options(options):
        for module, values in SMALL.items():
            patches.enter_context(mock.patch.multiple(module, **values))
        return JOBS[name]("s3://from/s", target, **more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    options = {"n_workers": WORKERS, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as made:
        yield made


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as made:
        made.wait_for_workers(WORKERS)
        yield made


@pytest.fixture
def server() -> Iterator[Slow]:
    cells = np.random.default_rng(0).integers(1, 5000, (512, 384)).astype("u2")
    with Slow() as made:
        made.httpd.handle_error = lambda *_: None  # type: ignore[method-assign]
        options = made.options()
        zstore.create_array(
            "s3://from/s", data=cells, chunks=32, dimension_names=("y", "x"), storage_options=options
        )
        made.delay = 0.05
        yield made


@pytest.mark.parametrize(
    "name",
    ["build_pyramid", *(pytest.param(n, marks=pytest.mark.slow) for n in ("reduce", "convert", "verify"))],
)
def test_a_killed_worker_and_a_killed_client_cost_units_only(name: str, server: Slow, cluster: Any) -> None:
    options, made = server.options(), list[Any]()
    server.requests.clear()
    with mock.patch("zstore.jobs.runner._make", lambda sent, unit: made.append(unit) or sent.make(unit)):
        carry_out(name, "s3://to/whole", options)
    whole = server.reads()
    server.requests.clear()
    script = SCRIPT.format(
        root=str(ROOT), address=cluster.scheduler_address, name=name, options=options, heard=HEARD
    )
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "zarr.json" not in server.made("t")
    with distributed.Client(cluster) as client:
        client.wait_for_workers(WORKERS)
        # What workers are still at for the client that is dead is no part of what goes on.
        while any(client.run(lambda dask_worker: bool(dask_worker.state.executing)).values()):
            time.sleep(0.02)
        server.requests.clear()
        carry_out(name, "s3://to/t", options, executor=client, resume=True)
    assert server.made("t") == server.made("whole")
    # What the client had heard of is not made again; of a reduction, it may not have noted the last.
    assert server.reads().total() <= whole.total() * (1 - (HEARD - 1) / len(made))


def test_who_stops_a_job_waits_for_what_workers_are_at(server: Slow, client: Any) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out("build_pyramid", "s3://to/t", server.options(), executor=client, progress=stop)
    count = len(server.requests)
    time.sleep(0.3)
    assert len(server.requests) == count
    carry_out("build_pyramid", "s3://to/t", server.options(), executor=client, resume=True)
    carry_out("build_pyramid", "s3://to/whole", server.options())
    assert server.made("t") == server.made("whole")


def test_logs_and_errors_of_workers_show_no_credentials(server: Slow, client: Any) -> None:
    server.values["/from/s/c/3/3"] = b"damaged"
    with pytest.raises(CodecError, match=r"damaged.* of 's3://from/s'"):
        carry_out("build_pyramid", "s3://to/t", server.options(), executor=client)
    logs = [*client.get_worker_logs().values(), client.get_scheduler_logs()]
    said = " ".join(line for log in logs for _, line in log)
    assert "Compute Failed" in said and SECRET not in said


def set_version(is_other: bool) -> None:
    """Have another version of zstore in this process, or its own again."""
    module: Any = sys.modules["zstore"]
    module.__version__ = f"{module.__version__}-other" if is_other else module.__version__.partition("-")[0]


def hide(is_hidden: bool) -> None:
    """Have no zstore that could be imported in this process, or have it again."""
    source, target = ("zstore.jobs.runner", "hidden") if is_hidden else ("hidden", "zstore.jobs.runner")
    sys.modules[target] = sys.modules[source]
    sys.modules[source] = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "message"),
    [(set_version, r"has zstore \S+-other; expected \S+, as here"), (hide, "cannot import zstore .*: ")],
)
def test_workers_without_this_zstore_are_named_before_anything_is_made(
    change: Callable[[bool], None], message: str, server: Slow, client: Any
) -> None:
    client.run(change, True)
    try:
        with pytest.raises(UnsupportedError, match=rf"the dask worker tcp://\S+ {message}"):
            carry_out("build_pyramid", "s3://to/t", server.options(), executor=client)
    finally:
        client.run(change, False)
    assert server.made("t") == {}


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_job_in_a_sentence(server: Slow, tmp_path: Path) -> None:
    dask, told = [sys.executable, "-m", "dask"], tmp_path / "scheduler.json"
    where = ["--scheduler-file", str(told), "--dashboard-address", ":0"]
    with subprocess.Popen(
        [*dask, "scheduler", "--port", "0", *where], stderr=subprocess.DEVNULL
    ) as scheduler:
        words = [*dask, "worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path), *where]
        while not told.exists():
            time.sleep(0.05)
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as worker:
            try:
                with distributed.Client(scheduler_file=str(told)) as client:
                    client.wait_for_workers(1)
                    with pytest.raises(
                        StoreError, match=r"the executor lost units .*; what was made is kept"
                    ):
                        carry_out(
                            "build_pyramid",
                            "s3://to/t",
                            server.options(),
                            executor=client,
                            progress=lambda *_: scheduler.kill(),
                        )
            finally:
                scheduler.kill()
                worker.kill()
    carry_out("build_pyramid", "s3://to/t", server.options(), resume=True)
    carry_out("build_pyramid", "s3://to/whole", server.options())
    assert server.made("t") == server.made("whole")


def test_a_client_whose_results_are_awaited_is_refused(server: Slow) -> None:
    client = mock.Mock(spec=distributed.Client, asynchronous=True)
    with pytest.raises(UnsupportedError, match=r"expected one made with asynchronous=False"):
        carry_out("build_pyramid", "s3://to/t", server.options(), executor=client)
    with pytest.raises(TypeError, match=r"executor is 2; expected one of concurrent.futures"):
        carry_out("build_pyramid", "s3://to/t", server.options(), executor=2)
    assert server.made("t") == {}
