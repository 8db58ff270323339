"""Integers that `_Unsigned` says are others than they are stored as: drawn, reduced and tiled as these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import UnsupportedError
from zstore.geo.pictures.quicklook import quicklook
from zstore.geo.pyramid.dataset import open_dataset
from zstore.storage.memory import MemoryStore

STATED = {"int8": ("uint8", "true"), "int16": ("uint16", "true"), "uint8": ("int8", "false")}


def store_of(
    cells: np.ndarray, zarr_format: Any = 3, attributes: dict[str, Any] | None = None, **more: Any
) -> Any:
    group = zstore.create_group(MemoryStore(), zarr_format=zarr_format)
    names: dict[str, Any] = {"dimension_names": ("y", "x")}
    for n, name in enumerate(("y", "x")):
        steps = np.arange(cells.shape[n]) + 0.5
        group.create_array(name, data=steps, dimension_names=(name,))
    group.create_array("v", data=cells, chunks=8, attributes=attributes, **names, **more)
    return group


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("stored", STATED)
def test_pictures_and_pyramids_are_of_what_is_meant(stored: str, zarr_format: Any) -> None:
    meant, said = STATED[stored]
    limits = np.iinfo(meant)
    cells = np.linspace(limits.min + 1, limits.max, 256).round().astype(meant).reshape(16, 16)
    cells[0, 0] = limits.max
    fill = np.array(limits.max, meant).view(stored).item()
    attributes = {"_Unsigned": said, "_FillValue": fill, "flag_values": [fill], "flag_meanings": "none"}
    del attributes["flag_values"], attributes["flag_meanings"]
    plain = store_of(cells, zarr_format, {"_FillValue": int(limits.max)})
    packed = store_of(cells.view(stored), zarr_format, attributes)
    dataset = open_dataset(packed)
    assert dataset.arrays["v"].dtype == meant and np.array_equal(dataset.arrays["v"][...], cells)
    assert dataset.geo.variables["v"].nodata == limits.max
    assert np.array_equal(quicklook(packed), quicklook(plain))
    made = [zstore.build_pyramid(source, MemoryStore(), levels=2) for source in (packed, plain)]
    for level in ("0", "1"):
        ours, theirs = (pyramid[f"{level}/v"] for pyramid in made)
        assert ours.dtype == meant and np.array_equal(ours[...], theirs[...])
        assert "_Unsigned" not in ours.attrs and ours.attrs["_FillValue"] == limits.max


def test_the_fill_value_is_taken_for_what_is_meant() -> None:
    group = store_of(np.full((16, 16), -1, "i1"), 3, {"_Unsigned": "true"}, fill_value=-1)
    array = open_dataset(group).arrays["v"]
    assert array.fill_value == 255 and array.fill_value.dtype == "u1" and (array[...] == 255).all()


def test_codecs_that_know_the_type_are_in_the_way() -> None:
    cells = np.arange(256, dtype="u1").view("i1").reshape(16, 16)
    filters = [{"id": "delta", "dtype": "|i1", "astype": "|i1"}]
    group = store_of(cells, 2, {"_Unsigned": "true"}, filters=filters)
    with pytest.raises(UnsupportedError, match="delta"):
        open_dataset(group)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("order", "<>")
def test_the_fill_value_keeps_the_order_of_its_bytes(order: str, zarr_format: Any) -> None:
    group = store_of(np.zeros((16, 16), f"{order}i2"), zarr_format, {"_Unsigned": "true"}, fill_value=-255)
    array = group["v"]
    array.store.delete_prefix("v/c") if zarr_format == 3 else [array.store.delete(f"v/{n}.0") for n in (0, 1)]
    assert (open_dataset(group).arrays["v"][...] == array[...].astype("u2")).all()
    assert open_dataset(group).arrays["v"][8, 0] == 65281


@pytest.mark.filterwarnings("ignore:.*_FillValue and missing_value differ")
def test_limits_are_told_in_what_is_meant() -> None:
    cells = np.arange(256, dtype="u1").reshape(16, 16)
    said = {"valid_range": [0, -6], "valid_min": 1, "valid_max": -6, "missing_value": -2, "scale": -1}
    group = store_of(cells.view("i1"), 3, {"_Unsigned": "true", "_FillValue": -1, **said})
    pyramid = zstore.build_pyramid(group, MemoryStore(), levels=1)
    for level in ("0", "1"):
        stated = pyramid[f"{level}/v"].attrs
        assert stated["valid_range"] == [0, 250] and (stated["valid_min"], stated["valid_max"]) == (1, 250)
        assert stated.get("missing_value") == (254 if level == "0" else None) and stated["scale"] == -1
