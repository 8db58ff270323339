"""References as kerchunk and VirtualiZarr make them, read as fsspec and zarr-python read them."""

from __future__ import annotations

import json
import lzma
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not entry_points(group="zstore", name="virtual"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.forms import open_manifest, write_manifest
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import StoreError
from zstore.storage.url import open_store

h5py = pytest.importorskip("h5py", reason="NetCDF-4 and HDF5 need h5py")

DRAW = np.random.default_rng(5)
ITEMS = {
    "plain": (DRAW.integers(0, 1000, (37, 53)).astype("<i4"), {"chunks": (8, 16)}),
    "shuffled": (DRAW.normal(size=(20, 30)), {"chunks": (7, 9), "compression": "gzip", "shuffle": True}),
    "swapped": (DRAW.integers(0, 99, (16, 16)).astype(">i2"), {"chunks": (4, 16), "compression": "gzip"}),
    "contiguous": (DRAW.normal(size=(11, 5)).astype("<f4"), {}),
    "line": (np.arange(1000, dtype="<i8"), {"chunks": (64,)}),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as file:
        for name, (data, options) in ITEMS.items():
            file.create_dataset(name, data=data, **options)
        file.create_group("below").create_dataset(
            "cube", data=np.arange(60).reshape(3, 4, 5), chunks=(1, 2, 5)
        )
        file["plain"].attrs["units"] = "m"
    return path


def assert_equal(group: Any) -> None:
    for name, (data, _) in ITEMS.items():
        assert np.array_equal(group[name][...], data), name
        assert group[name].dtype.newbyteorder("=") == data.dtype.newbyteorder("="), name
    assert np.array_equal(group["below/cube"][...], np.arange(60).reshape(3, 4, 5))


@pytest.mark.parametrize("threshold", [0, 400])
def test_kerchunk_in_all_forms(source: Path, tmp_path: Path, threshold: int) -> None:
    hdf = pytest.importorskip("kerchunk.hdf", reason="kerchunk is not installed")
    fsspec = pytest.importorskip("fsspec", reason="references are fsspec's")
    made = hdf.SingleHdf5ToZarr(str(source), inline_threshold=threshold).translate()
    (tmp_path / "r.json").write_text(json.dumps(made))
    group = zstore.open(tmp_path / "r.json")
    assert_equal(group)
    assert group["plain"].attrs["units"] == "m"
    names = [name for name in ITEMS if name != "swapped"]
    assert all(group.store.stretches(name) is not None for name in names)
    # Every value as fsspec has it, of what kerchunk wrote and of what is written here.
    theirs = fsspec.filesystem("reference", fo=made, remote_protocol="file")
    write_manifest(group.store.manifest, tmp_path / "again.json")
    again = fsspec.filesystem("reference", fo=str(tmp_path / "again.json"), remote_protocol="file")
    keys = [key for key in made["refs"] if not key.endswith("/")]
    for key in keys:
        assert bytes(group.store.get(key) or b"") == theirs.cat_file(key) == again.cat_file(key), key
    # fsspec's own way goes on.
    old = zstore.open("reference://", storage_options={"fo": str(tmp_path / "again.json")})
    assert_equal(old)


def test_kerchunk_in_parquet(source: Path, tmp_path: Path) -> None:
    hdf = pytest.importorskip("kerchunk.hdf", reason="kerchunk is not installed")
    frame = pytest.importorskip("kerchunk.df", reason="kerchunk is not installed")
    pytest.importorskip("fastparquet", reason="kerchunk is not installed with fastparquet")
    made = hdf.SingleHdf5ToZarr(str(source), inline_threshold=100).translate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "r.parq").mkdir()
        frame.refs_to_dataframe(made, str(tmp_path / "r.parq"), record_size=7)
    assert_equal(zstore.open(tmp_path / "r.parq"))
    # In parts as they are, and as written here in parts of another size.
    assert len([*(tmp_path / "r.parq" / "line").iterdir()]) == 3
    write_manifest(open_manifest(tmp_path / "r.parq"), tmp_path / "again.parq")
    assert_equal(zstore.open(tmp_path / "again.parq"))


RELEASES = json.loads(lzma.decompress(Path(__file__).with_name("releases.json.xz").read_bytes()))


@pytest.mark.parametrize("made", RELEASES, ids=lambda made: f"{made['writers'][0]}, {made['name']}")
def test_references_of_releases_of_kerchunk_are_read_as_the_files(made: Any, tmp_path: Path) -> None:
    """`tests/conformance/releases/make` of zstore made them."""
    for key, data in made["files"].items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(bytes.fromhex(data))
    [refs] = tmp_path.glob("refs.*")
    if refs.is_dir():
        pytest.importorskip("pyarrow", reason="Parquet is read with pyarrow")
    told = [
        f"{name} {one.shape} {one[...].tolist()}" for name, one in sorted(zstore.open_group(refs).arrays())
    ]
    assert repr(told) == made["expected"][2]


def test_zarr_python_reads_what_is_written(source: Path, tmp_path: Path) -> None:
    hdf = pytest.importorskip("kerchunk.hdf", reason="kerchunk is not installed")
    zarr = pytest.importorskip("zarr", minversion="3", reason="zarr-python is not installed")
    fsspec = pytest.importorskip("fsspec", reason="references are fsspec's")
    made = hdf.SingleHdf5ToZarr(str(source), inline_threshold=0).translate()
    (tmp_path / "r.json").write_text(json.dumps(made))
    write_manifest(open_manifest(tmp_path / "r.json"), tmp_path / "again.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filesystem = fsspec.filesystem(
            "reference",
            fo=str(tmp_path / "again.json"),
            remote_protocol="file",
            asynchronous=True,
            remote_options={"asynchronous": True},
        )
        group = zarr.open_group(zarr.storage.FsspecStore(filesystem, path=""), mode="r", zarr_format=2)
        for name, (data, _) in ITEMS.items():
            assert np.array_equal(group[name][...], data), name


def manifest_store(source: Path, registered: str) -> Any:
    parsers = pytest.importorskip("virtualizarr.parsers", reason="virtualizarr is not installed")
    registry = pytest.importorskip("obspec_utils.registry", reason="virtualizarr is not installed")
    obstore = pytest.importorskip("obstore.store", reason="virtualizarr is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = registry.ObjectStoreRegistry({registered: obstore.LocalStore()})
        return parsers.HDFParser()(url=f"file://{source}", registry=known)


@pytest.mark.parametrize("value", [["DATA", 0, 8], "base64:AAAAAAAACEA="])
def test_a_scalar_of_virtualizarr(tmp_path: Path, value: Any) -> None:
    """Its 2.8 leaves the key of the chunk empty, and has attributes in the array's document too."""
    (tmp_path / "data").write_bytes(np.float64(3).tobytes())
    value = [str(tmp_path / "data"), *value[1:]] if isinstance(value, list) else value
    array = {
        "zarr_format": 2,
        "shape": [],
        "chunks": [],
        "dtype": "<f8",
        "fill_value": 0.0,
        "order": "C",
        "filters": None,
        "compressor": None,
        "dimension_separator": ".",
        "attributes": {},
    }
    references = {".zgroup": '{"zarr_format":2}', "a/.zarray": json.dumps(array), "a/": value}
    (tmp_path / "r.json").write_text(json.dumps({"version": 1, "refs": references}))
    assert zstore.open(tmp_path / "r.json")["a"][()] == 3.0
    zstore.convert(tmp_path / "r.json", tmp_path / "c.zarr", zarr_format=3)
    assert zstore.open(tmp_path / "c.zarr")["a"][()] == 3.0


def test_virtualizarr_is_unwrapped(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = manifest_store(source, "file://")
    monkeypatch.setattr(type(made), "get", None)  # it is not asked key by key
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zstore.open(made)
    for name in ("plain", "shuffled", "contiguous", "line"):
        assert np.array_equal(group[name][...], ITEMS[name][0]), name
        assert group.store.stretches(name) is not None


def test_virtualizarr_leads_no_further_than_its_registry(source: Path, tmp_path: Path) -> None:
    made = manifest_store(source, "file://")
    store = open_store(made)
    assert isinstance(store, VirtualStore)
    (tmp_path / "elsewhere").mkdir()
    narrow = VirtualStore(store.manifest, allow=[tmp_path / "elsewhere"])
    with pytest.raises(StoreError, match="outside the allowed places"):
        zstore.open(narrow)["plain"][...]


def test_virtualizarr_writes_what_is_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "line.h5", "w") as file:
        file.create_dataset("line", data=ITEMS["line"][0], chunks=(64,))
    made = manifest_store(tmp_path / "line.h5", "file://")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        virtual = made.to_virtual_dataset()
        virtual.vz.to_kerchunk(str(tmp_path / "r.json"), format="json")
        virtual.vz.to_kerchunk(str(tmp_path / "r.parq"), format="parquet")
    for name in ("r.json", "r.parq"):
        assert np.array_equal(zstore.open(tmp_path / name)["line"][...], ITEMS["line"][0]), name
