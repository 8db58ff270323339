"""Pyramids of whatever can be read by boxes: the same as those of an array that holds the same items."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np
import pytest

import zstore
from zstore.errors import ChangedError
from zstore.jobs.source import Box
from zstore.model.grid import RegularGrid
from zstore.storage.memory import MemoryStore

from ..jobs.test_source import Indices

SHAPE = (3, 500, 300)
BUILD = re.compile(rb'"build": "[0-9a-f]{16}"')
ATTRIBUTES = {
    "proj:code": "EPSG:3857",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [10.0, 0.0, 1000.0, 0.0, -10.0, 9000.0],
    "_FillValue": 65535,
    "units": "K",
}


class MappedIndices(Indices):
    """A function of indices with dimensions and attributes."""

    name = "v"
    dimension_names = ("time", "y", "x")
    attributes: ClassVar[dict[str, Any]] = {}

    def __init__(self, attributes: dict[str, Any], dtype: str = "u2") -> None:
        super().__init__(SHAPE, RegularGrid((1, 64, 64)), dtype)
        self.attributes = attributes

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        self.boxes.append(box)
        t, y, x = np.ogrid[box]
        items = (t * 20_000 + y * 31 + x * 7).astype(self._dtype)
        if out is None:
            return items
        out[...] = items
        return out


def store(source: MappedIndices) -> zstore.Array:
    """An array with the items and the attributes of the source."""
    whole = tuple(slice(0, length) for length in SHAPE)
    options = {"attributes": source.attributes, "dimension_names": source.dimension_names}
    return zstore.create_array(MemoryStore(), "v", data=source.read(whole), chunks=(1, 64, 64), **options)


def values(group: zstore.Group) -> dict[str, bytes]:
    """All values of a pyramid but its own document, which names the source, and the name of the build."""
    found = {key: bytes(group.store.get(key) or b"") for key in group.store.list("") if "/" in key}
    return {key: BUILD.sub(b"", value) for key, value in found.items()}


BUILDS = {
    "factors": lambda source, **options: zstore.build_pyramid(
        source, MemoryStore(), levels=3, copy_base=True, **options
    ),
    "chained": lambda source, **options: zstore.build_pyramid(
        source, MemoryStore(), levels=2, method="cubic", **options
    ),
    "tiles": lambda source, **options: zstore.build_tile_pyramid(source, MemoryStore(), **options),
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_function_of_indices_gives_the_pyramid_of_its_items(build):
    source = MappedIndices(ATTRIBUTES)
    made, expected = BUILDS[build](source), BUILDS[build](store(source))
    assert values(made) == values(expected) != {}
    [level, *_] = [group for _, group in made.groups()]
    assert level["v"].attrs["units"] == "K"
    assert "proj:code" in level.attrs


def test_a_source_that_changes_meanwhile_is_an_error():
    source = MappedIndices(ATTRIBUTES)
    read = source.read

    def change(box: Box, out: Any = None) -> Any:
        source.text = "2"
        return read(box, out)

    source.read = change  # type: ignore[method-assign]
    with pytest.raises(ChangedError, match=r"the source changed.*function://indices"):
        zstore.build_pyramid(source, MemoryStore(), levels=1)


def test_an_update_reads_what_the_region_needs():
    source = MappedIndices(ATTRIBUTES)
    made = zstore.build_pyramid(source, MemoryStore(), levels=2)
    before = values(made)
    source.boxes.clear()
    zstore.update_pyramid(made, {"time": 1, "y": slice(0, 64)}, source=source)
    assert {(box[0].start, box[0].stop) for box in source.boxes} == {(1, 2)}
    assert values(made).keys() == before.keys()


def test_a_source_without_attributes_has_levels_without_a_place():
    source = MappedIndices({})
    made, expected = (zstore.build_pyramid(one, MemoryStore(), levels=1) for one in (source, store(source)))
    assert values(made) == values(expected) != {}


def test_items_that_are_meant_as_another_integer_type_have_the_levels_of_these():
    source = MappedIndices({"_Unsigned": "true"}, "i2")
    made, expected = (zstore.build_pyramid(one, MemoryStore(), levels=1) for one in (source, store(source)))
    assert made["1/v"].dtype == np.dtype("u2")
    assert values(made) == values(expected) != {}
