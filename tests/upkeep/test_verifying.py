"""`zstore.verify` and `zstore verify`: everything damaged is named, everything sound is not."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
import zstore.jobs.upkeep.manifest as manifests
import zstore.jobs.upkeep.verify as verifying
from zstore.engine.intents import find_unfinished
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.jobs import chunks
from zstore.jobs.plan import name_job
from zstore.jobs.record import asked_as, begin
from zstore.jobs.upkeep.verify import Damage
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.objects.failures import no_listing


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path / "store") if request.param == "local" else MemoryStore()


def fill(store: Any) -> zstore.Group:
    """A hierarchy with arrays of every kind, all sound."""
    group = zstore.create_group(store)
    plain = group.create_array("plain", shape=(10, 10), chunks=(4, 4), dtype="i4")
    plain[...] = np.arange(100).reshape(10, 10)
    sharded = group.create_array("in/sharded", shape=(20, 20), chunks=(4, 4), shards=(8, 8), dtype="f4")
    sharded[...] = 1 + np.arange(400).reshape(20, 20)
    group.create_array("text", data=np.array(["a", "bc", "d"]), dtype=str, chunks=(2,))
    group.create_array("scalar", data=np.int32(7))
    group.create_array("empty", shape=(0, 3), dtype="u1")
    uneven = group.create_array("uneven", shape=(9,), chunks=[[2, 3, 4]], dtype="i2", compressors=["crc32c"])
    uneven[...] = range(1, 10)
    python = group.create_array("python", shape=(6,), chunks=(3,), dtype="u1", compressors={"id": "bz2"})
    python[:3] = 1
    return group


def change(store: Any, key: str, at: int, bit: int = 1) -> None:
    whole = bytearray(bytes(store.get(key)))
    whole[at] ^= bit
    store.put(key, bytes(whole))


def test_what_is_sound(store):
    group = fill(store)
    found = zstore.verify(group)
    assert found.is_sound, found.damages
    assert (found.array_count, found.missing_count, found.stray_count) == (7, 1, 0)
    assert found.chunk_count == 9 + 9 + 2 + 1 + 3 + 1
    assert zstore.verify(store).chunk_count == zstore.verify(group, "").chunk_count == found.chunk_count
    assert zstore.verify(group, "in").chunk_count == 9
    assert zstore.verify(group["plain"]).chunk_count == 9


DAMAGES: dict[str, tuple[str, int]] = {
    "plain/c/2/1": ("plain", -1),
    "in/sharded/c/0/1": ("in/sharded", 0),
    "in/sharded/c/2/2": ("in/sharded", -1),
    "text/c/0": ("text", -1),
    "scalar/c": ("scalar", -1),
    "uneven/c/1": ("uneven", 0),
    "python/c/0": ("python", 5),
}


def test_every_damaged_chunk_is_named_and_no_other(store):
    fill(store)
    for key, (path, at) in DAMAGES.items():
        before = bytes(store.get(key))
        change(store, key, at)
        found = zstore.verify(store)
        assert [(damage.path, damage.key, damage.kind) for damage in found.damages] == [(path, key, "chunk")]
        assert found.damages[0].cause
        store.put(key, before)
    for key, (_, at) in DAMAGES.items():
        change(store, key, at)
    found = zstore.verify(store)
    assert {damage.key for damage in found.damages} == set(DAMAGES)
    assert found.damage_count == len(found.damages) == len(DAMAGES)


def test_every_damaged_inner_chunk_is_named(store):
    array = zstore.create_array(
        store, shape=(8, 8), chunks=(4, 4), shards=(8, 8), dtype="u1", compressors=["crc32c"]
    )
    array[...] = 1
    for at in (0, 20, 60):
        change(store, "c/0/0", at)
    found = zstore.verify(store)
    assert [damage.cause for damage in found.damages] == [
        f"codec 'crc32c' failed of inner chunk {inner}: the checksum does not match"
        for inner in ((0, 0), (0, 1), (1, 1))
    ]


def test_documents_that_cannot_be_read_spoil_no_other(store):
    fill(store)
    store.put("plain/zarr.json", b'{"zarr_format": 3,')
    broken = json.loads(bytes(store.get("scalar/zarr.json")))
    store.put("scalar/zarr.json", json.dumps({**broken, "codecs": [{"name": "nobody.has.it"}]}).encode())
    found = zstore.verify(store)
    assert {(damage.path, damage.kind) for damage in found.damages} == {
        ("plain", "document"),
        ("scalar", "document"),
    }
    assert found.array_count == 6
    assert "nobody.has.it" in found.damages[-1].cause + found.damages[0].cause
    store.put("zarr.json", b"{")
    assert [damage.key for damage in zstore.verify(store).damages] == ["zarr.json"]


def test_a_shard_that_claims_more_than_it_holds_is_not_looked_through(monkeypatch):
    """A hundred bytes say that there are 2^24 inner chunks; what is there is found by halves."""
    store, reads = MemoryStore(), []
    read = verifying._Checked._read
    monkeypatch.setattr(verifying._Checked, "_read", lambda self, box: reads.append(box) or read(self, box))
    zstore.create_array(store, "claims", shape=1 << 24, chunks=1, shards=1 << 24, dtype="u1")
    store.put("claims/c/0", bytes(100))
    [damage] = zstore.verify(store, "claims").damages
    assert damage.cause == "shard has 100 bytes, its index alone takes 268435460"
    assert reads == [(slice(0, 1),)]
    options = {"chunks": 1, "shards": 1 << 12, "dtype": "u1", "compressors": ["crc32c"]}
    array = zstore.create_array(store, "holds", shape=1 << 12, **options)
    array[...] = 1
    change(store, "holds/c/0", 5 * 700)
    reads.clear()
    [damage] = zstore.verify(store, "holds").damages
    assert "inner chunk (700,)" in damage.cause
    assert len(reads) < 100
    change(store, "holds/c/0", -1)
    assert [damage.cause for damage in zstore.verify(store, "holds").damages] == [
        "shard index does not match its checksum"
    ]


BAD: dict[str, Any] = {
    "too many dimensions": {
        "shape": [1] * 70,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1] * 70}},
    },
    "unknown codec": {"codecs": [{"name": "nobody.has.it"}]},
    "codecs of no codec": {"codecs": "bytes"},
    "an inner chunk of nothing": {
        "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [0], "codecs": []}}]
    },
    "unknown data type": {"data_type": "nobody.has.it"},
    "a shape beyond counting": {"shape": [1 << 80]},
    "a chunk beyond memory": {
        "shape": [1 << 62],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 62]}},
    },
    "fill value of another type": {"fill_value": {"a": 1}},
    "attributes that are a list": {"attributes": [1, 2]},
    "no text": b"\xff\xfe{",
    "no object": b"[]",
    "nothing": b"",
    "nested": b'{"zarr_format": 3, "node_type": "group", "attributes": ' + b'{"a":' * 50_000,
    "megabytes of blanks": b" " * (32 << 20),
    "a number of many digits": b'{"zarr_format": 3, "node_type": "group", "a": ' + b"9" * 5000 + b"}",
}


def test_no_bad_node_ends_the_looking_at_the_others(store):
    group = zstore.create_group(store)
    for name in ("a good one", "the last good one"):
        group.create_array(name, data=np.arange(10), chunks=5)
    good = json.loads(bytes(store.get("a good one/zarr.json")))
    for name, change in BAD.items():
        document = change if isinstance(change, bytes) else json.dumps({**good, **change}).encode()
        store.put(f"{name}/zarr.json", document)
    found = zstore.verify(store)
    assert {damage.path for damage in found.damages} == set(BAD)
    assert found.chunk_count == 4 and not found.is_sound
    verdict = zstore.validate(store)
    named = {finding.path for finding in verdict.findings if finding.severity != "note"}
    assert set(BAD) <= named and not verdict.is_valid()


def test_missing_chunks_count_and_are_damage_where_asked(store):
    fill(store)
    store.delete("plain/c/1/1")
    found = zstore.verify(store)
    assert (found.is_sound, found.missing_count) == (True, 2)
    found = zstore.verify(store, missing="error")
    assert [(damage.key, damage.kind) for damage in found.damages] == [
        ("plain/c/1/1", "missing"),
        ("python/c/1", "missing"),
    ]
    assert found.missing_count == 2
    with pytest.raises(ValueError, match="missing='no'"):
        zstore.verify(store, missing="no")


def test_missing_inner_chunks_hide_no_damage(store):
    array = zstore.create_array(
        store, shape=(8,), chunks=(2,), shards=(8,), dtype="u1", compressors=["crc32c"]
    )
    array[4:] = 1
    assert zstore.verify(store).is_sound
    change(store, "c/0", 7)
    causes = {damage.cause for damage in zstore.verify(store, missing="error").damages}
    assert causes == {
        "inner chunk (0,) is missing",
        "inner chunk (1,) is missing",
        "codec 'crc32c' failed of inner chunk (3,): the checksum does not match",
    }


def test_chunks_outside_their_array_are_counted(store):
    array = zstore.create_array(store, shape=(4,), chunks=(2,), dtype="u1", compressors=None)
    array[...] = 1
    store.put("c/9", b"xx")
    store.put("c/readme", b"no chunk")
    found = zstore.verify(store)
    assert (found.is_sound, found.chunk_count, found.stray_count) == (True, 2, 1)


def test_old_formats(store):
    zstore.create_array(store, "one/deep", data=np.arange(9), chunks=(4,), zarr_format=1)
    zstore.create_array(store, "two/a", data=np.arange(9), chunks=(4,), zarr_format=2)
    store.delete(".zgroup")
    found = zstore.verify(store)
    assert (found.is_sound, found.array_count, found.chunk_count) == (True, 2, 6)
    change(store, "one/deep/1", 4, 255)
    store.put("two/a/1", b"")
    assert {damage.key for damage in zstore.verify(store).damages} == {"one/deep/1", "two/a/1"}


def test_nothing_there_is_an_error(store):
    with pytest.raises(NotFoundError):
        zstore.verify(store)
    zstore.create_group(store)
    assert zstore.verify(store).array_count == 0


class Unlisted(MemoryStore):
    """A store that cannot list, as a web server."""

    def as_read_only(self):
        return self

    def list(self, prefix: str = ""):
        raise no_listing(self.url, prefix)

    list_children = list


def test_a_store_that_cannot_list_is_gone_through_by_its_consolidated_metadata():
    store = MemoryStore()
    zstore.consolidate(fill(store))
    change(store, "plain/c/2/1", -1)
    unlisted = Unlisted()
    for key in store.list(""):
        unlisted.put(key, store.get(key))
    found = zstore.verify(unlisted)
    assert [damage.key for damage in found.damages] == ["plain/c/2/1"]
    assert (found.array_count, found.chunk_count, found.missing_count) == (7, 25, 1)
    unlisted.delete("zarr.json")
    with pytest.raises(StoreError):
        zstore.verify(unlisted)


def test_large_shards_are_looked_at_in_stretches(monkeypatch, tmp_path):
    array = zstore.create_array(tmp_path, shape=(64, 64), chunks=(8, 8), shards=(64, 64), dtype="u1")
    array[...] = np.arange(64, dtype="u1") + 1
    monkeypatch.setattr(verifying, "MEMORY_SIZE", 8 * 24)
    taken = []
    real = np.empty

    def empty(shape, *args, **kwargs):
        taken.append(np.prod(shape))
        return real(shape, *args, **kwargs)

    monkeypatch.setattr(chunks.np, "empty", empty)
    assert zstore.verify(tmp_path).is_sound
    assert max(taken) <= 8 * 24
    assert sum(taken) == 64 * 64


def test_damage_is_described_up_to_a_limit_and_counted_beyond(monkeypatch):
    monkeypatch.setattr(verifying, "DAMAGE_LIMIT", 3)
    store = MemoryStore()
    array = zstore.create_array(store, shape=(600,), chunks=(1,), dtype="u1", compressors=None)
    array[...] = 1
    for place in range(500):
        store.put(f"c/{place}", b"xx")
    found = zstore.verify(store)
    assert (found.damage_count, len(found.damages), found.chunk_count) == (500, 3, 600)
    seen: list[tuple[int, int]] = []
    zstore.verify(store, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == 3 and sorted(seen) == seen and seen[-1] == (600, 600)


@pytest.mark.parametrize("is_manifest", [False, True])
def test_any_executor_finds_the_same_and_goes_on_where_it_was(is_manifest, tmp_path, monkeypatch):
    monkeypatch.setattr("zstore.jobs.upkeep.windows.WINDOW_COUNT", 4)
    monkeypatch.setattr("zstore.jobs.journal.WAITING_SECONDS", -1)
    target = tmp_path / "store"
    fill(LocalStore(target))
    options = {"manifest": tmp_path / "m"} if is_manifest else {}
    zstore.manifest(target, file=tmp_path / "m")
    for key in ("in/sharded/c/1/1", "plain/c/0/2", "uneven/c/1"):
        change(LocalStore(target), key, -1)
    (target / "plain" / "c" / "2" / "2").write_bytes(b"cut")
    expected = zstore.verify(target, **options)
    assert expected.damage_count == len(expected.damages) == 4
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as pool:
        assert zstore.verify(target, executor=pool, **options) == expected
    looker = manifests.Comparing if is_manifest else verifying._Checking
    looked, look = list[Any](), looker.check

    def note(self: Any, piece: Any) -> Any:
        looked.append(piece)
        return look(self, piece)

    monkeypatch.setattr(looker, "check", note)
    seen = list[int]()

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    call = partial(zstore.verify, target, journal=tmp_path / "j", **options)
    with ThreadPoolExecutor(1) as one:
        with pytest.raises(KeyboardInterrupt):
            call(executor=one, progress=stop)
        [left] = find_unfinished(LocalStore(tmp_path / "j"), "")
        assert left.again.startswith("zstore.verify(target=")
        before = {*looked}
        with pytest.raises(MetadataError, match="a verification with other arguments was interrupted"):
            zstore.verify(target, "in", journal=tmp_path / "j", **options)
        looked.clear()
        assert call(executor=one, progress=lambda *_: None) == expected
    # What was known is not looked at again: at least the first two windows.
    assert len(before - {*looked}) >= 8 and len(looked) == len({*looked}) > 0
    assert not [path for path in (tmp_path / "j").rglob("*") if path.is_file()]
    with pytest.raises(StoreError, match=r"cannot put .* into itself"):
        zstore.verify(target, journal=target / "j", **options)


class TestCommand:
    """`zstore verify`."""

    @pytest.fixture
    def run(self):
        testing = pytest.importorskip("click.testing", reason="the command line is made with click")
        pytest.importorskip("rich", reason="the command line draws with rich")
        from zstore.cli.root import zstore as zstore_command

        def run(*words: Any, command: str = "verify") -> Any:
            return testing.CliRunner().invoke(zstore_command, [command, *map(str, words)])

        return run

    def test_sound(self, run, tmp_path: Path) -> None:
        fill(LocalStore(tmp_path))
        result = run(tmp_path)
        assert (result.exit_code, result.output.count("\n")) == (0, 1)
        assert "7 arrays, 25 chunks, 1 never written, 0 outside their arrays: sound" in result.output
        assert run(tmp_path, "--missing").exit_code == 1
        assert run(tmp_path, "--array", "in").exit_code == 0
        assert run(tmp_path / "none").exit_code == 1

    def test_damaged(self, run, tmp_path: Path) -> None:
        fill(LocalStore(tmp_path))
        change(LocalStore(tmp_path), "plain/c/2/1", -1)
        result = run(tmp_path)
        assert result.exit_code == 1
        assert "chunk plain/c/2/1: codec 'zstd' failed" in result.output
        assert "1 damaged" in result.output
        result = run(tmp_path, "--json")
        assert result.exit_code == 1
        told = json.loads(result.output)
        assert (told["is_sound"], told["damage_count"], told["chunk_count"]) == (False, 1, 25)
        assert Damage(**told["damages"][0]).key == "plain/c/2/1"

    def test_unfinished(self, run, tmp_path: Path) -> None:
        """Work that a command has begun is gone on with by the words that began it."""
        store = LocalStore(tmp_path / "a b")
        with asked_as(["zstore", "pyramid", "scene", str(tmp_path / "a b"), "--levels", "2"]):
            begin(store, "", "build_pyramid", {}, name=name_job({}), is_ready=False)
        words = f"zstore pyramid scene '{tmp_path / 'a b'}' --levels 2 --resume"
        for command in ("verify", "info", "validate"):
            result = run(tmp_path / "a b", command=command)
            assert result.exit_code == 1, command
            assert " ".join(words.split()) in " ".join(result.output.split()), command
            assert "the building of a pyramid" in result.output
        told = json.loads(run(tmp_path / "a b", "--json").output)
        assert (told["is_sound"], told["unfinished"][0]["again"]) == (False, words)
        # Another place of the same store, and one that holds it.
        fill(LocalStore(tmp_path / "in"))
        (tmp_path / "a b").rename(tmp_path / "in" / "in" / "new")
        assert run(tmp_path / "in").exit_code == run(tmp_path / "in" / "in").exit_code == 1
        assert run(tmp_path / "in", "--array", "plain").exit_code == 0

    def test_an_interruption_ends_it_cleanly(self, run, tmp_path: Path, monkeypatch) -> None:
        fill(LocalStore(tmp_path))

        def interrupt(*_: Any) -> Any:
            raise KeyboardInterrupt

        monkeypatch.setattr(verifying._Checked, "check", interrupt)
        result = run(tmp_path)
        assert (result.exit_code, "Aborted" in result.output) == (1, True)
