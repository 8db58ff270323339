"""What HDF5 files may say, and h5py's own words do not write: made by way of HDF5's functions."""

from __future__ import annotations

import ctypes
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

if not entry_points(group="zstore", name="virtual-scan"):
    pytest.skip("zstore-virtual is not installed, so it has no entry point", allow_module_level=True)

from zstore_virtual.scan.files import scan_file
from zstore_virtual.store import VirtualStore

import zstore
from zstore.errors import StoreError, UnsupportedError

NUMBERS = np.arange(70, dtype="i4").reshape(7, 10)
DONT_FILTER_PARTIAL_CHUNKS = 2
HID = ctypes.c_int64


def hdf5(name: str, *arguments: Any) -> int:
    """Call one of HDF5's functions, in the library that h5py has loaded."""
    return int(getattr(ctypes.CDLL(h5py.h5.__file__), name)(*arguments))


def dataset_of(file: h5py.File, name: str, values: Any, chunks: tuple[int, ...] | None, change: Any) -> None:
    """Write a dataset, of which `change` may set up properties before."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks is not None:
        properties.set_chunk(chunks)
    change(properties)
    kind = h5py.h5t.py_create(values.dtype)
    space = h5py.h5s.create_simple(values.shape)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, properties)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values))


def read(path: Path, name: str) -> Any:
    return zstore.open_array(VirtualStore(scan_file(path), allow=[path.parent]), name)[...]


@pytest.mark.parametrize("chunks", [None, (3, 4)])
def test_an_undefined_fill_value(tmp_path: Path, chunks: tuple[int, ...] | None) -> None:
    def undefine(properties: Any) -> None:
        assert hdf5("H5Pset_fill_value", HID(properties.id), HID(h5py.h5t.NATIVE_INT32.id), None) >= 0

    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset_of(file, "x", NUMBERS, chunks, undefine)
        with pytest.raises(RuntimeError):
            file["x"].fillvalue  # noqa: B018
    assert (read(tmp_path / "a.h5", "x") == NUMBERS).all()


def test_chunks_beyond_the_array_that_skip_filters(tmp_path: Path) -> None:
    def leave_out(properties: Any) -> None:
        properties.set_deflate(4)
        assert hdf5("H5Pset_chunk_opts", HID(properties.id), DONT_FILTER_PARTIAL_CHUNKS) >= 0

    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        dataset_of(file, "x", NUMBERS, (3, 4), leave_out)
    assert (read(tmp_path / "a.h5", "x") == NUMBERS).all()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("limits", [(None, 10), (7, None), (None, None), (20, 30)])
def test_an_index_that_hdf5_lists_wrongly_is_refused(tmp_path: Path, libver: str, limits: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("x", data=NUMBERS, chunks=(2, 3), maxshape=limits)
    if libver == "latest" and limits == (7, None):
        with pytest.raises(UnsupportedError, match="'x' has chunks that HDF5 lists at other places"):
            scan_file(tmp_path / "a.h5")
    else:
        assert (read(tmp_path / "a.h5", "x") == NUMBERS).all()


def test_chunks_that_are_allocated_beyond_the_array(tmp_path: Path) -> None:
    def early(properties: Any) -> None:
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)

    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((2, 3))
        early(properties)
        space = h5py.h5s.create_simple((7, 10), (20, 30))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, properties)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, NUMBERS)
    assert (read(tmp_path / "a.h5", "x") == NUMBERS).all()


@pytest.mark.parametrize("end", [h5py.h5t.STR_SPACEPAD, h5py.h5t.STR_NULLTERM, h5py.h5t.STR_NULLPAD])
@pytest.mark.parametrize("layout", ["string", "compound"])
def test_strings_end_where_their_type_says(tmp_path: Path, end: int, layout: str) -> None:
    """What a program left behind the end is in the file, and is no part of the string."""
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(8)
    kind.set_strpad(end)
    whole = kind
    if layout == "compound":
        whole = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
        whole.insert(b"word", 0, kind)
    rest = b"ab      " if end == h5py.h5t.STR_SPACEPAD else b"ab\0left\0"
    items = np.array([rest, b"abcdefgh"], "V8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"x", whole, h5py.h5s.create_simple((2,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, items, whole)
    with h5py.File(tmp_path / "a.h5") as file:
        wanted = file["x"][...]
    found = read(tmp_path / "a.h5", "x")
    assert found.tolist() == wanted.tolist()
    if layout == "string" and end != h5py.h5t.STR_NULLPAD:
        assert found[0] == b"ab"


@pytest.mark.parametrize(
    "order", ["deflate shuffle", "fletcher32 deflate shuffle", "deflate shuffle fletcher32"]
)
def test_shuffle_behind_a_compressor(tmp_path: Path, order: str) -> None:
    def add(properties: Any) -> None:
        for name in order.split():
            getattr(properties, f"set_{name}")(*([4] if name == "deflate" else []))

    values = np.random.default_rng(0).integers(0, 200, 40).astype("f8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset_of(file, "x", values, (7,), add)
    np.testing.assert_array_equal(read(tmp_path / "a.h5", "x"), values)


def test_types_with_names_are_read_and_references_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "named.h5", "w") as file:
        file["kind"] = np.dtype("i4")
        file["x"] = NUMBERS.astype("i4")
        file.create_dataset("y", NUMBERS.shape, file["kind"])[...] = NUMBERS
    np.testing.assert_array_equal(read(tmp_path / "named.h5", "y"), read(tmp_path / "named.h5", "x"))
    with h5py.File(tmp_path / "of-group.h5", "w") as file:
        file.attrs["to"] = file.create_group("g").ref
    with pytest.raises(UnsupportedError, match="attribute 'to' of '/' is a reference"):
        scan_file(tmp_path / "of-group.h5")
    with h5py.File(tmp_path / "of-variable.h5", "w") as file:
        file["x"] = NUMBERS
        file["x"].attrs["to"] = file["x"].ref
    with pytest.raises(UnsupportedError, match="attribute 'to' of '/x' is a reference"):
        scan_file(tmp_path / "of-variable.h5")


def test_a_missing_dimension_scale_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["x"] = NUMBERS[0]
        file["x"].make_scale("x")
        file["y"] = NUMBERS[0]
        file["y"].dims[0].attach_scale(file["x"])
        del file["x"]
    with pytest.raises(UnsupportedError, match=r"a scale that is no dimension.*a\.nc"):
        scan_file(tmp_path / "a.nc")


def test_more_items_than_the_file_can_hold(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("none", shape=(1 << 56,), dtype="i8", fillvalue=3)
        file["x"] = NUMBERS
    array = zstore.open_array(VirtualStore(scan_file(tmp_path / "a.h5"), allow=[tmp_path]), "none")
    assert array.shape == (1 << 56,) and array[-2:].tolist() == [3, 3]
    data = (tmp_path / "a.h5").read_bytes()
    at = data.index(np.array(NUMBERS.shape, "<u8").tobytes())
    larger = np.array([7 << 20, 10], "<u8").tobytes()
    (tmp_path / "b.h5").write_bytes(data.replace(np.array(NUMBERS.shape, "<u8").tobytes(), larger))
    assert at > 0
    with pytest.raises((StoreError, UnsupportedError)):
        scan_file(tmp_path / "b.h5")


def test_items_are_those_of_the_file_whatever_array_it_was_made_of(tmp_path):
    group = zstore.create_group(tmp_path / "a.zarr", attributes={"tree": {"a": 1}})
    items = {
        "half": np.arange(3, dtype="f2"),
        "flag": np.array([True, False, True]),
        "code": np.array([b"ab", b"c", b""]),
    }
    for name, data in items.items():
        group.create_array(name, data=data, dimension_names=["x"], attributes={"tree": [[1]]})
    zstore.zarr_to_netcdf(group, tmp_path / "a.nc")
    found = zstore.open_group(VirtualStore(scan_file(tmp_path / "a.nc"), allow=[tmp_path]))
    np.testing.assert_array_equal(found["half"][...], items["half"].astype("f4"))
    np.testing.assert_array_equal(found["flag"][...], items["flag"].astype("i1"))
    assert found["code"].shape == (3, 2) and found["code"].dtype == np.dtype("S1")
    assert "_zarr" in found["half"].attrs and found.attrs["tree"] == {"a": 1}
