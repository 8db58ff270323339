"""Zarr v3 documents: parse and render are inverses, and every broken member is named."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v3
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.document import parse_json, render_json
from zstore.model.dtype import DataType
from zstore.model.grid import ChunkKeys, RectilinearGrid, RegularGrid
from zstore.model.group import GroupModel

ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [10000, 1000],
    "dimension_names": ["rows", None],
    "data_type": "float64",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1000, 100]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "codecs": [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
        {"name": "crc32c"},
    ],
    "fill_value": "NaN",
    "attributes": {"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]},
}
ABSENT = object()


def parse(document, path="a"):
    return v3.parse_array({"zarr.json": document}, path=path)


def changed(**members):
    document = {**copy.deepcopy(ARRAY), **members}
    return {name: value for name, value in document.items() if value is not ABSENT}


def test_the_specifications_example():
    model = parse(ARRAY)
    assert model == ArrayModel(
        3,
        (10000, 1000),
        DataType.from_name("float64"),
        RegularGrid((1000, 100)),
        ChunkKeys("default", "/"),
        (
            CodecModel("bytes", {"endian": "little"}),
            CodecModel("zstd", {"level": 3, "checksum": False}),
            CodecModel("crc32c"),
        ),
        model.fill_value,
        {"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]},
        ("rows", None),
    )
    assert np.isnan(model.fill_value)
    assert v3.render_array(model) == {"zarr.json": ARRAY}


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
configurations = st.dictionaries(
    names, st.integers() | st.booleans() | names | st.lists(st.integers()), max_size=3
)
# Names of nobody: "endian", which Hypothesis finds in the code, is an older name of "bytes".
codecs = st.builds(CodecModel, names.map("acme.".__add__), configurations, st.booleans())


@st.composite
def models(draw):
    shape = tuple(draw(st.lists(st.integers(0, 2**40), max_size=4)))
    data_type = DataType.from_name(draw(st.sampled_from(["bool", "int8", "uint64", "float32", "complex128"])))
    return ArrayModel(
        3,
        shape,
        data_type,
        RegularGrid(tuple(draw(st.integers(1, 2**12)) for _ in shape)),
        ChunkKeys(draw(st.sampled_from(["default", "v2"])), draw(st.sampled_from("./"))),
        tuple(draw(st.lists(codecs, min_size=1, max_size=3))),
        data_type.default_fill(),
        draw(configurations),
        draw(st.none() | st.tuples(*[st.none() | names for _ in shape])),
        {"x": {"must_understand": False, "y": 1}} if draw(st.booleans()) else {},
    )


@given(models())
def test_rendered_models_parse_to_themselves(model):
    documents = v3.render_array(model)
    stored = {name: parse_json(render_json(document), path="") for name, document in documents.items()}
    assert parse(stored["zarr.json"]) == model
    assert v3.render_array(parse(stored["zarr.json"])) == documents


def transposed(order: Any) -> dict[str, Any]:
    return {"name": "transpose", "configuration": {"order": order}}


def sharded(codec: Any) -> dict[str, Any]:
    inner = {"chunk_shape": [1, 1], "codecs": [codec, "bytes"], "index_codecs": ["bytes"]}
    return {"name": "sharding_indexed", "configuration": inner}


def grid(chunk_shape):
    return {"name": "regular", "configuration": {"chunk_shape": chunk_shape}}


@pytest.mark.parametrize(
    ("members", "where", "expected"),
    [
        ({"chunk_key_encoding": "default"}, "keys", ChunkKeys("default", "/")),
        ({"chunk_key_encoding": {"name": "v2"}}, "keys", ChunkKeys("v2", ".")),
        (
            {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}}},
            "keys",
            ChunkKeys("v2", "/"),
        ),
        ({"codecs": ["bytes"]}, "codecs", (CodecModel("bytes"),)),
        ({"codecs": [{"name": "x", "must_understand": False}]}, "codecs", (CodecModel("x", {}, False),)),
        ({"data_type": {"name": "int8"}, "fill_value": 1.0}, "fill_value", np.int8(1)),
        ({"dimension_names": ABSENT}, "dimension_names", None),
        ({"attributes": ABSENT}, "attributes", {}),
        (
            {"codecs": [transposed("F"), "bytes"]},
            "codecs",
            (CodecModel(**transposed([1, 0])), CodecModel("bytes")),
        ),
        (
            {"codecs": [transposed("C"), "bytes"]},
            "codecs",
            (CodecModel(**transposed([0, 1])), CodecModel("bytes")),
        ),
        (
            {"codecs": [sharded(transposed("F"))]},
            "codecs",
            (CodecModel(**sharded(transposed([1, 0]))),),
        ),
        ({"storage_transformers": []}, "extra", {}),
        (
            {"later": {"must_understand": False, "a": 1}},
            "extra",
            {"later": {"must_understand": False, "a": 1}},
        ),
        ({"attributes": {"_ARRAY_DIMENSIONS": ["y", "x"]}}, "attributes", {"_ARRAY_DIMENSIONS": ["y", "x"]}),
        ({"shape": [0, 1000]}, "shape", (0, 1000)),
        (
            {"shape": [4, 20], "chunk_grid": grid([2, [5, 10, 5]])},
            "grid",
            RectilinearGrid.parse([2, [5, 10, 5]], (4, 20)),
        ),
        ({"shape": [2**63 - 1, 1]}, "shape", (2**63 - 1, 1)),
        ({"fill_value": None}, "fill_value", None),
    ],
)
def test_forms_that_are_read(members, where, expected):
    model = parse(changed(**{"fill_value": 0.0, **members}))
    assert getattr(model, where) == expected
    assert parse(v3.render_array(model)["zarr.json"]) == model


def test_a_zero_dimensional_array():
    model = parse(
        changed(
            shape=[],
            dimension_names=[],
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": []}},
        )
    )
    assert (model.shape, model.grid.chunk_shape, model.dimension_names) == ((), (), ())


BROKEN = [
    ({"zarr_format": 2}, MetadataError, "zarr_format is 2; expected 3"),
    ({"zarr_format": True}, MetadataError, "zarr_format is True"),
    ({"zarr_format": "3"}, MetadataError, "zarr_format is '3'"),
    ({"node_type": "group"}, MetadataError, "node_type is 'group'; expected 'array'"),
    ({"shape": [-1, 2]}, MetadataError, "shape is .*got -1"),
    ({"shape": [1.0, 2]}, MetadataError, "got 1.0"),
    ({"shape": [True, 2]}, MetadataError, "got True"),
    ({"shape": [2**63, 2]}, MetadataError, "from 0 to 2"),
    ({"shape": 10}, MetadataError, "expected a list"),
    ({"shape": "10"}, MetadataError, "expected a list"),
    ({"data_type": "string9"}, UnsupportedError, "'string9' is not supported"),
    ({"data_type": 5}, MetadataError, "data_type is 5"),
    ({"chunk_grid": {"name": "hexagonal", "configuration": {}}}, UnsupportedError, "'hexagonal'"),
    ({"chunk_grid": "regular"}, MetadataError, "expected chunk_shape only"),
    ({"chunk_grid": grid([0, 100])}, MetadataError, "at least 1"),
    ({"chunk_grid": grid([-1, 100])}, MetadataError, "got -1"),
    ({"chunk_grid": grid([100])}, MetadataError, "with 1 dimensions; expected 2"),
    ({"chunk_grid": grid([2**40, 2**40])}, MetadataError, "bytes; expected at most 2"),
    ({"chunk_grid": {**grid([1, 1]), "must_understand": False}}, MetadataError, "no reader can do without"),
    ({"chunk_key_encoding": "n5"}, UnsupportedError, "'n5' is not supported"),
    (
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "-"}}},
        MetadataError,
        "separator of chunk_key_encoding 'default' is '-'",
    ),
    (
        {"chunk_key_encoding": {"name": "default", "configuration": {"prefix": "c"}}},
        MetadataError,
        "expected separator only",
    ),
    ({"chunk_key_encoding": {"configuration": {}}}, MetadataError, "has the name None"),
    ({"codecs": []}, MetadataError, "at least one codec"),
    ({"codecs": {}}, MetadataError, "at least one codec"),
    ({"codecs": [{"configuration": {}}]}, MetadataError, "codec has the name None"),
    (
        {"codecs": [{"name": "bytes", "configuration": 5}]},
        MetadataError,
        "configuration of codec 'bytes' is 5",
    ),
    ({"codecs": [{"name": "bytes", "level": 5}]}, MetadataError, "codec 'bytes' has the member 'level'"),
    ({"codecs": [{"name": "bytes", "must_understand": 0}]}, MetadataError, "expected true or false"),
    ({"codecs": [None]}, MetadataError, "codec is None"),
    ({"codecs": [""]}, MetadataError, "codec is ''"),
    ({"fill_value": "x"}, MetadataError, "fill_value is 'x'"),
    ({"attributes": []}, MetadataError, "attributes is"),
    ({"attributes": None}, MetadataError, "attributes is None"),
    ({"dimension_names": ["a"]}, MetadataError, "expected 2 names"),
    ({"dimension_names": ["a", 1]}, MetadataError, "strings and nulls"),
    ({"dimension_names": "ab"}, MetadataError, "strings and nulls"),
    ({"storage_transformers": [{"name": "cache"}]}, UnsupportedError, "storage transformer 'cache'"),
    ({"storage_transformers": {"name": "cache"}}, MetadataError, "expected a list"),
    ({"later": {"a": 1}}, UnsupportedError, "member 'later' is not supported"),
    ({"later": {"must_understand": True}}, UnsupportedError, "member 'later'"),
    ({"later": None}, UnsupportedError, "member 'later'"),
    *[
        ({name: ABSENT}, MetadataError, f"member '{name}' is missing")
        for name in ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding")
    ],
    ({"fill_value": ABSENT}, MetadataError, "member 'fill_value' is missing"),
]


@pytest.mark.parametrize(("members", "error", "reason"), BROKEN)
def test_broken_arrays_say_what_and_where(members, error, reason):
    with pytest.raises(error, match=reason) as caught:
        parse(changed(**members), path="group/array")
    assert (caught.value.path, caught.value.key) == ("group/array", "zarr.json")


GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {"spam": "ham", "eggs": 42}}


def parse_group(document, path="g"):
    return v3.parse_group({"zarr.json": document}, path=path)


def test_groups():
    model = parse_group(GROUP)
    assert model == GroupModel(3, {"spam": "ham", "eggs": 42})
    assert v3.render_group(model) == {"zarr.json": GROUP}
    assert parse_group({"zarr_format": 3, "node_type": "group"}) == GroupModel(3)
    assert v3.parse_node({"zarr.json": GROUP}, "g") == model
    assert v3.parse_node({"zarr.json": ARRAY}, "g").shape == (10000, 1000)


@pytest.mark.parametrize(
    ("document", "error", "reason"),
    [
        ({"zarr_format": 3}, MetadataError, "node_type is None"),
        ({**GROUP, "node_type": "link"}, MetadataError, "node_type is 'link'"),
        ({**GROUP, "attributes": 3}, MetadataError, "attributes is 3"),
        ({**GROUP, "later": 1}, UnsupportedError, "member 'later'"),
        ({**GROUP, "consolidated_metadata": {"kind": "inline", "metadata": {}}}, MetadataError, "malformed"),
        ([], MetadataError, "expected an object"),
    ],
)
def test_broken_groups_say_what_and_where(document, error, reason):
    with pytest.raises(error, match=reason) as caught:
        v3.parse_node({"zarr.json": document}, "g")
    assert (caught.value.path, caught.value.key) == ("g", "zarr.json")


def test_models_can_be_pickled():
    model = parse(ARRAY)
    assert v3.render_array(pickle.loads(pickle.dumps(model))) == {"zarr.json": ARRAY}
