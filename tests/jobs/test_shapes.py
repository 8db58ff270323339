"""Changes of shape beside jobs: a job keeps them out, and what they leave is told to whoever looks."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.engine.intents import find_unfinished
from zstore.errors import StoreError
from zstore.geo.report.summary import describe
from zstore.jobs.record import begin
from zstore.storage.memory import MemoryStore

from ..faults.drills import FailingStore


class Conditional(MemoryStore):
    """A store whose locks keep nobody of another process out."""

    notices_changes = True


@pytest.mark.parametrize("kind", [Conditional, MemoryStore])
def test_the_shape_stays_while_a_job_is_unfinished(kind) -> None:
    store = kind()
    array = zstore.create_array(store, "a", data=np.arange(4))
    job = begin(store, "a", "convert", {}, name="0" * 16)
    before = {key: bytes(store.get(key) or b"") for key in store.list()}
    with pytest.raises(StoreError, match="cannot change the shape: a conversion is unfinished; go on with"):
        array.append(np.arange(2))
    assert {key: bytes(store.get(key) or b"") for key in store.list()} == before
    job.end()
    assert array.append(np.arange(2)) == (6,)


def test_an_interrupted_change_of_shape_is_named_and_ended_by_the_next_one() -> None:
    store = Conditional()
    zstore.create_group(store)
    zstore.create_array(store, "a", data=np.arange(8), chunks=(2,))
    dying = FailingStore(store, "")
    dying.left, dying.times = 1, 1 << 30
    with pytest.raises(StoreError, match="the store is gone"):
        zstore.open_array(dying, "a").append(np.arange(8))
    [work] = find_unfinished(store, "")
    assert (work.path, work.work) == ("a", "resize")
    assert "the change of an array's shape is unfinished" in str(work)
    assert ", 'a', mode='r+').resize(...)" in work.again
    assert [str(found) for found in zstore.verify(store).unfinished] == [str(work)]
    assert [str(found) for found in describe(zstore.open(store, mode="r")).unfinished] == [str(work)]
    assert [found.rule for found in zstore.validate(store).findings if found.severity == "error"] == ["ZS-09"]
    with pytest.raises(StoreError, match="unfinished work in what is to be copied"):
        zstore.copy(store, MemoryStore())
    array = zstore.open_array(store, "a")
    assert array[...].tolist() == [*range(8)]
    array.append(np.arange(3))
    assert array[...].tolist() == [*range(8), 0, 1, 2]
    assert not find_unfinished(store, "")


def test_where_there_are_locks_an_interrupted_append_leaves_strays_and_no_intent() -> None:
    store = MemoryStore()
    zstore.create_array(store, "a", data=np.arange(8), chunks=(2,))
    dying = FailingStore(store, "")
    dying.left, dying.times = 1, 1 << 30
    with pytest.raises(StoreError, match="the store is gone"):
        zstore.open_array(dying, "a").append(np.arange(8))
    assert not find_unfinished(store, "") and zstore.verify(store).stray_count == 4
    array = zstore.open_array(store, "a")
    assert array[...].tolist() == [*range(8)]
    array.resize(array.shape)
    assert zstore.verify(store).stray_count == 0
