"""What all tests have: servers that fail are asked again soon, and processes begin soon.

Those of pools and of dask are forked of one that has loaded zstore or dask, and done nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator

import pytest

from zstore.storage import remote

multiprocessing.set_forkserver_preload(["zstore.nodes.open", "zstore.geo.pyramid.build"])
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")


@pytest.fixture(autouse=True, scope="session")
def _soon() -> Iterator[None]:
    """As often as ever, and with growing pauses, from a hundredth of a second on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "FIRST_PAUSE", 0.01)
        yield
