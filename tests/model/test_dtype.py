"""Data types and fill values: every bit survives, and what is no value of the type is refused."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import MetadataError, UnsupportedError
from zstore.model.dtype import DataType

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
CORE = ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"]


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


def is_plain_nan(value):
    return value == value or value.tobytes() == value.dtype.type("nan").tobytes()


@pytest.mark.parametrize("name", CORE)
def test_names_typestrs_and_dtypes_agree(name):
    data_type = DataType.from_name(name)
    assert data_type.numpy == np.dtype(name)
    assert data_type.numpy.isnative
    assert DataType.from_name({"name": name}) is data_type
    assert DataType.from_numpy(np.dtype(name).newbyteorder(">")) is data_type
    assert pickle.loads(pickle.dumps(data_type)) == data_type
    for endian, order in (("little", "<"), ("big", ">")):
        typestr = data_type.typestr(endian)
        assert np.dtype(typestr) == np.dtype(name).newbyteorder(order)
        assert DataType.from_typestr(typestr) == (
            data_type,
            None if data_type.numpy.itemsize == 1 else endian,
        )


@given(data=st.data(), name=st.sampled_from(CORE), zarr_format=st.sampled_from([2, 3]))
def test_every_bit_pattern_survives(data, name, zarr_format):
    data_type = DataType.from_name(name)
    if name == "bool":
        value = np.bool_(data.draw(st.booleans()))
    else:
        raw = data.draw(st.binary(min_size=data_type.numpy.itemsize, max_size=data_type.numpy.itemsize))
        value = np.frombuffer(raw, data_type.numpy)[0]
    parts = [value.real, value.imag] if data_type.numpy.kind == "c" else [value]
    if zarr_format == 2 and not all(is_plain_nan(part) for part in parts):
        with pytest.raises(UnsupportedError, match="NaN with the bits 0x"):
            data_type.render_fill(value, 2)
        return
    back = data_type.parse_fill(through_json(data_type.render_fill(value, zarr_format)), zarr_format)
    assert back.dtype == data_type.numpy
    assert back.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("name", "given_", "expected"),
    [
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("int64", 2**53 + 1, np.int64(2**53 + 1)),
        ("int16", 1.0, np.int16(1)),
        ("float32", 0.1, np.float32(0.1)),
        ("float32", -3.40282346638529e38, np.finfo(np.float32).min),
        ("float64", "-Infinity", np.float64("-inf")),
        ("float16", "0x7c00", np.float16("inf")),
        ("complex64", [1, "Infinity"], np.complex64(complex(1, np.inf))),
        ("bool", True, np.bool_(True)),
        ("bool", 0, np.bool_(False)),
    ],
)
def test_fill_values_that_documents_hold(name, given_, expected):
    value = DataType.from_name(name).parse_fill(given_, 3)
    assert value.tobytes() == expected.tobytes()


def test_nan_payloads_are_kept_as_hex():
    float32 = DataType.from_name("float32")
    value = float32.parse_fill("0x7fc00001", 3)
    assert value.tobytes() == b"\x01\x00\xc0\x7f"
    assert float32.render_fill(value, 3) == "0x7fc00001"
    assert float32.render_fill(float32.parse_fill("0x7fc00000", 3), 3) == "NaN"
    assert float32.parse_fill(float("nan"), 3).tobytes() == b"\x00\x00\xc0\x7f"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 300),
        ("uint8", -1),
        ("uint64", 2**64),
        ("int32", 1.5),
        ("int32", True),
        ("int32", "1"),
        ("int32", "NaN"),
        ("int32", float("nan")),
        ("int32", [1]),
        ("float32", 1e39),
        ("float64", 10**400),
        ("float32", True),
        ("float32", "nan"),
        ("float32", "0x7fc0"),
        ("float32", "0x7_c00000"),
        ("float32", "0x7fc000001"),
        ("float32", {}),
        ("complex64", 1),
        ("complex64", [1]),
        ("complex64", [1, None]),
        ("complex64", "AAAAAAAAAAA="),
        ("bool", 2),
        ("bool", "true"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(name, value):
    with pytest.raises(MetadataError, match=f"data type {name}|data type float32"):
        DataType.from_name(name).parse_fill(value, 3)


def test_v2_says_some_things_otherwise():
    assert DataType.from_name("bool").parse_fill(0, 2) == np.bool_(False)
    assert DataType.from_name("int16").parse_fill(None, 2) is None
    assert DataType.from_name("int16").render_fill(None, 2) is None
    with pytest.raises(MetadataError, match="expected a number"):
        DataType.from_name("float32").parse_fill("0x7fc00001", 2)
    complex64 = DataType.from_name("complex64")
    assert complex64.parse_fill("AACAPwAAAEA=", 2) == np.complex64(1 + 2j)
    assert complex64.parse_fill("P4AAAEAAAAA=", 2, "big") == np.complex64(1 + 2j)
    with pytest.raises(MetadataError, match="8 bytes in Base64"):
        complex64.parse_fill("AACAPw==", 2)


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        ("float128x", UnsupportedError, "'float128x' is not supported; zstore has bool"),
        ({"name": "some.type", "configuration": {"length": 3}}, UnsupportedError, "'some.type'"),
        ({"name": "int8", "configuration": {"bits": 3}}, MetadataError, "takes no configuration"),
        ({"name": "int8", "must_understand": False}, MetadataError, "expected name and configuration only"),
        ({"configuration": {}}, MetadataError, "expected a name or an object with a name"),
        (17, MetadataError, "expected a name"),
        ({"name": "int8", "configuration": []}, MetadataError, "expected an object"),
    ],
)
def test_data_types_that_cannot_be_had(value, error, reason):
    with pytest.raises(error, match=reason):
        DataType.from_name(value)


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        ("i4", MetadataError, "expected a typestr"),
        ("|i4", MetadataError, "no byte order"),
        ("<", MetadataError, "expected a typestr"),
        ("", MetadataError, "expected a typestr"),
        (None, MetadataError, "expected a typestr"),
        ("<x9", UnsupportedError, "'<x9' is not supported"),
        ("<f12", UnsupportedError, "'<f12' is not supported"),
    ],
)
def test_typestrs_that_cannot_be_had(value, error, reason):
    with pytest.raises(error, match=reason):
        DataType.from_typestr(value)
