"""Strings, bytes and other objects beside zarr-python: each reads what the other writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.dtype

import zstore

TEXTS = ["", "a", "é", "漢字 and more than fifteen bytes", "x\0y", "😀"]
SHAPE, CHUNKS = (7, 5), (3, 2)

# Zarr v2's object codecs that zarr-python 3 has no data type for; zarr-python 2 has.
THEIRS_LACKS = ("json2", "msgpack2", "pickle", "vlen-array", "categorize")


def texts(seed: int = 0) -> np.ndarray[Any, Any]:
    picked = np.random.default_rng(seed).integers(0, len(TEXTS), SHAPE)
    made: np.ndarray[Any, Any] = np.array(TEXTS, object)[picked]
    return made


FORMS: dict[str, dict[str, Any]] = {
    "v3": {"zarr_format": 3},
    "v3 plain": {"zarr_format": 3, "compressors": None},
    "v3 sharded": {"zarr_format": 3, "shards": (6, 4)},
    "v2": {"zarr_format": 2},
    "v2 F": {"zarr_format": 2, "order": "F"},
}


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("form", FORMS)
def test_strings_that_zstore_writes(tmp_path: Path, form: str) -> None:
    array = zstore.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=str, fill_value="é", **FORMS[form]
    )
    items = texts()
    array[1:, :4] = items[1:, :4]
    items[0], items[:, 4] = "é", "é"
    theirs = zarr.open_array(tmp_path, mode="r")
    assert theirs.fill_value == "é"
    assert np.asarray(theirs[...]).astype(object).tolist() == items.tolist()
    assert array[...].tolist() == items.tolist()


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("form", FORMS)
def test_strings_that_zarr_python_writes_are_read_and_changed(tmp_path: Path, form: str) -> None:
    dtype = np.dtypes.StringDType()
    theirs = zarr.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNKS, dtype=dtype, fill_value="é", **FORMS[form]
    )
    items = texts()
    theirs[1:, :4] = items[1:, :4].astype(dtype)
    items[0], items[:, 4] = "é", "é"
    array = zstore.open_array(tmp_path)
    assert array[...].tolist() == items.tolist()
    for selection in ((slice(None, None, -2), 1), ([0, 3, 3], [1, 4, 0]), items == "a"):
        assert array[selection].tolist() == items[selection].tolist()
    array[2:5, ::-2] = items[2:5, ::-2] = texts(1)[2:5, ::2]
    assert np.asarray(zarr.open_array(tmp_path, mode="r")[...]).astype(object).tolist() == items.tolist()


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("form", FORMS)
def test_bytes_of_any_length(tmp_path: Path, form: str) -> None:
    items = np.array([text.encode() for text in texts().flat] + [None], object)[:-1].reshape(SHAPE)
    theirs = zarr.create_array(
        tmp_path,
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=zarr.dtype.VariableLengthBytes(),
        fill_value=b"\xff",
        **FORMS[form],
    )
    theirs[1:] = items[1:]
    items[0] = b"\xff"
    array = zstore.open_array(tmp_path)
    assert array[...].tolist() == items.tolist()
    array[2] = items[2] = items[5].copy()
    assert np.asarray(zarr.open_array(tmp_path, mode="r")[...]).tolist() == items.tolist()


@pytest.mark.parametrize("codec", THEIRS_LACKS)
def test_chunks_of_objects_are_those_of_numcodecs(tmp_path: Path, codec: str) -> None:
    """Where no peer reads the whole array, the chunks' bytes are what numcodecs makes of them."""
    if codec == "msgpack2":
        pytest.importorskip("msgpack")
    items: Any = np.empty(4, object)
    configuration: dict[str, Any] = {"id": codec}
    if codec == "categorize":
        configuration |= {"labels": ["x", "y"], "dtype": "|O", "astype": "|u1"}
        items[:] = ["x", "y", "", "y"]
    elif codec == "vlen-array":
        configuration |= {"dtype": "<i4"}
        for i, values in enumerate([[1, 2], [], [3], [4, 5, 6]]):
            items[i] = np.array(values, "i4")
    else:
        items[:] = ["a", 1.5, None, {"k": [1]}]
    array = zstore.create_array(
        tmp_path,
        shape=(4,),
        chunks=(4,),
        dtype=object,
        zarr_format=2,
        filters=[configuration],
        compressors=None,
        allow_pickle=codec == "pickle",
    )
    array[...] = items
    stored = (tmp_path / "0").read_bytes()
    theirs = numcodecs.get_codec({**configuration, **({"protocol": 5} if codec == "pickle" else {})})
    assert stored == bytes(theirs.encode(items))
