"""Stores of releases of zarr-python, xarray, tensorstore and GDAL, read to what each reads.

`releases/make` made them, with `releases/write.py`.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.engine.n5 import N5Store
from zstore.errors import MetadataError, UnsupportedError
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore

from .releases.write import describe, tell

NODES: list[dict[str, Any]] = json.loads(
    lzma.decompress(Path(__file__).with_name("releases").joinpath("releases.json.xz").read_bytes())
)
WRITERS = sorted({writer for node in NODES for writer in node["writers"]})
# Nobody reads these: GDAL's v3 is a draft of 2022, and zarr-python 3.0.0 gave fields a codec of strings.
REFUSED = [("GDAL 3.6.4", "v3/"), ("zarr-python 3.0.0", "v2/fields-")]
# Its order "F" is not told in its chunks: all others read them as the document says.
OTHERWISE = [("zarr-python 3.0.0", "v2/order-f")]


def is_in(table: list[tuple[str, str]], node: dict[str, Any]) -> bool:
    return any(node["writers"][0] == writer and node["name"].startswith(name) for writer, name in table)


def stored(node: dict[str, Any]) -> Store:
    store = MemoryStore()
    for key, data in node["files"].items():
        store.put(key, bytes.fromhex(data))
    return N5Store(store) if node["name"].startswith("n5/") else store


def array_in(node: Any) -> zstore.Array:
    """The array itself, GDAL's raster beside its coordinates, or the one of the tree."""
    if isinstance(node, zstore.Array):
        return node
    return next((array for _, array in node.arrays() if array.ndim == 2), None) or node["deep/er/numbers"]


def seen(store: Store) -> list[Any]:
    node = zstore.open(store)
    if isinstance(node, zstore.Group) and "packed" in node:
        xarray = pytest.importorskip("xarray", reason="xarray decodes its datasets")
        with xarray.open_dataset(node, engine="zstore", decode_timedelta=True) as opened:
            return describe(tell(opened))
    if isinstance(node, zstore.Group) and "deep" in node:
        assert array_in(node)[...].tolist() == [1, 2, 3]
        attributes = node.attrs.asdict()
        return describe(np.array([repr((name, attributes[name])) for name in sorted(attributes)], object))
    return describe(np.asarray(array_in(node)[...]))


def nodes_of(writer: str) -> list[dict[str, Any]]:
    """The nodes that this release was the first of the list to write so."""
    return [node for node in NODES if node["writers"][0] == writer]


def test_every_release_is_there():
    assert len(WRITERS) == 28 and len(NODES) > 500


@pytest.mark.parametrize("writer", WRITERS)
def test_values_are_those_that_the_writer_reads(writer):
    for node in nodes_of(writer):
        if is_in(REFUSED, node):
            with pytest.raises((MetadataError, UnsupportedError)):
                seen(stored(node))
            continue
        found, expected = seen(stored(node)), node["expected"]
        if "O" in (found[0], expected[0]):
            # zarr-python 3.0 has an object, or a fixed length, where others have the reverse.
            found, expected = found[1:], expected[1:]
        assert (found == expected) is not is_in(OTHERWISE, node), (node["name"], found, expected)
        assert not zstore.verify(stored(node)).damages


# No names for dimensions, NaN in attributes, consolidated metadata of 3.0.0 that differ from the documents.
BROKEN = {"GZ-10", "GZ-21", "ZS-02"}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_other_words_take_them_too(writer, tmp_path):
    """They are valid but for what is named, mended, converted, and the mended say the same without a slip."""
    for index, node in enumerate(nodes_of(writer)):
        if is_in(REFUSED, node):
            continue
        store = stored(node)
        before = seen(store)
        found = zstore.validate(store).findings
        assert {finding.rule for finding in found if finding.severity == "error"} <= BROKEN, node["name"]
        assert zstore.describe(array_in(zstore.open(store)))
        for zarr_format in (2, 3):
            made = MemoryStore()
            try:
                zstore.convert(store, made, zarr_format=zarr_format, check=True)
            except UnsupportedError as error:
                assert "cannot be said in Zarr v" in str(error)
            else:
                assert seen(made)[1:] == before[1:], node["name"]
        if "ZS-10" in {finding.rule for finding in found}:
            zstore.fix(store, backup=tmp_path / str(index))
            assert seen(store) == before
            assert "ZS-10" not in {finding.rule for finding in zstore.validate(store).findings}
