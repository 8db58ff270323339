"""References as a store: the contract, kerchunk's forms, the engine's batch, equality with fsspec."""

from __future__ import annotations

import base64
import json
import pickle
import re
import zlib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not entry_points(group="zstore", name="virtual"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual import parquet
from zstore_virtual.forms import open_manifest, write_manifest
from zstore_virtual.manifest import INLINE, WHOLE, Chunks, Manifest
from zstore_virtual.parquet import write_parquet
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import (
    CodecError,
    MetadataError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    UnsupportedError,
)
from zstore.extensions.registry import list_offers, stores
from zstore.storage.base import ByteRange, PrefixStore, Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store
from zstore.testing.stores import StoreContract


class TestVirtual(StoreContract):
    """Of values that lie one after the other in one file, and some in the references themselves."""

    can_write = False
    shares_processes = False

    def make_store(self, place: Path) -> Store:
        return self.make_store_with(place, {})

    def make_store_with(self, place: Path, values: dict[str, bytes]) -> Store:
        refs: dict[str, Any] = {}
        with open(place / "all.bin", "wb") as file:
            for n, (key, value) in enumerate(values.items()):
                file.write(b"between")
                refs[key] = [str(place / "all.bin"), file.tell(), len(value)]
                if n % 5 == 4:
                    refs[key] = "base64:" + base64.b64encode(value).decode()
                file.write(value)
        (place / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
        return open_store(f"virtual://{place}/refs.json")


def test_the_store_is_registered() -> None:
    assert stores.resolve("virtual").__name__ == "VirtualStore"
    lines = {line.name: line for line in list_offers() if line.package == "zstore-virtual"}
    found = {name for name in lines if name.startswith("virtual")}
    assert found == {"virtual", "virtualize", "virtualizarr.manifests.store.ManifestStore"}
    assert {line.state for line in lines.values()} == {"ok"}


def v2_array(shape: Any, chunks: Any, dtype: str = "<i4", **options: Any) -> str:
    document = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "order": "C"}
    document |= {"compressor": None, "fill_value": 0, "filters": None}
    return json.dumps(document | options)


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any], dict[str, list[Any]]]:
    """A file whose chunks lie in disorder, the items, and references to the chunks (30 × 20 by 8 × 8)."""
    data = np.arange(600, dtype="<i4").reshape(30, 20)
    padded = np.zeros((32, 24), "<i4")
    padded[:30, :20] = data
    cells = [(i, j) for i in range(4) for j in range(3)]
    refs = {}
    with open(tmp_path / "a.bin", "wb") as file:
        for i, j in sorted(cells, key=lambda cell: hash((cell, 7))):
            chunk = zlib.compress(padded[8 * i : 8 * i + 8, 8 * j : 8 * j + 8].tobytes())
            file.write(b"\xff" * 13)
            refs[f"x/{i}.{j}"] = [str(tmp_path / "a.bin"), file.tell(), len(chunk)]
            file.write(chunk)
    return tmp_path / "a.bin", data, refs


DOCUMENTS = {
    ".zgroup": '{"zarr_format": 2}',
    "x/.zarray": v2_array([30, 20], [8, 8], compressor={"id": "zlib", "level": 1}),
}


def write_refs(path: Path, refs: dict[str, Any], **more: Any) -> str:
    path.write_text(json.dumps({"version": 1, "refs": refs, **more}))
    return str(path)


def test_the_batch_reads_byte_ranges(archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, data, refs = archive
    array = zstore.open(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs}))["x"]
    monkeypatch.setattr(VirtualStore, "get_parts", None)  # chunks are no longer asked of the store
    assert np.array_equal(array[...], data)
    assert np.array_equal(array[3:29:5, ::-3], data[3:29:5, ::-3])
    assert np.array_equal(array.vindex[[0, 29, 7], [19, 0, 7]], data[[0, 29, 7], [19, 0, 7]])
    assert np.array_equal(array.oindex[[1, 28], [2, 17]], data[np.ix_([1, 28], [2, 17])])
    assert array[29, 19] == 599


def test_what_lies_below_a_prefix_is_read_by_the_batch(archive: Any, tmp_path: Path) -> None:
    _, data, refs = archive
    store = open_store("virtual://" + write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs}))
    below = PrefixStore(store, "x")
    assert below.stretches("") is not None
    assert below.origin("0.0") == store.origin("x/0.0") is not None
    assert np.array_equal(zstore.open(below)[...], data)


