"""Every statement about the ground in good stores, changed one at a time: whatever misleads is reported.

A reader follows one dialect, so that what any convention says of a node counts, not what all of them come to.
A change is missed where a statement is another than before, or the place is lost, and validation neither
warns nor errs. `tests/integrations/test_readers_mutations.py` asks other programs about the same changes.
"""

from __future__ import annotations

import random

import pytest

import zstore
from zstore.errors import ZstoreError
from zstore.geo.conventions.read import read_geo

from .mutations import SOLE, STORES, Mutation, before, mutations, see, stored


def fault(name: str, mutation: Mutation) -> str | None:
    """What validation misses of a change; None where it misses nothing."""
    store, good = mutation.apply(stored(name)), before(name)
    after = see(store)
    try:
        has_error = any(f.severity == "error" for f in read_geo(zstore.open(store, mode="r"))[1])
    except ZstoreError:
        # It is no grid any more: the place is lost.
        has_error = False
    if has_error and not after.has_error:
        return "reading has an error, validation none"
    changed = [key for key, said in after.said.items() if key in good.said and said != good.said[key]] + [
        path for path, place in good.places.items() if after.places.get(path) != place
    ]
    return f"not reported: {changed}" if changed and not after.findings - good.findings else None


def faults(name: str, some: list[Mutation]) -> list[tuple[Mutation, str]]:
    checked = [mutation for mutation in some if (name, mutation.place[-1]) not in SOLE]
    return [(mutation, found) for mutation in checked if (found := fault(name, mutation)) is not None]


@pytest.mark.parametrize("name", STORES)
def test_a_changed_statement_is_reported(name: str) -> None:
    some = list(mutations(name))
    assert len(some) > 50
    assert before(name).findings <= {("MS-05", "b02", "there is no grid_mapping")}
    assert faults(name, random.Random(name).sample(some, 5)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_every_changed_statement_is_reported(name: str) -> None:
    assert faults(name, list(mutations(name))) == []
