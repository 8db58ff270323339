"""What the main accesses ask of a bucket, by the numbers that the benchmark has."""

from __future__ import annotations

import pytest


def test_no_access_asks_for_more_than_it_did() -> None:
    pytest.importorskip("obstore.store", reason="the package behind the store")
    from benchmarks.requests import ACCESSES, measure

    grown = {
        name: (found, allowed)
        for name, found in measure().items()
        if found.is_more(allowed := ACCESSES[name][1])
    }
    assert not grown
