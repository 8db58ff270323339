"""Slips of released writers: corrected where they are sure, and nothing else is changed."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import ZstoreError
from zstore.model import v2, v3
from zstore.model.slips import correct, find_slips

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 6}}
ZSTD = {"id": "zstd", "level": 1, "checksum": "NO"}
VLEN = [{"id": "vlen-utf8"}]


def transposed(order: Any) -> dict[str, Any]:
    return {"name": "transpose", "configuration": {"order": order}}


def sharded(*codecs: Any) -> dict[str, Any]:
    inner = {"chunk_shape": [1, 1], "codecs": list(codecs), "index_codecs": [LITTLE]}
    return {"name": "sharding_indexed", "configuration": inner}


def grid(*chunk_shape: Any) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": list(chunk_shape)}}


def uneven(*lengths: Any) -> dict[str, Any]:
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(lengths)}}


ABSENT = object()
DOCUMENTS: dict[int, dict[str, Any]] = {
    2: {
        "zarr_format": 2, "shape": [4, 2], "chunks": [2, 1], "dtype": "<f4", "compressor": None,
        "fill_value": 0, "order": "C", "filters": None,
    },
    3: {
        "zarr_format": 3, "node_type": "array", "shape": [4, 2], "data_type": "float32", "fill_value": 0,
        "chunk_grid": grid(2, 1), "chunk_key_encoding": {"name": "default"}, "codecs": [LITTLE],
    },
}  # fmt: skip


def document(zarr_format: int, members: dict[str, Any]) -> dict[str, Any]:
    made = {**deepcopy(DOCUMENTS[zarr_format]), **members}
    return {name: value for name, value in made.items() if value is not ABSENT}


def parse(written: dict[str, Any]) -> Any:
    if written["zarr_format"] == 2:
        return v2.parse_array({".zarray": written}, path="")
    return v3.parse_array({"zarr.json": written}, path="")


def date(typestr: str, value: str) -> dict[str, Any]:
    return {"dtype": typestr, "fill_value": value}


@pytest.mark.parametrize(
    ("zarr_format", "slip", "right"),
    [
        (2, {"shape": [0, 2], "chunks": [0, 1]}, {"chunks": [1, 1]}),
        (2, {"shape": [0, 2], "chunks": [False, 1]}, {"chunks": [1, 1]}),
        (3, {"shape": [4, 0], "chunk_grid": grid(2, 0)}, {"chunk_grid": grid(2, 1)}),
        (2, {"dtype": "<U5", "filters": VLEN, "fill_value": ""}, {"dtype": "|O"}),
        (2, {"dtype": "|S5", "filters": [{"id": "vlen-bytes"}], "fill_value": ""}, {"dtype": "|O"}),
        (2, date("<M8[s]", "1970-01-01T00:00:07"), {"fill_value": 7}),
        (2, date(">M8[10us]", "1970-01-01T00:00:00.000070"), {"fill_value": 7}),
        (2, date("<M8[D]", "-001-12-31"), {"fill_value": int(np.datetime64("-001-12-31").astype(int))}),
        (2, date("<M8[Y]", "1969"), {"fill_value": -1}),
        (2, {"compressor": ZSTD}, {"compressor": {**ZSTD, "checksum": False}}),
        (2, {"attributes": {}}, {"attributes": None}),
        (2, {"compressor": {**ZSTD, "checksum": "YES"}}, {"compressor": {**ZSTD, "checksum": True}}),
        (3, {"chunk_grid": grid(2, [1, 1])}, {"chunk_grid": uneven(2, [1, 1])}),
        (3, {"codecs": [transposed("F"), LITTLE]}, {"codecs": [transposed([1, 0]), LITTLE]}),
        (3, {"codecs": [sharded(transposed("C"))]}, {"codecs": [sharded(transposed([0, 1]))]}),
        (3, {"codecs": [{**LITTLE, "name": "endian"}, GZIP]}, {"codecs": [LITTLE, GZIP]}),
        (3, {"codecs": [sharded({**LITTLE, "name": "endian"})]}, {"codecs": [sharded(LITTLE)]}),
        (3, {"codecs": ABSENT}, {"codecs": [LITTLE]}),
        (3, {"codecs": [GZIP]}, {"codecs": [LITTLE, GZIP]}),
        (3, {"codecs": [transposed("F"), GZIP]}, {"codecs": [transposed([1, 0]), LITTLE, GZIP]}),
    ],
)  # fmt: skip
def test_slips_are_corrected(zarr_format, slip, right):
    written = document(zarr_format, slip)
    before = deepcopy(written)
    corrected = {**written, **right}
    for name in [name for name, value in right.items() if value is None]:
        del corrected[name]
    assert correct(written, zarr_format) == corrected and written == before
    found = list(find_slips(written, zarr_format))
    assert found and {name for _, members in found for name in members} == right.keys()
    assert parse(written) == parse(corrected)


@pytest.mark.parametrize(
    ("zarr_format", "members"),
    [
        (2, {}),
        (3, {}),
        (2, {"chunks": [0, 1]}),
        (3, {"chunk_grid": grid(0, 1)}),
        (2, {"shape": [0, 2], "chunks": [0.0, 1]}),
        (2, {"dtype": "<Ux", "filters": VLEN}),
        (2, {"dtype": "<f4", "filters": VLEN}),
        (2, date("<M8[s]", "1970-01-01")),
        (2, date("<M8[D]", "1970-01-01T00:00:07")),
        (2, date("<M8[ns]", "3000-01-01T00:00:00.000000000")),
        (2, date("<M8[10us]", "1970-01-01T00:00:00.000007")),
        (2, date("<M8[s]", "1970-01-01T00:00:07Z")),
        (2, date("<M8[D]", "1970-13-01")),
        (2, date("<M8[D]", "today")),
        (2, date("<M8", "1970-01-01")),
        (2, date("<m8[D]", "1970-01-01")),
        (2, {"compressor": {**ZSTD, "checksum": "no"}}),
        (2, {"attributes": {"units": "m"}}),
        (3, {"chunk_grid": {**grid(2, [1, 1]), "name": "other"}}),
        (3, {"codecs": []}),
        (3, {"codecs": None}),
        (3, {"codecs": [transposed("G"), LITTLE]}),
        (3, {"codecs": [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]}),
    ],
)
def test_all_else_stays_as_it_is_written(zarr_format, members):
    written = document(zarr_format, members)
    assert correct(written, zarr_format) is written


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | st.sampled_from(["F", "endian", "<M8[s]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "id", "configuration", "codecs", "order"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from([2, 3]), st.data())
def test_any_members_are_corrected_or_refused_by_the_parser(zarr_format, data):
    names = st.sampled_from(sorted(DOCUMENTS[zarr_format].keys() - {"zarr_format"}))
    members = data.draw(st.dictionaries(names, JSON, max_size=3))
    written = document(zarr_format, members)
    correct(written, zarr_format)
    with suppress(ZstoreError):
        parse(written)
