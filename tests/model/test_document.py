"""JSON documents: what peers write is read, what is broken says where, what is written is stable."""

from __future__ import annotations

import enum
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import MetadataError
from zstore.model.document import check_attributes, parse_json, render_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_what_is_rendered_parses_to_the_same(document):
    data = render_json(document)
    assert json.loads(data) == document
    assert parse_json(data, path="a") == document
    assert render_json(parse_json(memoryview(data), path="a")) == data


def test_documents_look_like_the_specifications_examples():
    document = {
        "shape": [10, 20],
        "grid": {"name": "regular", "empty": {}},
        "codecs": [{"name": "bytes"}],
        "é": [],
    }
    assert render_json(document).decode() == (
        '{\n  "shape": [10, 20],\n  "grid": {\n    "name": "regular",\n    "empty": {}\n  },\n'
        '  "codecs": [\n    {\n      "name": "bytes"\n    }\n  ],\n  "é": []\n}'
    )


def test_lone_surrogates_survive_as_escapes():
    data = b'{"a": "\\ud800", "\xc3\xa9": 1}'
    document = parse_json(data, path="a")
    assert parse_json(render_json(document), path="a") == document


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value at line 1, column 1"),
        (b'{"a": 1', "Expecting ',' delimiter at line 1, column 8"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[1]", "expected an object, got list"),
        (b"null", "expected an object, got NoneType"),
        (b'{"a":' * 100_000, "nested deeper than 256 levels"),
        (b'{"a": ' + b"9" * 5000 + b"}", "4300"),
    ],
    ids=["empty", "cut", "utf8", "utf16", "bom", "list", "null", "deep", "digits"],
)
def test_what_is_no_document_says_why_and_where(data, reason):
    with pytest.raises(MetadataError, match=reason) as caught:
        parse_json(data, path="group/array", key="zarr.json")
    assert caught.value.path == "group/array"
    assert caught.value.key == "zarr.json"


def test_bare_nan_tokens_are_read_and_go_back_as_they_came():
    data = b'{\n  "a": [NaN, -Infinity]\n}'
    assert render_json(parse_json(data, path="")) == data


def test_integers_of_any_size_are_exact():
    assert parse_json(b'{"a": 123456789012345678901234567890}', path="") == {
        "a": 123456789012345678901234567890
    }


class Colour(enum.StrEnum):
    RED = "red"


def test_attributes_become_plain_values():
    plain = check_attributes(
        {
            "a": (1, np.int16(2)),
            "b": np.arange(3),
            "c": np.float32(0.5),
            "d": Colour.RED,
            "e": np.bool_(True),
        },
        path="",
    )
    assert plain == {"a": [1, 2], "b": [0, 1, 2], "c": 0.5, "d": "red", "e": True}
    assert {type(value) for value in plain.values()} == {list, float, str, bool}


def test_attributes_share_nothing_with_what_was_given():
    inner = [1]
    plain = check_attributes({"a": {"b": inner}}, path="")
    inner.append(2)
    assert plain == {"a": {"b": [1]}}


def circle():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"a": {"b": [0.0, float("nan")]}}, r"attribute 'a\.b\[1\]' is nan"),
        ({"a": np.float32("inf")}, "attribute 'a' is inf"),
        ({"a": np.array([np.nan])}, r"attribute 'a\[0\]' is nan"),
        ({1: 2}, "attribute name 1 is no string"),
        ({"a": {1: 2}}, "attribute name 1 in attribute 'a' is no string"),
        ({"a": b"x"}, "attribute 'a' is a bytes"),
        ({"a": {1, 2}}, "attribute 'a' is a set"),
        ({"a": np.datetime64("2020-01-01")}, "attribute 'a' is a date"),
        ({"a": 1j}, "attribute 'a' is a complex"),
        ({"a": circle()}, "nested deeper than 240"),
        ([1], "expected a mapping"),
    ],
)
def test_attributes_that_json_cannot_say_are_refused_by_name(attributes, reason):
    with pytest.raises(MetadataError, match=reason) as caught:
        check_attributes(attributes, path="somewhere")
    assert caught.value.path == "somewhere"


def test_what_json_cannot_say_is_not_written():
    with pytest.raises(MetadataError, match="cannot be written"):
        render_json({"a": [object()]})
    with pytest.raises(MetadataError, match="nested deeper than 256 levels"):
        render_json({"a": circle()})
