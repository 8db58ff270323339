"""What all tests have: servers are soon asked again, processes begin soon, and no example has a deadline."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from zstore.storage import remote

# What is loaded by the process of which those of pools, of dask and of drills are forked.
LOADED = ("tests.faults.writers", "zstore.nodes.open", "zstore.geo.pyramid.build")
with suppress(ModuleNotFoundError):  # environments of other readers draw no examples
    from hypothesis import settings

    # How long an example takes depends on what else the machine does.
    settings.register_profile("zstore", deadline=None)
    settings.load_profile("zstore")
for setting in ("DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "MULTIPROCESSING__CONTEXT"):
    os.environ.setdefault(f"DASK_{setting}", "forkserver")


@pytest.fixture(autouse=True, scope="session")
def _soon() -> Iterator[None]:
    """As often as ever, and with growing pauses, from a hundredth of a second on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "FIRST_PAUSE", 0.01)
        yield


@pytest.fixture(autouse=True, scope="session")
def _forked() -> None:
    """Set once all tests are collected: dask, when it is imported, sets a list of its own."""
    used = [name for name in ("dask.multiprocessing", "distributed") if name in sys.modules]
    multiprocessing.set_forkserver_preload([*LOADED, *used])
