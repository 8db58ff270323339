"""Documents that were seen before are parsed and rendered as if they had not been."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.base import once as content
from zstore.errors import MetadataError, UnsupportedError
from zstore.model import v2, v3
from zstore.model.document import render_json
from zstore.storage.memory import MemoryStore

V3: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 1],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 1]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0.0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {},
}
V2: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [4, 1],
    "chunks": [2, 1],
    "dtype": "<f4",
    "compressor": {"id": "zstd", "level": 1},
    "fill_value": 0.0,
    "order": "C",
    "filters": None,
}


def forget() -> None:
    for version in (v2, v3):
        version._known._made.clear()


def count() -> int:
    return len(v2._known._made) + len(v3._known._made)


def parse(document: dict[str, Any], attributes: Any = None) -> Any:
    if "node_type" in document or "codecs" in document:
        return v3.parse_array(
            {"zarr.json": document if attributes is None else document | {"attributes": attributes}}, path=""
        )
    return v2.parse_array({".zarray": document, ".zattrs": attributes}, path="")


@pytest.fixture(params=[V3, V2], ids=["v3", "v2"])
def document(request) -> dict[str, Any]:
    forget()
    document: dict[str, Any] = deepcopy(request.param)
    parse(document)
    return document


def test_a_document_seen_before_is_the_same_array(document):
    first, second = parse(document), parse(deepcopy(document))
    assert first == second
    assert first.codecs is second.codecs
    assert count() == 1


def test_attributes_and_what_is_unknown_are_each_document_s_own(document):
    assert parse(document, {"a": 1}).attributes == {"a": 1}
    assert parse(document, {"a": 2}).attributes == {"a": 2}
    extra = {"x": {"must_understand": False}}
    assert parse(document | extra).extra == extra
    assert parse(document).extra == {}
    assert parse(document).attributes is not parse(deepcopy(document)).attributes


def test_what_only_python_takes_for_the_same_is_an_error_still(document):
    for shape in ([4, True], [4.0, 1], [4, 1.0]):
        with pytest.raises(MetadataError, match="shape"):
            parse(document | {"shape": shape})
    with pytest.raises(MetadataError, match="chunk"):
        broken = deepcopy(document)
        broken["chunks"] = broken.get("chunk_grid", {}).get("configuration", {})["chunk_shape"] = [2, True]
        if "chunk_grid" in broken:
            del broken["chunks"]
        parse(broken)


def test_what_is_missing_or_unknown_is_an_error_still(document):
    for name in document.keys() - {"attributes", "filters", "codecs"}:
        with pytest.raises(MetadataError, match=name):
            parse({key: value for key, value in document.items() if key != name})
    if document["zarr_format"] == 3:
        with pytest.raises(UnsupportedError, match="other"):
            parse(document | {"other": 1})


def test_zeros_keep_their_sign(document):
    assert not np.signbit(parse(document).fill_value)
    assert np.signbit(parse(document | {"fill_value": -0.0}).fill_value)
    assert not np.signbit(parse(document).fill_value)


def test_nobody_changes_what_is_kept(document):
    parse(document)
    codecs = document.get("codecs") or [{"configuration": document["compressor"]}]
    codecs[0]["configuration"]["level"] = 99
    changed = parse(document)
    forget()
    assert parse(document) == changed


def test_items_that_can_be_changed_are_not_shared():
    structured = V2 | {"dtype": [["a", "<i2"], ["b", "<i2"]], "fill_value": "AAAAAA=="}
    structured["fill_value"] = "AAAAAA=="
    first, second = parse(structured), parse(structured)
    assert first.fill_value is not second.fill_value
    first.fill_value["a"] = 7
    assert parse(structured).fill_value["a"] == 0


def test_it_does_not_grow_for_ever(monkeypatch):
    forget()
    monkeypatch.setattr(content, "COUNT_LIMIT", 10)
    for length in range(25):
        assert parse(V3 | {"shape": [length, 1]}).shape == (length, 1)
    assert count() <= 10
    large = V3 | {"codecs": [*V3["codecs"], {"name": "x", "configuration": {"y": "z" * 5000}}]}
    before = count()
    assert len(parse(large).codecs) == 2
    assert count() == before


def test_rendering_equals_rendering_for_the_first_time():
    values: list[Any] = [
        [1, 2],
        [1, True],
        [1.0, 2],
        {"a": [1]},
        {"a": [1.0]},
        {"a": [True]},
        {"a": -0.0},
        {"a": 0.0},
        [],
        {},
    ]
    for _ in range(2):
        for value in values:
            text = render_json({"x": value, "y": 1}).decode()
            assert repr(json.loads(text)) == repr({"x": value, "y": 1})
    render_json({"x": {"a": np.str_("a")}})
    with pytest.raises(MetadataError):
        render_json({"x": {"a": np.int32(97)}})
    assert render_json({}) == b"{}"


def test_codecs_that_do_not_fit_are_refused_however_often_they_did():
    made = {"shape": 8, "dtype": "i4", "chunks": 4}
    for _ in range(2):
        zstore.create_array(MemoryStore(), compressors={"id": "zstd", "level": 1}, zarr_format=2, **made)
        for level in (True, 1.0, "1", np.int64(1)):
            store = MemoryStore()
            try:
                zstore.create_array(store, compressors={"id": "zstd", "level": level}, zarr_format=2, **made)
            except (MetadataError, TypeError):
                assert list(store.list()) == []
        with pytest.raises(MetadataError):
            zstore.create_array(MemoryStore(), shards=8, compressors=["zstd", "bytes"], **made)
