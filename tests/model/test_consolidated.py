"""Consolidated metadata: read lazily, kept as it is, never leading out of the group."""

from __future__ import annotations

import pickle

import pytest

from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v2, v3
from zstore.model.array import ArrayModel
from zstore.model.group import Consolidated, GroupModel

GROUP3 = {"zarr_format": 3, "node_type": "group", "attributes": {}}
ARRAY3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int8",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "codecs": [{"name": "bytes"}],
    "fill_value": 0,
    "attributes": {},
}
ARRAY2 = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "|i1",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
    "dimension_separator": ".",
}


def v3_group(metadata):
    block = {"kind": "inline", "must_understand": False, "metadata": metadata}
    return {"zarr.json": {**GROUP3, "consolidated_metadata": block}}


def v2_group(metadata):
    root = {".zgroup": {"zarr_format": 2}}
    return {**root, ".zmetadata": {"zarr_consolidated_format": 1, "metadata": {**root, **metadata}}}


V3 = v3_group({"g": GROUP3, "g/a": ARRAY3, "b": ARRAY3, "g/h": GROUP3, "odd": {**ARRAY3, "data_type": "odd"}})
V2 = v2_group(
    {
        "g/.zgroup": {"zarr_format": 2},
        "g/a/.zattrs": {"units": "K"},
        "g/a/.zarray": ARRAY2,
        "b/.zarray": ARRAY2,
        "g/h/.zgroup": {"zarr_format": 2},
        "odd/.zarray": {**ARRAY2, "dtype": "|O"},
    }
)


@pytest.mark.parametrize(("module", "documents"), [(v3, V3), (v2, V2)], ids=["v3", "v2"])
def test_members_are_parsed_when_asked_for(module, documents):
    model = module.parse_group(documents, path="root")
    known = model.consolidated
    assert isinstance(known, Consolidated)
    assert set(known) == {"g", "g/a", "b", "g/h", "odd"}
    assert known.names() == ["b", "g", "odd"]
    assert isinstance(known["g/a"], ArrayModel)
    below = known["g"].consolidated
    assert (set(below), below.names(), len(below)) == ({"a", "h"}, ["a", "h"], 2)
    assert below["a"] == known["g/a"]
    assert "a" in below
    assert "b" not in below
    assert below["h"] == GroupModel((module is v3 and 3) or 2, {}, below.below("h"))
    assert below["h"].consolidated.names() == []
    with pytest.raises(
        (UnsupportedError, MetadataError), match=r"is not supported|none of the filters"
    ) as caught:
        known["odd"]
    assert caught.value.path == "root/odd"
    with pytest.raises(KeyError):
        known["x"]
    assert pickle.loads(pickle.dumps(model)).consolidated.names() == known.names()


@pytest.mark.parametrize(("module", "documents"), [(v3, V3), (v2, V2)], ids=["v3", "v2"])
def test_documents_go_back_as_they_came(module, documents):
    assert module.render_group(module.parse_group(documents, path="")) == documents


@pytest.mark.parametrize("module", [v3, v2], ids=["v3", "v2"])
def test_plain_models_can_be_consolidated(module):
    source = module.parse_group(V3 if module is v3 else V2, path="")
    models = {path: source.consolidated[path] for path in ("g", "g/a")}
    group = GroupModel(source.zarr_format, {"x": 1}, models)
    again = module.parse_group(module.render_group(group), path="").consolidated
    assert set(again) == {"g", "g/a"}
    assert again["g/a"] == models["g/a"]


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/a", "a/", "a//b", ".", "a/./b", "a\0b"])
def test_paths_that_leave_the_group_are_refused(path):
    with pytest.raises(MetadataError, match="expected a path below 'root'"):
        v3.parse_group(v3_group({path: ARRAY3}), path="root")
    with pytest.raises(MetadataError, match=r"expected a path below 'root'|expected a path ending"):
        v2.parse_group(v2_group({f"{path}/.zarray": ARRAY2}), path="root")


def test_an_empty_path_is_refused():
    with pytest.raises(MetadataError, match="expected a path below"):
        v3.parse_group(v3_group({"": ARRAY3}), path="root")
    with pytest.raises(MetadataError, match="expected a path below"):
        v2.parse_group(v2_group({"/.zarray": ARRAY2}), path="root")


@pytest.mark.parametrize(
    "block",
    [
        [],
        {"kind": "file", "must_understand": False, "metadata": {}},
        {"kind": "inline", "must_understand": False},
        {"kind": "inline", "must_understand": False, "metadata": []},
        {"kind": "inline", "metadata": {}},
    ],
)
def test_malformed_blocks_are_refused(block):
    with pytest.raises(MetadataError, match="consolidated"):
        v3.parse_group({"zarr.json": {**GROUP3, "consolidated_metadata": block}}, path="")


@pytest.mark.parametrize(
    "document",
    [{}, {"zarr_consolidated_format": 2, "metadata": {}}, {"zarr_consolidated_format": 1}, {"metadata": {}}],
)
def test_malformed_zmetadata_is_refused(document):
    with pytest.raises(MetadataError) as caught:
        v2.parse_group({".zgroup": {"zarr_format": 2}, ".zmetadata": document}, path="g")
    assert caught.value.key == ".zmetadata"


def test_attributes_beside_no_node_are_left_out_and_null_is_nothing():
    model = v2.parse_group(v2_group({"stray/.zattrs": {"a": 1}}), path="")
    assert list(model.consolidated) == []
    document = {**GROUP3, "consolidated_metadata": None}
    assert v3.parse_group({"zarr.json": document}, path="").consolidated is None


def test_a_member_that_is_no_object_is_refused_when_asked_for():
    known = v3.parse_group(v3_group({"a": 5}), path="").consolidated
    with pytest.raises(MetadataError, match="expected an object"):
        known["a"]
    known = v2.parse_group(v2_group({"a/.zarray": 5}), path="").consolidated
    with pytest.raises(MetadataError, match="expected an object"):
        known["a"]