def test_version_0_and_1_in_any_layout_say_the_same(archive: Any, tmp_path: Path) -> None:
    _, data, refs = archive
    every = {**DOCUMENTS, **refs}
    mixed = {**dict(reversed(refs.items())), **DOCUMENTS}
    forms = {
        "plain": json.dumps(every),
        "indented": json.dumps({"version": 1, "refs": every}, indent=3),
        "compact": json.dumps({"refs": mixed, "version": 1}, separators=(",", ":")),
        "escaped": json.dumps({"version": 1, "refs": every}).replace("x/", "\\u0078\\/"),
        "objects": json.dumps({**refs, **{key: json.loads(text) for key, text in DOCUMENTS.items()}}),
    }
    for name, text in forms.items():
        (tmp_path / f"{name}.json").write_text(text)
        group = zstore.open(tmp_path / f"{name}.json")
        assert [*group] == ["x"], name
        assert np.array_equal(group["x"][...], data), name


def test_templates_and_generated_keys(archive: Any, tmp_path: Path) -> None:
    _, data, refs = archive
    chunk = np.arange(4, dtype="<i4").tobytes()
    (tmp_path / "g_3.bin").write_bytes(
        b"".join((np.arange(4, dtype="<i4") + 4 * i).tobytes() for i in range(6))
    )
    said = {
        ".zgroup": DOCUMENTS[".zgroup"],
        "x/.zarray": DOCUMENTS["x/.zarray"],
        **{key: ["{{u}}/a.bin", *rest] for key, (_, *rest) in refs.items()},
        "g/.zarray": v2_array([24], [4]),
        "h/.zarray": v2_array([4], [4]),
        "h/0": ["{{f(name='g_3', end = 'bin')}}", 0, len(chunk)],
    }
    more = {
        "templates": {"u": str(tmp_path), "f": str(tmp_path) + "/{{ name }}.{{end}}"},
        "gen": [
            {
                "key": "g/{{i}}",
                "url": "{{u}}/g_{{ 7 // 2 }}.bin",
                "offset": "{{(i + 1) * 16 - 16}}",
                "length": "16",
                "dimensions": {"i": {"stop": 6}},
            }
        ],
    }
    group = zstore.open(write_refs(tmp_path / "t.json", said, **more))
    assert np.array_equal(group["x"][...], data)
    assert group["g"][...].tolist() == [*range(24)]
    assert group["h"][...].tolist() == [0, 1, 2, 3]


def test_inline_chunks_and_whole_files(tmp_path: Path) -> None:
    items = np.arange(6, dtype="<i4")
    (tmp_path / "whole").write_bytes(items[2:4].tobytes())
    said = {
        ".zarray": v2_array([8], [2], fill_value=9),
        "0": "base64:" + base64.b64encode(items[:2].tobytes()).decode(),
        "1": [str(tmp_path / "whole")],
        "2": "ABCDabcd",
    }
    array = zstore.open(write_refs(tmp_path / "r.json", said))
    assert array[...].tolist() == [0, 1, 2, 3, 0x44434241, 0x64636261, 9, 9]
    store = open_store(f"virtual://{tmp_path}/r.json")
    assert (store.size("1"), store.get("1", ByteRange(-4))) == (8, items[3:4].tobytes())
    assert sorted(store.list()) == [".zarray", "0", "1", "2"]


def test_keys_of_v3_and_of_nested_names(tmp_path: Path) -> None:
    made = MemoryStore()
    group = zstore.create_group(made)
    data = np.arange(64, dtype="i2").reshape(8, 8)
    group.create_array("a", data=data, chunks=(4, 4))
    group.create_array("b/0/1", data=data, chunks=(2, 8), shards=(4, 8))
    group.create_array("s", data=np.float64(3.5))
    old = MemoryStore()
    v2 = zstore.create_group(old, zarr_format=2)
    v2.create_array("0", data=data, chunks=(4, 4), chunk_key_encoding={"name": "v2", "separator": "/"})
    for key in old.list():
        made.put(f"old/{key}", old.get(key) or b"")
    refs: dict[str, Any] = {}
    with open(tmp_path / "all.bin", "wb") as file:
        for key in sorted(made.list()):
            value = bytes(made.get(key) or b"")
            is_document = key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zgroup", ".zattrs")
            refs[key] = (
                value.decode() if is_document else [str(tmp_path / "all.bin"), file.tell(), len(value)]
            )
            file.write(value)
    path = write_refs(tmp_path / "r.json", refs)
    found = zstore.open(path)
    for name in ("a", "b/0/1"):
        assert np.array_equal(found[name][...], data)
        assert found.store.manifest.chunks[name].keys.prefix == "c"
    assert found["s"][()] == 3.5
    assert np.array_equal(zstore.open(path, "old/0")[...], data)
    assert {*found.store.list()} == {*made.list()}
    write_manifest(found.store.manifest, tmp_path / "again.json")
    again = open_store(f"virtual://{tmp_path}/again.json")
    assert {key: again.get(key) for key in made.list()} == {key: made.get(key) for key in made.list()}


