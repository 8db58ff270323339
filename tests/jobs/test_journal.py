"""Journals: small, whatever the number of units; and what in them makes no sense counts as nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from zstore.jobs.journal import Journal
from zstore.storage.memory import MemoryStore


@pytest.fixture(autouse=True)
def _written_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", 3600)


def size_of(store: MemoryStore) -> int:
    return sum(len(store.get(key) or b"") for key in store.list(""))


@pytest.mark.parametrize(
    ("numbers", "most"), [(range(0, 10**7, 8), 20_000), (range(10**6), 2_000), (None, 1_300_000)]
)
def test_ten_million_units_take_a_bit_each_at_most(numbers: Any, most: int) -> None:
    chance = random.Random(0)
    if numbers is None:
        numbers = [10**7 - 1, *(chance.randrange(10**7) for _ in range(500_000))]
    store = MemoryStore()
    journal = Journal(store, "j")
    for number in numbers:
        journal.put("a", number, b"")
    journal.write()
    assert size_of(store) <= most
    assert [*store.list("")] == ["j/a/done"]
    again, known = Journal(store, "j"), set(numbers)
    for number in [
        *chance.sample(list(numbers), 1000),
        *(chance.randrange(10**7) for _ in range(1000)),
        10**12,
    ]:
        assert again.get("a", number) == (b"" if number in known else None)
    assert again.get("b", 0) is None


def test_results_are_kept_many_together_and_found_again() -> None:
    store, chance = MemoryStore(), random.Random(1)
    journal, known = Journal(store, "j"), dict[int, bytes]()
    for round_ in range(3):
        for number in chance.sample(range(round_ * 100, round_ * 100 + 150), 90):
            known[number] = chance.randbytes(chance.randrange(1, 50))
            journal.put("a", number, known[number])
        journal.write()
    assert sorted(store.list("")) == ["j/a/1", "j/a/2", "j/a/3"]
    again = Journal(store, "j")
    twice = {number for number in range(100, 300) if number % 100 < 50}
    for number in range(400):
        assert again.get("a", number) == known.get(number) or number in twice
    # What comes after an interruption lies beside what was there.
    again.put("a", 5000, b"x")
    again.write()
    assert Journal(store, "j").get("a", 5000) == b"x" and sorted(store.list(""))[-1] == "j/a/4"


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: b"\n",
        lambda value: value[:-3],
        lambda value: value[:11],
        lambda value: b"\xff" * 8 + value[8:],
        lambda value: (2**40).to_bytes(8, "little") + value[8:],
        lambda value: value[:24] + b"\xff" * 8 + value[32:],
        lambda value: bytes(len(value)),
        lambda value: value[:-1] + bytes([value[-1] ^ 1]),
    ],
)
def test_what_makes_no_sense_is_not_known(damage: Any) -> None:
    store = MemoryStore()
    journal = Journal(store, "j")
    for number, data in enumerate([b"", b"one", b"two"]):
        journal.put("a", number, data)
    journal.put_state("a", 3, lambda: b"state")
    journal.write()
    for key in [*store.list("")]:
        store.put(key, damage(bytes(store.get(key) or b"")))
    store.put("j/a/99999999999999999999", b"x")
    store.put("j/a/other", b"x")
    again = Journal(store, "j")
    for number, data in enumerate([b"", b"one", b"two"]):
        assert again.get("a", number) in (None, data)
    assert again.get_state("a") == (0, b"")
    again.put("a", 7, b"seven")
    again.write()
    assert Journal(store, "j").get("a", 7) == b"seven"


def test_a_state_that_is_being_changed_is_not_written() -> None:
    store = MemoryStore()
    journal = Journal(store, "j")
    assert journal.get_state("a") == (0, b"")
    journal.put_state("a", 3, lambda: b"three")
    journal.write()
    journal.put_state("a", 4, lambda: b"four")
    journal.forget_state("a")
    journal.write()
    assert Journal(store, "j").get_state("a") == (3, b"three")
