"""Archives, chunks and documents that claim far more than they hold take no more than the limits say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base.byterange import AtMost, ByteRange
from zstore.base.limits import Limits, current_limits
from zstore.codecs.base import Chain, ChunkSpec
from zstore.errors import CodecError, MetadataError, StoreError, UnsupportedError
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore

from . import hostile

# Per kind: how its use ends, and the most MiB that it may take, for so many MiB (of files with holes: GiB).
ENDS = {
    "zip_chunk": ("CodecError", 32),
    "zip_document": ("limit document_size", 48),
    "zip_shard": ("ChecksumError", 96),
    "vlen_zstd": ("set_limits(chunk_size", 32),
    "vlen_gzip": ("set_limits(chunk_size", 96),
    "vlen_item": ("set_limits(chunk_size", 32),
    "document": ("limit document_size", 64),
    "document_of_lists": ("the limit document_size", 128),
    "nested_document": ("nested deeper than 256 levels", 32),
    "sparse_chunk": ("none that decodes to this array's has more", 32),
    "sparse_plain_chunk": ("decoded size is", 32),
}
# The same with two thousand, and what takes its time: as much as the limits let through.
LONG_ENDS = {
    **ENDS,
    "zip_shard": ("limit value_size", 32),
    "vlen_gzip": ("set_limits(chunk_size", 192),
    "document_of_lists": ("the limit document_size", 128),
    "sparse_strings": ("none that decodes to this array's has more", 1100),
}


def drill(folder: Path, ends: dict[str, tuple[str, int]], size: int) -> list[str]:
    """What went otherwise than it should."""
    words = [f"{kind}={hostile.MAKERS[kind](folder / kind, size)}" for kind in ends]
    done = subprocess.run(
        [sys.executable, hostile.__file__, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["kind"] for entry in found] == [*ends]
    for entry in found:
        print(entry)
    return [str(e) for e in found if ends[e["kind"]][0] not in e["ended"] or e["mib"] > ends[e["kind"]][1]]


def test_claims_take_no_memory(tmp_path: Path) -> None:
    assert drill(tmp_path, ENDS, 80) == []


@pytest.mark.slow
def test_large_claims_take_no_more(tmp_path: Path) -> None:
    assert drill(tmp_path, LONG_ENDS, 2048) == []


def test_what_a_limit_refuses_is_read_where_the_caller_allows_it(tmp_path: Path) -> None:
    place = hostile.vlen_item(tmp_path / "a", 80)
    with pytest.raises(CodecError, match="chunk_size"):
        zstore.open_array(place)[0]
    try:
        zstore.set_limits(chunk_size=128 << 20)
        assert len(zstore.open_array(place)[0]) == 80 << 20
        zstore.set_limits(chunk_size=1 << 20)
        with pytest.raises(CodecError, match="chunk_size"):
            zstore.open_array(place)[0]
    finally:
        zstore.set_limits(chunk_size=None)


def test_many_items_that_are_all_the_same_are_no_claim() -> None:
    """As much as a column of one value packs to almost nothing."""
    store = MemoryStore()
    items = np.full(1_300_000, "abcdefghijklmnopqrstuvwxyz" * 2, "T")
    array = zstore.create_array(store, data=items, chunks=items.shape, compressors="zstd")
    assert len(store.get("c/0") or b"") * 1000 < 56 * len(items)
    assert (array[::1000] == items[0]).all()


def test_a_deflated_member_is_read_by_pieces_and_checked(tmp_path: Path) -> None:
    value = np.random.default_rng(0).bytes(3 << 20) + bytes(5 << 20)
    with ZipStore(tmp_path / "x.zip", deflate=True) as store:
        store.put("a", value)
    store = ZipStore(tmp_path / "x.zip", read_only=True)
    for begin, size in (
        (0, None),
        (0, 10),
        ((3 << 20) - 5, 10),
        (1 << 20, 1 << 20),
        (-7, None),
        (8 << 20, 5),
    ):
        wish = ByteRange(begin, size)
        first, last = wish.resolve(len(value))
        assert bytes(store.get("a", wish) or b"") == value[first:last]
    for most in (0, 10, 1 << 20, (1 << 20) + 1, 8 << 20, 9 << 20):
        assert bytes(store.get("a", AtMost(most)) or b"") == value[:most]
    data = bytearray((tmp_path / "x.zip").read_bytes())
    place = data.rfind(b"PK\1\2") + 16
    data[place] ^= 1  # the checksum, in the directory
    (tmp_path / "y.zip").write_bytes(data)
    store = ZipStore(tmp_path / "y.zip", read_only=True)
    for wish in (None, ByteRange(0, 10)):
        with pytest.raises(StoreError, match="its checksum is"):
            store.get("a", wish)


# Settings


def test_limits_are_settings_and_say_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    default = current_limits()
    for name in (
        "document_size",
        "chunk_size",
        "value_size",
        "attempt_count",
        "connect_time",
        "read_time",
        "total_time",
    ):
        fraction = () if name.endswith("_time") else (1.5, 2.0)
        for wrong in (0, -1, "many", float("nan"), float("inf"), *fraction):
            with pytest.raises(ValueError, match=f"limit {name} is .*; expected .* above 0"):
                zstore.set_limits(**{name: wrong})  # type: ignore[misc]
        zstore.set_limits(**{name: 7})  # type: ignore[misc]
        assert getattr(current_limits(), name) == 7
        monkeypatch.setenv(f"ZSTORE_LIMIT_{name.upper()}", "9")
        zstore.set_limits(**{name: None})  # type: ignore[misc]
        assert getattr(current_limits(), name) == 9
        monkeypatch.delenv(f"ZSTORE_LIMIT_{name.upper()}")
        zstore.set_limits(**{name: None})  # type: ignore[misc]
    assert current_limits() == default == Limits()
    with pytest.raises(TypeError, match="no limit 'size'; expected document_size"):
        zstore.set_limits(size=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "ZSTORE_LIMIT_DOCUMENT_SIZE",
            "banana",
            "ZSTORE_LIMIT_DOCUMENT_SIZE is 'banana'; expected a whole number",
        ),
        (
            "ZSTORE_LIMIT_READ_TIME",
            "-1",
            "ZSTORE_LIMIT_READ_TIME is '-1'; expected a number of seconds above 0",
        ),
        ("ZSTORE_LIMIT_SIZE", "3", "no limit 'ZSTORE_LIMIT_SIZE'"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, reason: str) -> None:
    code = "import zstore; zstore.create_group('memory://limits'); zstore.open('memory://limits')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, name: value},
    )
    assert reason in done.stderr


# What documents may say


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("count", [32, 33, 64, 65, 1000])
def test_an_array_has_32_dimensions_at_most(zarr_format: int, count: int) -> None:
    made = MemoryStore()
    array = zstore.create_array(made, shape=(1,) * 32, dtype="i1", zarr_format=zarr_format)
    array[...] = 5
    assert zstore.open_array(made)[...].sum() == 5
    [key] = [key for key in made.list() if key in ("zarr.json", ".zarray")]
    document = json.loads(bytes(made.get(key) or b""))
    document["shape"] = [1] * count
    document.update({"chunks": [1] * count} if zarr_format == 2 else {})
    if zarr_format == 3:
        document["chunk_grid"]["configuration"]["chunk_shape"] = [1] * count
    made.put(key, json.dumps(document).encode())
    if count > 32:
        with pytest.raises(UnsupportedError, match=f"shape has {count} dimensions; expected at most 32"):
            zstore.open(made)
        with pytest.raises(UnsupportedError, match="expected at most 32"):
            zstore.create_array(MemoryStore(), shape=(1,) * count, dtype="i1", zarr_format=zarr_format)


@pytest.mark.parametrize("depth", [200, 254, 300, 900, 5000, 100_000])
def test_attributes_are_nested_as_deep_as_every_use_of_them_allows(depth: int) -> None:
    store = MemoryStore()
    text = '{"zarr_format": 3, "node_type": "group", "attributes": {"a": %s%s}}'
    store.put("zarr.json", (text % ("[" * depth, "]" * depth)).encode())
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    if depth > 256:
        for act in (
            lambda: zstore.open(store),
            lambda: zstore.consolidate(store),
            lambda: zstore.create_group(store, "b"),
        ):
            with pytest.raises(MetadataError, match="nested deeper than 256 levels"):
                act()
        with pytest.raises(MetadataError, match="attribute 'a' is nested deeper than 240 levels"):
            zstore.create_group(MemoryStore(), attributes={"a": value})
        return
    group = zstore.open_group(store)
    assert group.attrs["a"] == value and group.attrs.asdict() == {"a": value}
    group.attrs["b"] = 1
    assert zstore.open_group(store).attrs.asdict() == {"a": value, "b": 1}
    if depth <= 240:
        made = zstore.create_group(MemoryStore(), attributes={"a": value})
        assert zstore.consolidate(made).attrs["a"] == value


@pytest.mark.parametrize("name", ["__x", "__", "...", "....", "a/__b/c", "x/.../y"])
@pytest.mark.parametrize("kind", [MemoryStore, LocalStore])
def test_names_that_zarr_v3_keeps_are_read_and_not_made(tmp_path: Path, kind: Any, name: str) -> None:
    store = kind(*([tmp_path] if kind is LocalStore else []))
    group = zstore.create_group(store)
    for make in (
        lambda: group.create_group(name),
        lambda: group.create_array(name, shape=1, dtype="i1"),
        lambda: group.require_group(name),
        lambda: zstore.create_group(store, name),
        lambda: zstore.open(store, name, "w"),
    ):
        with pytest.raises(MetadataError, match="which Zarr v3 keeps for itself"):
            make()
    assert [*store.list()] == ["zarr.json"]
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        store.put("/".join([*parts[:count], "zarr.json"]), b'{"zarr_format": 3, "node_type": "group"}')
    assert zstore.open_group(store, name).path == name
    assert name in {path for path, _ in zstore.open_group(store).members(None)}


def test_names_that_zarr_allows_are_made() -> None:
    group = zstore.create_group(MemoryStore())
    for name in ("_x", "a__", ".x", "x.", "tab\there", "new\nline", "\x1b", "é", "a b"):
        group.create_array(name, data=np.arange(3))
        assert group[name][...].tolist() == [0, 1, 2]
    old = zstore.create_group(MemoryStore(), zarr_format=2)
    assert [old.create_group(name).path for name in ("__x", "...")] == ["__x", "..."]


def test_a_chain_knows_the_most_bytes_of_a_stored_chunk() -> None:
    for options, is_known in (({}, True), ({"shards": 100}, False), ({"compressors": None}, True)):
        array = zstore.create_array(MemoryStore(), data=np.arange(100), chunks=10, **options)
        chain = Chain.bind(array.model.codecs, ChunkSpec((100,), array.dtype, 0))
        assert (chain.stored_limit is not None) == is_known
