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


def test_the_table_of_buckets_can_be_made() -> None:
    pytest.importorskip("obstore.store", reason="the package behind the store")
    from benchmarks.buckets import main

    table = main(["--quick", "--engines", "zstore"])
    requests = {name: round(row["zstore"][0.0][0]) for name, row in table.items()}
    assert requests["1,024 chunks of 64 KiB"] == 1025
    assert requests["append one chunk"] == 3
    assert requests["the same area a third time, cached"] == 0
    assert len(requests) == 10
