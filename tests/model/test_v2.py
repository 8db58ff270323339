"""Zarr v2 documents: parse and render are inverses, and every broken member is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v2
from zstore.model.array import ArrayModel, CodecModel
from zstore.model.document import parse_json, render_json
from zstore.model.dtype import DataType
from zstore.model.grid import ChunkKeys, RegularGrid
from zstore.model.group import GroupModel

# The specification's example, with the separator that it leaves to the default.
ARRAY = {
    "chunks": [1000, 1000],
    "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    "dtype": "<f8",
    "fill_value": "NaN",
    "filters": [{"id": "delta", "dtype": "<f8", "astype": "<f4"}],
    "order": "C",
    "shape": [10000, 10000],
    "zarr_format": 2,
    "dimension_separator": ".",
}
ABSENT = object()


def parse(document, attributes=None, path="a"):
    documents = {".zarray": document}
    if attributes is not None:
        documents[".zattrs"] = attributes
    return v2.parse_array(documents, path=path)


def changed(**members):
    return {name: value for name, value in {**ARRAY, **members}.items() if value is not ABSENT}


def test_the_specifications_example():
    model = parse(ARRAY)
    assert model.codecs == (
        CodecModel("bytes", {"endian": "little"}),
        CodecModel("numcodecs.delta", {"dtype": "<f8", "astype": "<f4"}),
        CodecModel("numcodecs.blosc", {"cname": "lz4", "clevel": 5, "shuffle": 1}),
    )
    assert model.keys == ChunkKeys("v2", ".")
    assert np.isnan(model.fill_value)
    assert v2.render_array(model) == {".zarray": ARRAY}


CODECS = st.fixed_dictionaries(
    {"id": st.sampled_from(["zlib", "delta", "blosc", "own.codec"])},
    optional={"level": st.integers(0, 9), "dtype": st.just("<f4")},
)


@st.composite
def documents(draw):
    shape = draw(st.lists(st.integers(0, 2**40), max_size=4))
    dtype = draw(st.sampled_from(["|b1", "|i1", "<i4", ">i4", "<u8", ">f4", "<f2", "<c8", ">c16"]))
    zarray = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": [draw(st.integers(1, 2**12)) for _ in shape],
        "dtype": dtype,
        "compressor": draw(st.none() | CODECS),
        "fill_value": draw(st.none() | st.just([0.0, "NaN"] if "c" in dtype else dtype == "|b1" or 1)),
        "order": draw(st.sampled_from("CF")),
        "filters": draw(st.none() | st.lists(CODECS, min_size=1, max_size=3)),
        "dimension_separator": draw(st.sampled_from("./")),
    }
    if draw(st.booleans()):
        zarray["later"] = {"a": [None]}
    attributes = draw(st.dictionaries(st.text(max_size=4), st.integers(), max_size=3))
    if draw(st.booleans()):
        attributes["_ARRAY_DIMENSIONS"] = draw(st.lists(st.text(max_size=3), max_size=5))
    return {".zarray": zarray, **({".zattrs": attributes} if attributes else {})}


@given(documents())
def test_parsed_documents_render_to_themselves(given_):
    model = v2.parse_array(given_, path="a")
    assert v2.render_array(model) == given_
    stored = {name: parse_json(render_json(document), path="") for name, document in given_.items()}
    again = v2.parse_array(stored, path="a")
    assert replace(again, fill_value=None) == replace(model, fill_value=None)
    assert v2.render_array(again) == given_


@pytest.mark.parametrize(
    ("members", "where", "expected"),
    [
        ({"dimension_separator": ABSENT}, "keys", ChunkKeys("v2", ".")),
        ({"dimension_separator": "/"}, "keys", ChunkKeys("v2", "/")),
        ({"filters": [], "compressor": None}, "codecs", (CodecModel("bytes", {"endian": "little"}),)),
        ({"filters": ABSENT, "compressor": None}, "codecs", (CodecModel("bytes", {"endian": "little"}),)),
        (
            {"filters": None, "compressor": None, "order": "F", "dtype": ">f8"},
            "codecs",
            (CodecModel("transpose", {"order": [1, 0]}), CodecModel("bytes", {"endian": "big"})),
        ),
        (
            {"filters": None, "compressor": None, "dtype": "|u1", "fill_value": 0},
            "codecs",
            (CodecModel("bytes"),),
        ),
        *[
            (
                {"filters": None, "compressor": {"id": "zstd", "level": 13, "checksum": word}},
                "codecs",
                (
                    CodecModel("bytes", {"endian": "little"}),
                    CodecModel("numcodecs.zstd", {"level": 13, "checksum": flag}, role="compressor"),
                ),
            )
            for word, flag in (("NO", False), ("YES", True))
        ],
        ({"fill_value": None}, "fill_value", None),
        ({"shape": [0, 5]}, "shape", (0, 5)),
        ({"later": 1}, "extra", {"later": 1}),
    ],
)
def test_forms_that_are_read(members, where, expected):
    assert getattr(parse(changed(**members)), where) == expected


def test_empty_filters_are_written_as_null():
    assert v2.render_array(parse(changed(filters=[])))[".zarray"]["filters"] is None


def test_dimension_names_are_xarrays_attribute():
    model = parse(ARRAY, {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"})
    assert model.dimension_names == ("y", "x")
    assert model.attributes == {"units": "K"}
    assert v2.render_array(model)[".zattrs"] == {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"}


@pytest.mark.parametrize("names", [["y"], "yx", ["y", 1], ["y", None], {"y": 1}, None])
def test_malformed_dimension_names_stay_an_attribute(names):
    model = parse(ARRAY, {"_ARRAY_DIMENSIONS": names})
    assert model.dimension_names is None
    assert v2.render_array(model)[".zattrs"] == {"_ARRAY_DIMENSIONS": names}


@pytest.mark.parametrize(
    ("members", "error", "reason"),
    [
        ({"zarr_format": 3}, MetadataError, "zarr_format is 3; expected 2"),
        ({"shape": [1, -1]}, MetadataError, "got -1"),
        ({"shape": [1, False]}, MetadataError, "got False"),
        ({"shape": None}, MetadataError, "shape is None"),
        ({"chunks": [0, 1]}, MetadataError, "chunks is .*at least 1"),
        ({"chunks": [1]}, MetadataError, "chunks is .*expected 2"),
        ({"chunks": True}, MetadataError, "chunks is True"),
        ({"chunks": [2**31, 2**31]}, MetadataError, "expected at most 2"),
        ({"dtype": "f8"}, MetadataError, "dtype is 'f8'"),
        ({"dtype": "|O", "filters": None}, MetadataError, r"'\|O', but none of the filters encodes objects"),
        ({"dtype": [["a", "|O"]]}, UnsupportedError, "objects within fields"),
        ({"dtype": [["a"]]}, MetadataError, r"expected \[name, dtype\]"),
        ({"compressor": "zlib"}, MetadataError, "compressor is 'zlib'"),
        ({"compressor": {"level": 1}}, MetadataError, "expected an object with an id"),
        ({"compressor": {"id": 5}}, MetadataError, "expected an object with an id"),
        ({"filters": {"id": "delta"}}, MetadataError, "filters is"),
        ({"filters": [{}]}, MetadataError, "filter is"),
        ({"order": "K"}, MetadataError, "order is 'K'"),
        ({"order": None}, MetadataError, "order is None"),
        ({"fill_value": "x"}, MetadataError, "fill_value is 'x'"),
        ({"dimension_separator": "-"}, MetadataError, "dimension_separator is '-'"),
        ({"dimension_separator": None}, MetadataError, "dimension_separator is None"),
        *[
            ({name: ABSENT}, MetadataError, f"member '{name}' is missing")
            for name in ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order")
        ],
    ],
)
def test_broken_arrays_say_what_and_where(members, error, reason):
    with pytest.raises(error, match=reason) as caught:
        parse(changed(**members), path="group/array")
    assert (caught.value.path, caught.value.key) == ("group/array", ".zarray")


def test_broken_attributes_say_where():
    with pytest.raises(MetadataError, match="attributes are") as caught:
        parse(ARRAY, [1], path="a")
    assert caught.value.key == ".zattrs"


MODEL = ArrayModel(
    2,
    (4, 6),
    DataType.from_name("int16"),
    RegularGrid((2, 3)),
    ChunkKeys("v2", "."),
    (CodecModel("bytes", {"endian": "little"}), CodecModel("numcodecs.zstd", {"level": 3})),
    np.int16(0),
)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"keys": ChunkKeys("default", "/")}, "chunk keys 'default'"),
        ({"codecs": (CodecModel("sharding_indexed"),)}, "codec 'sharding_indexed'"),
        ({"codecs": ()}, "codec None"),
        ({"codecs": (CodecModel("bytes"), CodecModel("crc32c"))}, "codec 'crc32c'"),
        ({"codecs": (CodecModel("transpose", {"order": [0, 1]}), CodecModel("bytes"))}, r"order \[0, 1\]"),
        ({"dimension_names": ("y", None)}, "dimension_names .* every dimension needs a name"),
    ],
)
def test_what_v2_cannot_say_is_named(members, reason):
    with pytest.raises(UnsupportedError, match=reason):
        v2.render_array(replace(MODEL, **members))


def test_roles_are_guessed_where_no_document_says_them():
    zlib, delta = CodecModel("numcodecs.zlib", {"level": 1}), CodecModel("numcodecs.delta", {"dtype": "<i2"})
    document = v2.render_array(replace(MODEL, codecs=(MODEL.codecs[0], delta, zlib)))[".zarray"]
    assert document["filters"] == [{"id": "delta", "dtype": "<i2"}]
    assert document["compressor"] == {"id": "zlib", "level": 1}
    document = v2.render_array(replace(MODEL, codecs=(MODEL.codecs[0], delta)))[".zarray"]
    assert document["filters"] == [{"id": "delta", "dtype": "<i2"}]
    assert document["compressor"] is None


def test_dimension_names_and_an_attribute_that_says_otherwise():
    with pytest.raises(MetadataError, match="_ARRAY_DIMENSIONS"):
        v2.render_array(
            replace(MODEL, dimension_names=("y", "x"), attributes={"_ARRAY_DIMENSIONS": ["a", "b"]})
        )


def test_groups():
    documents = {".zgroup": {"zarr_format": 2}, ".zattrs": {"a": 1}}
    assert v2.parse_group(documents, path="g") == GroupModel(2, {"a": 1})
    assert v2.render_group(GroupModel(2, {"a": 1})) == documents
    assert v2.render_group(GroupModel(2)) == {".zgroup": {"zarr_format": 2}}
    with pytest.raises(MetadataError, match="zarr_format is 3"):
        v2.parse_group({".zgroup": {"zarr_format": 3}}, path="g")