def test_an_array_of_objects_or_foreign_codecs_goes_through_the_store(tmp_path: Path) -> None:
    made = MemoryStore()
    words = np.array(["a", "bb", "", "ccc", "d"], object)
    zstore.create_array(made, data=words, chunks=2, dtype="string")
    with open(tmp_path / "w.bin", "wb") as file:
        refs: dict[str, Any] = {"zarr.json": bytes(made.get("zarr.json") or b"").decode()}
        for n in range(3):
            value = bytes(made.get(f"c/{n}") or b"")
            refs[f"c/{n}"] = [str(tmp_path / "w.bin"), file.tell(), len(value)]
            file.write(value)
    assert [*zstore.open(write_refs(tmp_path / "r.json", refs))[...]] == [*words]


def test_parquet_goes_both_ways(archive: Any, tmp_path: Path) -> None:
    _, data, refs = archive
    inline = {"y/.zarray": v2_array([6], [2]), "y/1": "ABCDabcd", "y/0": refs["x/0.0"][:1]}
    del refs["x/1.1"]
    manifest = open_manifest(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs, **inline}))
    write_manifest(manifest, tmp_path / "r.parq")
    again = open_manifest(tmp_path / "r.parq")
    assert again.find("x/1.1") is None
    for key in manifest.list_keys():
        one, other = (VirtualStore(m, allow=[tmp_path]).get(key) for m in (manifest, again))
        if key.rpartition("/")[2].startswith(".z"):
            assert json.loads(bytes(one or b"")) == json.loads(bytes(other or b""))
        else:
            assert one == other, key
    expected = data.copy()
    expected[8:16, 8:16] = 0
    assert np.array_equal(zstore.open(tmp_path / "r.parq")["x"][...], expected)


def test_parquet_of_inline_bytes_alone(tmp_path: Path) -> None:
    """A part as kerchunk 0.1.2 wrote it, with no column but `raw`."""
    part = (
        "eNqNkktLw0AQx6cRSg+5bkigh2VBqdDGPsSDCNabx+JJkFI3zdZuSTZxs9HGUvAD+HW8+8VEp619gYgLAzv/efxmH72rmxYB"
        "cksmdWLhpkwqALX3k09a5yWgsFmXAK9oH2jQBaBoXbT77jqBWF79upwNxyLmxAJiH4J7oPkzOJZX9apHlSqxPQLeUiS2Yzkv"
        "zlvJA6dycQbgVRGOPbAR6hb6bjnlKuSZ+2XN2DCJ8lgNpArFVGTsnN7N2EiKKBwoHgv0VR5FdcpiYXjIDd8q+3GVx2kxMEW6"
        "0FgSTMTQMNRXqE0gllMRNqQy4kFoNu9jxmqC39AMz8P+Yq8T/gkPCoNHXEG14CbRqM5YJAPNdbHIGPHMpFw/5mJZ/yR0JhO1"
        "iLSb7VO/1fKbbI6B5XUNdibvb2m7RX7H76wG0UYaVPdq5uD6O8RGWphxouhPA7pB0lqQyyikzWOw8R17+LO+AXftpgo="
    )
    (tmp_path / "r.parq" / "y").mkdir(parents=True)
    (tmp_path / "r.parq" / "y" / "refs.0.parq").write_bytes(zlib.decompress(base64.b64decode(part)))
    document = {
        "metadata": {".zgroup": {"zarr_format": 2}, "y/.zarray": json.loads(v2_array([8], [8], "<f4"))}
    }
    (tmp_path / "r.parq" / ".zmetadata").write_text(json.dumps({**document, "record_size": 4}))
    np.testing.assert_array_equal(zstore.open(tmp_path / "r.parq")["y"][...], np.arange(8, dtype="<f4") / 2)


def fsspec_values(path: str, keys: list[str], **options: Any) -> dict[str, bytes]:
    filesystem = pytest.importorskip("fsspec", reason="references are fsspec's").filesystem(
        "reference", fo=path, remote_protocol="file", **options
    )
    return {key: filesystem.cat_file(key) for key in keys}


def test_references_in_parquet_are_loaded_when_chunks_are_read(
    archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected, refs = archive
    write_manifest(open_manifest(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs})), tmp_path / "r.parq")
    loaded = []
    load = parquet._arrow
    monkeypatch.setattr(parquet, "_arrow", lambda: loaded.append(1) or load())
    group = zstore.open(tmp_path / "r.parq")
    assert (group["x"].shape, "x" in group, [*group]) == (expected.shape, True, ["x"])
    assert not loaded
    assert np.array_equal(group["x"][...], expected)
    assert loaded


