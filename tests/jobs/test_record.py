"""Records of unfinished work: found wherever they lie, compared by name, and never believed."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import pytest

import zstore
from zstore.engine.intents import INTENT, WORKS, find_unfinished
from zstore.errors import ChangedError, MetadataError, StoreError
from zstore.jobs.plan import name_job
from zstore.jobs.record import asked_as, begin, resumable
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

PLAN = {"source": "s", "levels": 3}


def begin_one(store: Any, base: str = "", plan: Any = PLAN, **options: Any) -> Any:
    return begin(store, base, "build_pyramid", plan, name=name_job(plan), **options)


def test_work_is_named_until_it_ends_and_gone_on_with_where_it_is_the_same() -> None:
    store = MemoryStore()
    job = begin_one(store)
    journal = job.journal()
    journal.put("a", 0, b"1")
    journal.write()
    with pytest.raises(StoreError, match=r"a pyramid is unfinished; go on with: zstore\.build_p"):
        begin_one(store)
    with pytest.raises(MetadataError, match="arguments was interrupted here: levels 3, now 4; expected"):
        begin_one(store, plan={**PLAN, "levels": 4}, resume=True)
    with pytest.raises(MetadataError, match="of a pyramid was interrupted here; expected a conv"):
        begin(store, "", "convert", PLAN, name=name_job(PLAN), resume=True)
    again = begin_one(store, resume=True)
    assert again.is_resumed and again.name == job.name
    # What is begun anew knows nothing of what was done, whatever its name.
    kept = again.journal()
    kept.put("a", 0, b"1")
    kept.write()
    assert begin_one(store, resume=True).journal().get("a", 0) == b"1"
    fresh = begin_one(store, replace=True, is_ready=False)
    assert not fresh.is_resumed and fresh.journal().get("a", 0) is None
    # As long as something is in the way, nothing can be resumed, and only the last one removes it.
    last = begin_one(store, resume=True)
    assert not last.is_resumed
    with pytest.raises(ChangedError, match="somebody else"):
        fresh.clear(lambda: pytest.fail("removed what the last one may have made"))
    last.clear(lambda: None)
    assert begin_one(store, resume=True).is_resumed
    fresh.end()
    assert find_unfinished(store, "")
    last.end()
    assert [*store.list("")] == [] == find_unfinished(store, "")


def test_a_journal_that_has_outlived_its_record_says_nothing() -> None:
    store = MemoryStore()
    journal = begin_one(store).journal()
    journal.put("a", 0, b"1")
    journal.write()
    store.delete(INTENT)
    begin_one(store)  # and is killed before it writes any
    assert begin_one(store, resume=True).journal().get("a", 0) is None


def test_of_two_who_begin_at_once_one_is_told_of_the_other() -> None:
    class Meeting(MemoryStore):
        """Somebody else begins when it has just been seen that nobody has."""

        def put_new(self, key: str, value: Any) -> None:
            super().put_new(key, value)
            super().put_new(key, value)

    with pytest.raises(StoreError, match=r"a pyramid is unfinished; go on with: zstore\.build_p") as caught:
        begin_one(Meeting())
    assert not isinstance(caught.value, ChangedError)


def test_addresses_are_recorded_without_their_secrets() -> None:
    store, plan = MemoryStore(), {"source": "zip::https://me:hush@h/x.zip?sig=hush-hush", "levels": 3}
    with asked_as(["zstore", "convert", "https://me:hush@h/x?sig=hush-hush|zip:a", "b"]):
        begin_one(store, plan=plan)
    assert b"hush" not in bytes(store.get(INTENT) or b"hush")
    [found] = find_unfinished(store, "")
    assert found.again.startswith("zstore convert 'https://...@h/x?...|zip:a' b")
    assert begin_one(store, plan=plan, resume=True).is_resumed
    with pytest.raises(MetadataError, match="other arguments was interrupted here: source"):
        begin_one(store, plan={**plan, "source": plan["source"] + "1"}, resume=True)


def test_work_within_work_is_one() -> None:
    store = MemoryStore()
    with asked_as(["zstore", "convert", "a.tif", "b", "--pyramid"]):
        outer = begin(store, "", "raster_to_zarr", {}, name=name_job({}))
        inner = begin_one(store)
        inner.end()
        [found] = find_unfinished(store, "")
        assert found.again == "zstore convert a.tif b --pyramid --resume"
        outer.end()
        assert not find_unfinished(store, "")
        begin_one(store).end()


@pytest.mark.parametrize("base", ["", "group", "group/array", "group/new", "group/on/the/way", "v2", "new"])
def test_it_is_found_wherever_it_lies(base: str) -> None:
    store = MemoryStore()
    root = zstore.create_group(store)
    root.create_array("group/array", data=np.arange(3))
    root.create_array("group/other", data=np.arange(3))
    begin_one(store, base)
    assert [work.path for work in find_unfinished(store, "")] == [base]
    assert [work.path for work in find_unfinished(store, base)] == [base]
    assert not find_unfinished(store, "group/other")


HOSTILE: dict[str, bytes] = {
    "no JSON": b"\xff{",
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "megabytes": b" " * (17 << 20),
    "another kind": b'{"work": "rm"}',
    "a kind that is none": b'{"work": ["build_pyramid"]}',
    "control characters": json.dumps(
        {"work": "convert", "asked": {"command": ["zstore", "convert", "\x1b[2Ja"]}}
    ).encode(),
    "another program": json.dumps({"work": "convert", "asked": {"command": ["rm", "-rf", "/"]}}).encode(),
    "words of a shell": json.dumps(
        {"work": "convert", "asked": {"command": ["zstore", "convert", "a; rm -rf ~", "$(x)"]}}
    ).encode(),
    "another function": json.dumps(
        {"work": "convert", "asked": {"call": "os.system", "arguments": {"a": "rm"}}}
    ).encode(),
    "words of Python": json.dumps(
        {"work": "convert", "asked": {"call": "convert", "arguments": {"a=1); import os; f(": 1}}}
    ).encode(),
    "a path for a name": json.dumps({"work": "build_pyramid", "name": "../..", "plan": PLAN}).encode(),
    "too many words": json.dumps({"work": "convert", "asked": {"command": ["zstore"] * 9999}}).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_is_shown_and_never_believed(name: str) -> None:
    store = MemoryStore()
    store.put(INTENT, HOSTILE[name])
    [found] = find_unfinished(store, "")
    known = {f"{work.function}(..., {work.again}=True)" for work in WORKS.values()}
    known |= {"what began it(...)", "zstore convert 'a; rm -rf ~' '$(x)' --resume"}
    assert found.again in known and str(found).isprintable()
    with pytest.raises(StoreError, match="is unfinished"):
        begin_one(store)
    if name != "a path for a name":
        with pytest.raises(MetadataError, match="interrupted here"):
            begin_one(store, resume=True)
    job = begin_one(store, resume=name == "a path for a name", replace=name != "a path for a name")
    assert job.name == name_job(PLAN) and not job.is_resumed
    job.end()
    assert [*store.list("")] == []


def test_arguments_are_said_as_python_takes_them(tmp_path: Any) -> None:
    store = MemoryStore()

    def convert(source: Any, target: Any, chunks: Any, progress: Any, options: Any) -> None:
        begin(store, "", "convert", {}, name=name_job({}))

    resumable(convert)(tmp_path, store, (2, "a'b"), progress=print, options={"a": None})
    [found] = find_unfinished(store, "")
    given = f"""source={str(tmp_path)!r}, target='memory://', chunks=[2, "a'b"]"""
    assert found.again == f"zstore.convert({given}, progress=..., options={{'a': None}}, resume=True)"


def test_record_and_journal_of_a_directory_end_in_one_step(tmp_path: Any, monkeypatch: Any) -> None:
    """A record that is left without its journal would have all made again."""
    store, removed = LocalStore(tmp_path), list[str]()
    job = begin_one(store)
    journal = job.journal()
    journal.put("a", 1, b"")
    journal.write()
    monkeypatch.setattr(LocalStore, "delete", lambda self, key: 1 / 0)
    remove = LocalStore.delete_prefix
    monkeypatch.setattr(LocalStore, "delete_prefix", lambda s, p: removed.append(p) or remove(s, p))
    job.end()
    assert removed == [".zstore-job"] and [*store.list("")] == []


def test_record_and_journal_of_a_bucket_end_in_one_request(monkeypatch: Any) -> None:
    """But for values that are too many for one: those go before, and the record with the last."""

    class Bucket(MemoryStore):
        requests: ClassVar[list[list[str]]] = []

        def delete_many(self, keys: Any) -> bool:
            self.requests += [[*keys]] if keys else []
            for key in keys:
                super().delete(key)
            return True

        def delete(self, key: str) -> None:
            raise AssertionError(key)

    monkeypatch.setattr("zstore.jobs.record.LAST_COUNT", 3)
    store = Bucket()
    job = begin_one(store)
    journal = job.journal()
    for number in range(5):
        journal.put("a", number, b"1")
        journal.write()
    job.end()
    first, last = store.requests
    assert len(first) == 2 and len(last) == 4 and last[-1] == INTENT and [*store.list("")] == []