def test_large_parquet_is_loaded_by_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that what is read lies in, few of them held; the values are those of all at once."""
    items = np.arange(60, dtype="<i4")
    (tmp_path / "a.bin").write_bytes(items.tobytes())
    refs: dict[str, Any] = {str(n): ["a.bin", 4 * n, 4] for n in range(60) if n not in (7, *range(20, 30))}
    refs |= {
        "59": "base64:" + base64.b64encode(items[59:].tobytes()).decode(),
        ".zarray": v2_array([60], [1]),
    }
    write_parquet(
        open_manifest(write_refs(tmp_path / "r.json", refs)), LocalStore(tmp_path / "r.parq"), part_size=10
    )
    expected = zstore.open(tmp_path / "r.json")[...]
    assert np.array_equal(zstore.open(tmp_path / "r.parq")[...], expected)
    monkeypatch.setattr(parquet, "MOST_TABLE", 30)
    monkeypatch.setattr(parquet, "MOST_HELD", 20)
    array = zstore.open(tmp_path / "r.parq")
    loaded: list[str] = []
    get = LocalStore.get

    def count(store: LocalStore, key: str, *more: Any) -> Any:
        loaded.extend([key] if key.endswith(".parq") else [])
        return get(store, key, *more)

    monkeypatch.setattr(LocalStore, "get", count)
    assert array[41] == 41 and loaded == ["refs.4.parq"]
    assert np.array_equal(array[40:50], expected[40:50]) and loaded == ["refs.4.parq"]
    assert np.array_equal(array[...], expected)
    held = array.store.manifest.chunks._held
    assert sum(len(chunks.source) for chunks in held.values()) <= 20
    assert np.array_equal(array.vindex[[59, 7, 0, 25]], expected[[59, 7, 0, 25]])
    assert np.array_equal(pickle.loads(pickle.dumps(array))[...], expected)


@pytest.mark.parametrize("name", ["r.json", "r.parq"])
def test_fsspec_reads_what_is_written(archive: Any, tmp_path: Path, name: str) -> None:
    file, _, refs = archive
    manifest = open_manifest(write_refs(tmp_path / "source.json", {**DOCUMENTS, **refs}))
    stat = file.stat()
    manifest.sources[:] = [manifest.sources[0]._replace(size=stat.st_size, modified=stat.st_mtime_ns)]
    write_manifest(manifest, tmp_path / name)
    store = VirtualStore(manifest, allow=[tmp_path])
    options = {} if name == "r.json" else {"remote_options": {}, "engine": "pyarrow"}
    if name == "r.parq":
        reference = pytest.importorskip("fsspec.implementations.reference", reason="references are fsspec's")
        pytest.importorskip("pandas", reason="fsspec reads Parquet through pandas, which is not installed")
        lazy = reference.LazyReferenceMapper(str(tmp_path / name), engine="pyarrow")
        found = {key: file.read_bytes()[lazy[key][1] :][: lazy[key][2]] for key in refs}
    else:
        found = fsspec_values(str(tmp_path / name), [*refs], **options)
    assert found == {key: bytes(store.get(key) or b"") for key in refs}
    # Our own member comes back.
    again = open_manifest(tmp_path / name)
    again.chunks.get("x")
    assert again.sources == manifest.sources


def test_many_references_are_few_objects(tmp_path: Path) -> None:
    count = 20_000
    lines = [f'"t/{i // 100}.{i % 100}": ["/data/{i // 5000}.nc", {i * 10}, 10]' for i in range(count)]
    text = "{" + ",".join([*lines, f'"t/.zarray": {json.dumps(v2_array([200, 100], [1, 1]))}']) + "}"
    (tmp_path / "m.json").write_text(text)
    manifest = open_manifest(tmp_path / "m.json")
    chunks = manifest.chunks["t"]
    assert (chunks.numbers, chunks.grid, manifest.count) == (None, (200, 100), count)
    assert len(manifest.documents) == 1
    assert chunks.offset.tolist() == [i * 10 for i in range(count)]
    assert [manifest.sources[n].address for n in chunks.source[::5000]] == [f"/data/{i}.nc" for i in range(4)]
    nbytes = sum(part.nbytes for part in (chunks.source, chunks.offset, chunks.size))
    assert nbytes == 20 * count


@pytest.mark.parametrize("writes", [json.dumps, lambda said: json.dumps(said).replace("/", r"\/")])
def test_keys_that_are_not_chunks_stay_values(tmp_path: Path, writes: Any) -> None:
    """Between chunks of two arrays, of one of which the numbers are nested, with "/" as it is or escaped."""
    names = ["0.0", "0.1", "00.1", "0.5", "0", "+1.0", "1.0", "c/0", "0/1", "²", "1.1"]
    refs: dict[str, Any] = {}
    for n, name in enumerate(names):
        refs |= {
            f"a/{name}": ["a/x.nc", n, n + 1],
            f"b/c/0/{n}": [f"b/{n // 3}.nc", n, 1],
            f"b/c/1/{n}": ["y"],
        }
    refs["a/.zarray"] = v2_array([2, 2], [1, 1])
    made = MemoryStore()
    zstore.create_array(made, shape=(2, 11), chunks=(1, 1), dtype="i4")
    refs["b/zarr.json"] = bytes(made.get("zarr.json") or b"").decode()
    (tmp_path / "r.json").write_text(writes(refs))
    manifest = open_manifest(tmp_path / "r.json")
    assert [*manifest.chunks["a"].names()] == ["0.0", "0.1", "1.0", "1.1"]
    assert manifest.chunks["b"].numbers is None
    for key, value in refs.items():
        if isinstance(value, list):
            source, offset, size = manifest.find(key)
            assert [manifest.sources[source].address, offset, size] == (
                value if value[1:] else [*value, 0, WHOLE]
            )


@pytest.mark.parametrize(
    "documents",
    [
        [v2_array([4], [1]), v2_array([2], [1])],
        [v2_array([2], [1]), v2_array([4], [1])],
        [v2_array([4], [1]), v2_array([2, 2], [1, 1])],
        [v2_array([4], [1]), "{"],
    ],
)
def test_the_last_document_says_which_keys_are_chunks(tmp_path: Path, documents: list[str]) -> None:
    """And all are found, whatever was expected of them before: its key is not written as others are."""
    first, last = (json.dumps(text) for text in documents)
    refs = ", ".join(f'"x/{n}": ["a.bin", {n}, 1]' for n in range(4))
    text = f'{{"x/.zarray": {first}, {refs}, "x/3.0": "inline", "x/.zarr\\u0061y": {last}}}'
    (tmp_path / "r.json").write_text(text)
    manifest = open_manifest(tmp_path / "r.json")
    assert manifest.documents["x/.zarray"] == documents[1].encode()
    assert [manifest.find(f"x/{n}") for n in range(5)] == [*((0, n, 1) for n in range(4)), None]
    assert manifest.find("x/3.0") == b"inline"


def test_the_store_is_read_only_and_can_be_pickled(archive: Any, tmp_path: Path) -> None:
    _, data, refs = archive
    array = zstore.open(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs}))["x"]
    with pytest.raises(ReadOnlyError):
        array[0, 0] = 1
    assert np.array_equal(pickle.loads(pickle.dumps(array))[...], data)


def test_zstore_convert_takes_references(archive: Any, tmp_path: Path) -> None:
    """As it does a Zarr of any other store, and no raster."""
    testing = pytest.importorskip("click.testing", reason="the command line needs click")
    from zstore.cli.root import zstore as command

    _, data, refs = archive
    source = write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs})
    result = testing.CliRunner().invoke(command, ["convert", str(source), str(tmp_path / "copy.zarr")])
    assert result.exit_code == 0, result.output
    assert np.array_equal(zstore.open(tmp_path / "copy.zarr")["x"][...], data)


def test_a_manifest_in_memory_is_a_store(archive: Any, tmp_path: Path) -> None:
    file, data, refs = archive
    manifest = Manifest()
    number = manifest.add_source(str(file))
    assert manifest.add_source(str(file)) == number
    manifest.documents["zarr.json"] = b'{"zarr_format": 3, "node_type": "group"}'
    manifest.documents["x/.zarray"] = DOCUMENTS["x/.zarray"].encode()
    cells = [[int(n) for n in key[2:].split(".")] for key in refs]
    offset, size = ([ref[at] for ref in refs.values()] for at in (1, 2))
    manifest.chunks["x"] = Chunks.of_cells((4, 3), cells, [number] * 12, offset, size)
    assert manifest.chunks["x"].numbers is None
    assert np.array_equal(zstore.open(VirtualStore(manifest, allow=tmp_path), "x")[...], data)
    with pytest.raises(StoreError, match="outside the allowed places"):
        zstore.open(VirtualStore(manifest), "x")[...]


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        ((2,), {"offset": [0, -1]}, "negative"),
        ((2,), {"size": [0, -2]}, "negative"),
        ((2,), {"size": [0, 1 << 62], "offset": [0, 1]}, "beyond"),
        ((2,), {"source": [0, -3]}, "outside"),
        ((2,), {"source": [0, INLINE], "size": [0, 5]}, "outside"),
        ((2,), {"source": [0, INLINE], "size": [0, WHOLE]}, "outside"),
        ((3,), {}, "expected 3"),
        ((3,), {"numbers": [1, 1]}, "ascending"),
        ((3,), {"numbers": [1, 3]}, "ascending"),
        ((1 << 40, 1 << 40), {}, "2.62"),
        ((1,) * 33, {}, "32"),
    ],
)
def test_impossible_tables_are_refused(grid: Any, options: Any, message: str) -> None:
    given = {"source": [0, 0], "offset": [0, 0], "size": [1, 1], "inline": b"abc"} | options
    with pytest.raises(MetadataError, match=message):
        Chunks(
            grid, **{name: value if name == "inline" else np.array(value) for name, value in given.items()}
        )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", MetadataError),
        ("[]", MetadataError),
        ('{"a": ["x", 0, 1]', MetadataError),
        ('{"a": ["x", -1, 1]}', MetadataError),
        ('{"a": ["x", 0, -1]}', MetadataError),
        ('{"a": ["x", 1.5, 2]}', MetadataError),
        ('{"a": ["x", 0]}', MetadataError),
        ('{"a": ["x", 9999999999999999999, 1]}', MetadataError),
        ('{"a": [null, 0, 1]}', MetadataError),
        ('{"a": 5}', MetadataError),
        ('{"a": "base64:***"}', MetadataError),
        ('{"a": "\\udcff"}', MetadataError),
        ('{"a": ["x", 0, 1], "b"}', MetadataError),
        ('{"version": 2, "refs": {}}', UnsupportedError),
        ('{"version": 1, "refs": {}, "zstore": {"sources": {"x": {"size": -1}}}}', MetadataError),
        ('{"version": 1, "templates": {"u": "{{x"}, "refs": {"a": ["{{y}}", 0, 1]}}', MetadataError),
        ('{"version": 1, "templates": {"u": "{% for i in x %}{{i}}{% endfor %}"}}', UnsupportedError),
        ('{"version": 1, "templates": {"u": 1}}', MetadataError),
        ('{"a": ' + "[" * 100_000, MetadataError),
        ('{"version": 1, "gen": ' + '{"a":' * 100_000, MetadataError),
        ('{"version": 1, "gen": [' + "[],".replace(",", ",") * 1_500_000 + "1]}", MetadataError),
    ],
)
def test_invalid_references_are_refused(tmp_path: Path, text: str, kind: type[Exception]) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(kind, match=r"bad\.json"):
        open_manifest(tmp_path / "bad.json")


def test_a_document_of_a_zarr_is_no_file_of_references(tmp_path: Path) -> None:
    zstore.create_group(tmp_path / "a.zarr")
    with pytest.raises(MetadataError, match=r"expected the directory that it is in, '.*a\.zarr'"):
        zstore.open(tmp_path / "a.zarr" / "zarr.json")


@pytest.mark.parametrize(
    "expression",
    [
        "u.__class__",
        "''.join(u)",
        "u[0]",
        "[x for x in u]",
        "(lambda: 1)()",
        "9 ** 9 ** 9",
        "__import__('os').system('true')",
        "f(*u)",
        "f(**u)",
        "u|upper",
        "1.5",
        "(" * 150 + "1" + ")" * 150 + " + " * 5,
        "1 if u else 2",
        "u := 3",
    ],
)
def test_templates_execute_nothing(tmp_path: Path, expression: str) -> None:
    said = {
        "version": 1,
        "templates": {"u": "a", "f": "{{x}}"},
        "refs": {"k": [f"{{{{{expression}}}}}", 0, 1]},
    }
    (tmp_path / "t.json").write_text(json.dumps(said))
    with pytest.raises((UnsupportedError, MetadataError), match="template"):
        open_manifest(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"dimensions": {"i": {"stop": 10**9}}}, "makes 1000000000 references"),
        ({"dimensions": {c: {"stop": 100} for c in "abcdefghij"}}, "makes 1"),
        ({"dimensions": {"i": {"stop": 10**17}, "j": {"stop": 0}}}, "makes 0 references of up to 1"),
        ({"dimensions": {"i": {"stop": 10**30}}}, "dimension"),
        ({"dimensions": {"i": {"stop": 5, "step": 0}}}, "dimension"),
        ({"dimensions": {"i": {"stop": 2}}, "offset": "{{i - 1}}"}, "number"),
        ({"dimensions": {"i": {"stop": 2}}, "offset": "{{1 // i}}"}, "zero"),
        ({"dimensions": {"i": {"stop": 2}}, "offset": "{{" + "*".join(["999999999"] * 15) + "}}"}, "beyond"),
        ({"dimensions": {"i": {"stop": 2}}, "url": "{{f(x=f(x=f(x=f(x=f(x='aaaaaaaa')))))}}"}, "characters"),
        ({"dimensions": {"i": {"stop": 2}}, "url": "{{nobody}}"}, "nobody"),
    ],
)
def test_generated_references_are_bounded(tmp_path: Path, rule: Any, message: str) -> None:
    rule = {"key": "a/{{i}}", "url": "x", "offset": "0", "length": "1", **rule}
    more = {"gen": [rule], "templates": {"f": "{{x}}" * 10}}
    with pytest.raises(MetadataError, match=message):
        open_manifest(write_refs(tmp_path / "g.json", {}, **more))


def test_a_byte_order_mark_before_the_references(tmp_path: Path) -> None:
    path = Path(write_refs(tmp_path / "r.json", {**DOCUMENTS, "x/0": "base64:" + "AAAA" * 2}))
    plain = [*open_store(f"virtual://{path}").list()]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [*open_store(f"virtual://{path}").list()] == plain
    assert isinstance(zstore.open(path), zstore.Group)


def test_all_rules_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zstore_virtual.kerchunk.MOST_GENERATED", 100)
    rule = {"key": "a/{{i}}", "url": "x", "dimensions": {"i": {"stop": 40}}}
    assert len(open_manifest(write_refs(tmp_path / "g.json", {}, gen=[rule] * 2)).documents) == 40
    with pytest.raises(MetadataError, match="makes 120 references"):
        open_manifest(write_refs(tmp_path / "g.json", {}, gen=[rule] * 3))


def test_thirty_thousand_arrays_are_not_compared_with_each_other(tmp_path: Path) -> None:
    refs = {f"{n % 100}/{n}/.zarray": "{}" for n in range(30_000)}
    manifest = open_manifest(write_refs(tmp_path / "many.json", {**refs, "7/7/0": "x"}))
    assert len(manifest.documents) == 30_001 and manifest.find("7/7/0") == b"x"


def test_claims_of_parquet_are_bounded(archive: Any, tmp_path: Path) -> None:
    _, _, refs = archive
    manifest = open_manifest(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs}))
    write_manifest(manifest, tmp_path / "r.parq")
    document = tmp_path / "r.parq" / ".zmetadata"
    said = json.loads(document.read_text())
    # A grid of 10^18 chunks, of which the one part that is there holds the first.
    huge = {**said, "metadata": {**said["metadata"], "x/.zarray": json.loads(v2_array([10**18], [1], "<i4"))}}
    document.write_text(json.dumps(huge))
    chunks = open_manifest(tmp_path / "r.parq").chunks.get("x")
    assert (chunks.grid, len(chunks.source)) == ((10**18,), 12)
    for size in (0, -1, "x", 10**12):
        document.write_text(json.dumps({**said, "record_size": size}))
        with pytest.raises(MetadataError, match="record_size"):
            open_manifest(tmp_path / "r.parq")
    document.write_text(json.dumps({**said, "record_size": 5}))
    with pytest.raises(MetadataError, match="12 references; expected 5 at most"):
        open_manifest(tmp_path / "r.parq").chunks.get("x")
    document.write_text(json.dumps(said))
    part = tmp_path / "r.parq" / "x" / "refs.0.parq"
    whole, failed = part.read_bytes(), 0
    for place in re.finditer(b"path", whole):  # the name of a column, once otherwise
        part.write_bytes(whole[: place.start()] + b"pith" + whole[place.end() :])
        try:
            open_manifest(tmp_path / "r.parq").chunks.get("x")
        except MetadataError:
            failed += 1
    assert failed
    part.write_bytes(b"PAR1 nothing")
    with pytest.raises(MetadataError, match=r"refs\.0\.parq"):
        open_manifest(tmp_path / "r.parq").chunks.get("x")


def test_columns_of_parquet_may_be_of_other_types(tmp_path: Path) -> None:
    """As other writers keep them: addresses as bytes, numbers with nulls among them as floats."""
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    place = tmp_path / "r.parq"
    (place / "x").mkdir(parents=True)
    said = {"metadata": {"x/.zarray": json.loads(v2_array([4], [1]))}, "record_size": 4}
    (place / ".zmetadata").write_text(json.dumps(said))

    def load(offset: Any, size: Any) -> Any:
        path = arrow.array([b"a.bin", None, b"b.bin", b"b.bin"], arrow.binary())
        files.write_table(
            arrow.table({"path": path, "offset": offset, "size": size}), place / "x" / "refs.0.parq"
        )
        return open_manifest(place)

    manifest = load(arrow.array([5.0, None, 7.0, None]), arrow.array([1, None, 3, None], "int32"))
    assert [manifest.find(f"x/{n}") for n in range(4)] == [(0, 5, 1), None, (1, 7, 3), (1, 0, WHOLE)]
    assert [source.address for source in manifest.sources] == ["a.bin", "b.bin"]
    assert load(arrow.nulls(4), arrow.nulls(4)).find("x/2") == (1, 0, WHOLE)
    ones = arrow.array([1] * 4)
    for wrong in ([0.5] * 4, ["1"] * 4, [float("inf")] * 4, [2.0**63] * 4, [-1] * 4):
        with pytest.raises(MetadataError, match=r"refs\.0\.parq"):
            load(arrow.array(wrong), ones).find("x/0")


@pytest.mark.parametrize("name", ["kept.json", "kept.parquet", "kept.parq"])
def test_a_consolidated_store_of_such_a_name_stays_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    root = zstore.create_group(tmp_path / name, zarr_format=2)
    root.create_array("x", data=np.arange(4))
    root.consolidate()
    assert (tmp_path / name / ".zmetadata").exists()
    opened = zstore.open(tmp_path / name, mode="r+")
    opened["x"][0] = 9
    assert zstore.open(f"file://{tmp_path}/{name}")["x"][...].tolist() == [9, 1, 2, 3]


def test_parquet_is_written_over_what_was_there(archive: Any, tmp_path: Path) -> None:
    """No part of the former manifest is read as one of the new, and no Zarr store loses its documents."""
    path, _, _ = archive
    document = {"zarr_format": 2, "shape": [9], "chunks": [1], "dtype": "|u1", "order": "C",
                "compressor": None, "filters": None, "fill_value": 7}  # fmt: skip
    for count in (9, 2):
        made = Manifest({".zarray": json.dumps(document).encode()})
        number = np.full(count, made.add_source(str(path)))
        cells, size = np.arange(count), np.ones(count)
        made.chunks[""] = Chunks.of_cells((9,), cells[:, None], number, cells, size)
        write_parquet(made, LocalStore(tmp_path / "a.parq"), part_size=3)
    assert zstore.open(tmp_path / "a.parq")[2:].tolist() == [7] * 7
    made.chunks[""] = Chunks.of_cells((9,), [[0]], [0], [0], [0])
    with pytest.raises(UnsupportedError, match="no bytes at the beginning"):
        write_manifest(made, tmp_path / "a.parq")
    made.chunks[""] = Chunks.of_cells((9,), [[0]], [0], [2], [WHOLE])
    for name in ("a.parq", "a.json"):
        with pytest.raises(UnsupportedError, match="within a file to its end"):
            write_manifest(made, tmp_path / name)
    copied = pickle.loads(pickle.dumps(zstore.open(tmp_path / "a.parq")))
    assert copied[2:].tolist() == [7] * 7
    (tmp_path / "b.parq").mkdir()
    zstore.create_group(tmp_path / "b.parq", zarr_format=2).consolidate()
    with pytest.raises(StoreError, match="a Zarr store is there"):
        write_manifest(open_manifest(tmp_path / "a.parq"), tmp_path / "b.parq")


def test_manifests_at_urls_of_files(tmp_path: Path) -> None:
    place = tmp_path / "größe 100%"
    place.mkdir()
    manifest = Manifest({".zgroup": b'{"zarr_format":2}'})
    url = (place / "refs #1.json").as_uri()
    write_manifest(manifest, url)
    assert [file.name for file in place.iterdir()] == ["refs #1.json"]
    assert open_manifest(url).documents == manifest.documents
    for target in (url, f"virtual::{url}", place / "refs #1.json", f"virtual://{place}/refs #1.json"):
        assert isinstance(zstore.open(target), zstore.Group)


def test_a_missing_manifest_is_an_error(tmp_path: Path) -> None:
    for name in ("no.json", "no.parq"):
        with pytest.raises(NotFoundError):
            open_store(f"virtual://{tmp_path}/{name}")
    with pytest.raises(StoreError, match="unknown storage options"):
        open_store(f"virtual://{tmp_path}/no.json", storage_options={"targets": ["/"]})


def test_a_damaged_chunk_names_the_source(archive: Any, tmp_path: Path) -> None:
    file, _, refs = archive
    array = zstore.open(write_refs(tmp_path / "r.json", {**DOCUMENTS, **refs}))["x"]
    _, offset, size = refs["x/1.2"]
    content = bytearray(file.read_bytes())
    content[offset : offset + size] = bytes(size)
    file.write_bytes(content)
    with pytest.raises(CodecError, match=f"bytes {offset} to {offset + size} of '{file}'"):
        array[...]


def test_the_page_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "virtual.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(page), "exec"), names)
    assert names["array"].shape == (12,)
    with pytest.raises(StoreError, match="it has 60 bytes, expected 68; the chunk is bytes 20 to 36"):
        names["array"][...]


def test_references_are_bounded_in_number_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = {".zarray": v2_array([4], [1]), **{str(n): [f"a{n}", n, 1] for n in range(9)}}
    path = write_refs(tmp_path / "r.json", refs)
    assert len(open_manifest(path).documents) == 6  # five lie outside of the array
    with monkeypatch.context() as patch:
        patch.setattr("zstore_virtual.collect.MOST_VALUES", 5)
        with pytest.raises(MetadataError, match="more than 5 values that are not chunks"):
            open_manifest(path)
        del refs[".zarray"]
        with pytest.raises(MetadataError, match="more than 5 values"):
            open_manifest(write_refs(tmp_path / "s.json", refs))
    with monkeypatch.context() as patch:
        patch.setattr("zstore_virtual.kerchunk.MOST_SOURCES", 8)
        with pytest.raises(MetadataError, match="more than 8 files"):
            open_manifest(path)
    zstore.set_limits(value_size=100)
    try:
        with pytest.raises(MetadataError, match="value_size"):
            open_manifest(path)
    finally:
        zstore.set_limits(value_size=None)
