"""Every data type: what documents call it, what numpy holds it in, and every bit of its fill values."""

from __future__ import annotations

import base64
import json
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore.errors import ExtensionError, MetadataError, UnsupportedError
from zstore.extensions import builtin
from zstore.extensions.offers import Offer
from zstore.extensions.plugins import Plugin
from zstore.extensions.registry import Registry
from zstore.model import dtype as dtype_module
from zstore.model.dtype import DataType, order_of, split_swaps, stored_dtype
from zstore.testing.data_types import DataTypeContract


def time(kind, unit, scale):
    return {"name": f"numpy.{kind}64", "configuration": {"unit": unit, "scale_factor": scale}}


def sized(name, size):
    return {"name": name, "configuration": {"length_bytes": size}}


def fields(*listed):
    return {"name": "struct", "configuration": {"fields": [*listed]}}


def struct(*named):
    return fields(*({"name": name, "data_type": kind} for name, kind in named))


POINT = struct(("x", "float32"), ("y", "float32"))
NESTED = struct(("p", POINT), ("t", time("datetime", "s", 1)), ("s", sized("null_terminated_bytes", 3)))
V3_TYPES = {
    "M8[25us]": time("datetime", "us", 25),
    "M8": time("datetime", "generic", 1),
    "m8[D]": time("timedelta", "D", 1),
    "S5": sized("null_terminated_bytes", 5),
    "U3": sized("fixed_length_utf32", 12),
    "V3": "r24",
    "V1": "r8",
    "O": "bytes",
}
SMALL = [*builtin.SMALL_FLOATS, "int2", "int4", "uint2", "uint4"]
PLAIN = [
    *[value for value in V3_TYPES.values() if value != "bytes"],
    sized("raw_bytes", 4),
    POINT,
    NESTED,
    *SMALL,
    "complex_float16",
    "complex_bfloat16",
]
TYPESTRS = [
    "|S3",
    ">U4",
    "<U1",
    "|V5",
    "<M8[7D]",
    ">M8",
    "<m8[ns]",
    "<f16",
    ">c32",
    [["a", "<i4"]],
    [["a", ">i4"], ["b", "|S3"], ["c", ">U2"]],
    [["a", "<i4"], ["b", ">f8", [2, 3]], ["c", [["x", "|u1"], ["y", ">c8"]], [2]]],
]


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize(("numpy", "name"), V3_TYPES.items())
def test_v3_names_and_numpy_dtypes_agree(numpy, name):
    data_type = DataType.from_name(name)
    assert data_type.numpy == np.dtype(numpy)
    if numpy != "O":
        assert DataType.from_numpy(np.dtype(numpy).newbyteorder(">")) == data_type


class TestDataTypes(DataTypeContract):
    names = (
        *("string", "bytes", "variable_length_bytes", "r8", "r24", "numpy.longdouble", "numpy.clongdouble"),
        sized("raw_bytes", 4),
        sized("null_terminated_bytes", 5),
        sized("fixed_length_utf32", 12),
        *(time(kind, "us", 25) for kind in ("datetime", "timedelta")),
        {"name": "numpy.datetime64", "configuration": {"unit": "generic", "scale_factor": 1}},
        {"name": "numpy.timedelta64", "configuration": {"unit": "D", "scale_factor": 1}},
        struct(("x", "float32"), ("y", "float32")),
        NESTED,
        *(name for name in builtin.SMALL_NUMBERS if not re.match("complex_float[468]_", name)),
    )

    def test_what_ml_dtypes_cannot_hold_is_refused_by_name(self):
        for name in set(builtin.SMALL_NUMBERS).difference(map(str, self.names)):
            with pytest.raises(UnsupportedError, match=f"{name}.*ml_dtypes has nothing to hold it"):
                DataType.from_name(name)

    def items(self, data_type):
        dtype, items = data_type.numpy, super().items(data_type) if not data_type.is_object else None
        if data_type.name == "string":
            return np.array(["", "é", "x\0", *"0123456789"], dtype)
        if data_type.is_object:
            return np.array([b"", b"\xff\0", b"x", *(str(i).encode() for i in range(10))], object)
        if dtype.type in (np.longdouble, np.clongdouble):
            return (np.arange(13) / 4).astype(dtype)
        if dtype.kind == "U":
            return np.array([*"aé\U0001f600", *"0123456789"], dtype)
        if dtype.itemsize == 1 and data_type.name in SMALL:
            # Bits above the item's own mean nothing.
            limits = ml_dtypes.iinfo if "int" in data_type.name else ml_dtypes.finfo
            return (items.view("u1") & ((1 << limits(dtype).bits) - 1)).view(dtype)
        return items


class TestObject(DataTypeContract):
    names = ("object",)

    def items(self, data_type):
        return np.array(["a", None, 1.5, {"k": "é"}, *range(9)], object)

    def options(self, data_type):
        yield {"zarr_format": 2, "filters": [{"id": "json2"}]}

    def test_nonsense_is_no_fill_value(self):
        (data_type,) = self.types()
        assert data_type.parse_fill({"any": "JSON"}, 2) == {"any": "JSON"}


@pytest.mark.parametrize("typestr", TYPESTRS, ids=str)
def test_v2_typestrs_come_back(typestr):
    data_type, order = DataType.from_typestr(typestr)
    assert data_type.numpy.isnative
    assert data_type.typestr(order) == typestr
    assert pickle.loads(pickle.dumps(data_type)) == data_type


def is_same(data_type, one, other):
    return data_type.fill_bits(one) == data_type.fill_bits(other)


@given(data=st.data(), name=st.sampled_from(PLAIN))
def test_every_bit_pattern_survives_v3(data, name):
    data_type = DataType.from_name(name)
    if data_type.numpy.kind == "U":
        value = np.str_(data.draw(st.text(max_size=3)))
    else:
        size = data_type.numpy.itemsize
        raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), "u1")
        if isinstance(name, str) and name in SMALL and data_type.numpy.itemsize == 1:
            # Bits above the item's own mean nothing.
            limits = ml_dtypes.iinfo if "int" in name else ml_dtypes.finfo
            raw = raw & ((1 << limits(data_type.numpy).bits) - 1)
        value = raw.view(data_type.numpy)[0]
    back = data_type.parse_fill(through_json(data_type.render_fill(value, 3)), 3)
    assert is_same(data_type, back, value)


@given(data=st.data(), typestr=st.sampled_from([t for t in TYPESTRS if t not in ("<f16", ">c32")]))
def test_every_bit_pattern_survives_v2(data, typestr):
    data_type, order = DataType.from_typestr(typestr)
    if data_type.numpy.kind == "U":
        value = np.str_(data.draw(st.text(max_size=1)))
    else:
        size = data_type.numpy.itemsize
        value = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), data_type.numpy)[0]
    rendered = through_json(data_type.render_fill(value, 2, order))
    assert is_same(data_type, data_type.parse_fill(rendered, 2, order), value)


def test_v2_fill_bytes_are_in_the_stored_order():
    for typestr in TYPESTRS[-3:]:
        data_type, order = DataType.from_typestr(typestr)
        raw = bytes(range(1, data_type.numpy.itemsize + 1))
        given_ = base64.b64encode(raw).decode()
        value = data_type.parse_fill(given_, 2, order)
        assert np.asarray(value).astype(stored_dtype(data_type.numpy, order)).tobytes() == raw
        assert data_type.render_fill(value, 2, order) == given_


def test_long_floats_hold_what_json_can():
    data_type, _ = DataType.from_typestr("<f16")
    assert data_type.render_fill(data_type.parse_fill(1.5, 2), 2) == 1.5
    assert data_type.render_fill(data_type.parse_fill("NaN", 2), 2) == "NaN"
    with pytest.raises(UnsupportedError, match="float64 can hold"):
        data_type.render_fill(np.longdouble(1) / 3, 2)
    with pytest.raises(UnsupportedError, match="not one of Zarr v3"):
        DataType.from_name("numpy.longdouble")
    with pytest.raises(UnsupportedError, match="cannot be said in Zarr v3"):
        data_type.render_name()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (time("datetime", "s", 1), "NaT", np.datetime64("NaT", "s")),
        (time("datetime", "s", 1), -(2**63), np.datetime64("NaT", "s")),
        (time("timedelta", "us", 25), 4, np.timedelta64(4, (("us", 25)))),
        (time("datetime", "μs", 1), 3, np.datetime64(3, "us")),
        (sized("null_terminated_bytes", 5), "YWI=", np.bytes_(b"ab")),
        (sized("null_terminated_bytes", 5), [97, 98], np.bytes_(b"ab")),
        (sized("fixed_length_utf32", 12), "é\U0001f600", np.str_("é\U0001f600")),
        ("r16", [1, 255], np.void(b"\x01\xff")),
        ("r16", "Af8=", np.void(b"\x01\xff")),
        (POINT, {"y": "NaN", "x": 1}, np.array((1, np.nan), [("x", "f4"), ("y", "f4")])[()]),
        (POINT, [2, 3.5], np.array((2, 3.5), [("x", "f4"), ("y", "f4")])[()]),
        (POINT, "AACAPwAAAEA=", np.array((1, 2), [("x", "f4"), ("y", "f4")])[()]),
        ("bfloat16", "NaN", np.array([0x7FC0], "u2").view(ml_dtypes.bfloat16)[0]),
        ("bfloat16", "0x7fc1", np.array([0x7FC1], "u2").view(ml_dtypes.bfloat16)[0]),
        ("bfloat16", "-Infinity", ml_dtypes.bfloat16(-np.inf)),
        ("float8_e4m3", "NaN", np.array([0x7C], "u1").view(ml_dtypes.float8_e4m3)[0]),
        ("float8_e8m0fnu", "NaN", np.array([0xFF], "u1").view(ml_dtypes.float8_e8m0fnu)[0]),
        ("float4_e2m1fn", "0xf3", ml_dtypes.float4_e2m1fn(1.5)),
        ("int4", -8, ml_dtypes.int4(-8)),
        ("complex_bfloat16", [1, "NaN"], np.array([0x3F80, 0x7FC0], "u2").view(ml_dtypes.bcomplex32)[0]),
        ("string", "é", "é"),
        ("bytes", "AP8=", b"\x00\xff"),
        ("bytes", [0, 255], b"\x00\xff"),
    ],
    ids=str,
)
def test_v3_fill_values(name, value, expected):
    data_type = DataType.from_name(name)
    assert is_same(data_type, data_type.parse_fill(value, 3), expected)


@pytest.mark.parametrize(
    ("typestr", "codec", "value", "expected"),
    [
        ("|S5", None, 0, b""),
        ("|S5", None, "", b""),
        ("|S5", None, "YWI=", b"ab"),
        ("<U5", None, 0, ""),
        ("<U5", None, "ab", "ab"),
        ("<M8[s]", None, 7, np.datetime64(7, "s")),
        ("|V2", None, 0, b"\0\0"),
        ([["a", ">i2"], ["b", "|u1"]], None, 0, (0, 0)),
        ([["a", ">i2"], ["b", "|u1"]], None, "AQID", (258, 3)),
        ([["a", ">i2"], ["b", "|u1"]], None, {"a": 5, "b": 6}, (5, 6)),
        ([["a", ">i2", [2, 2]], ["b", "|u1"]], None, [[[1, 2], [3, 4]], 6], ([[1, 2], [3, 4]], 6)),
        ("|O", "vlen-utf8", 0, "0"),
        ("|O", "vlen-utf8", "", ""),
        ("|O", "vlen-bytes", 0, b""),
        ("|O", "vlen-bytes", "YWI=", b"ab"),
        ("|O", "json2", {"a": [1]}, {"a": [1]}),
        ("|O", "vlen-utf8", None, None),
    ],
    ids=str,
)
def test_v2_fill_values(typestr, codec, value, expected):
    data_type, order = DataType.from_typestr(typestr, codec)
    found = data_type.parse_fill(value, 2, order)
    if isinstance(found, np.void) and isinstance(expected, tuple):
        expected = np.array(expected, data_type.numpy)[()]
    assert is_same(data_type, found, expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (time("datetime", "s", 1), "1970-01-01T00:00:07"),
        (time("datetime", "s", 1), 2**63),
        (time("datetime", "s", 1), "nat"),
        (time("datetime", "s", 1), 1.5),
        (time("datetime", "s", 1), True),
        (sized("null_terminated_bytes", 2), "YWJj"),
        (sized("null_terminated_bytes", 2), "a"),
        (sized("null_terminated_bytes", 2), 0),
        (sized("fixed_length_utf32", 4), "ab"),
        (sized("fixed_length_utf32", 4), 0),
        ("r16", [1]),
        ("r16", [1, 256]),
        ("r16", [1, True]),
        ("r16", 0),
        (POINT, {"x": 1}),
        (POINT, {"x": 1, "y": 2, "z": 3}),
        (POINT, {"x": 1, "y": None}),
        (POINT, {"x": 1, "y": "one"}),
        (POINT, "AAAA"),
        (POINT, 1),
        ("bfloat16", 1e39),
        ("bfloat16", "0x7f"),
        ("float8_e4m3fnuz", "Infinity"),
        ("float8_e4m3fnuz", 1000),
        ("float4_e2m1fn", "NaN"),
        ("float4_e2m1fn", 7),
        ("float8_e8m0fnu", 0),
        ("int4", 8),
        ("uint2", -1),
        ("string", 0),
        ("string", "\ud800"),
        ("bytes", "a"),
        ("bytes", 0),
    ],
    ids=str,
)
def test_what_is_no_value_of_the_type_is_refused(name, value):
    with pytest.raises(MetadataError, match="fill_value is"):
        DataType.from_name(name).parse_fill(value, 3)


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        (time("datetime", "fortnight", 1), MetadataError, "expected scale_factor and a unit"),
        (time("datetime", "s", 0), MetadataError, "from 1 to"),
        (time("datetime", "s", 2**31), MetadataError, "from 1 to"),
        (time("datetime", ["s"], 1), MetadataError, "expected scale_factor and a unit"),
        ("numpy.datetime64", MetadataError, "expected scale_factor and a unit"),
        (sized("fixed_length_utf32", 6), MetadataError, "multiple of 4"),
        (sized("null_terminated_bytes", 0), MetadataError, "length_bytes"),
        (sized("raw_bytes", 2**31), UnsupportedError, "at most 16777216"),
        (sized("fixed_length_utf32", 2**26), UnsupportedError, "at most 16777216"),
        ("r7", MetadataError, "multiple of 8"),
        ("r99999999999999999999", MetadataError, "multiple of 8"),
        ("r80000000000", UnsupportedError, "at most 16777216"),
        ("r0", UnsupportedError, "'r0' is not supported"),
        (struct(), MetadataError, "list of fields"),
        (struct(("a", "int8"), ("a", "int8")), MetadataError, "each name once"),
        (struct(("", "int8")), MetadataError, "expected a string"),
        (fields(["a", "int8", [2, 0]]), MetadataError, "integers of at least 1"),
        (struct(("a", "string")), MetadataError, "expected one of fixed size"),
        (struct(("a", "nothing")), UnsupportedError, "'nothing' is not supported"),
        (struct(("a", "numpy.longdouble")), UnsupportedError, "not one of Zarr v3"),
        (struct(("a", "r134217728"), ("b", "int8")), UnsupportedError, "at most 16777216"),
        ({"name": "string", "configuration": {"a": 1}}, MetadataError, "takes no configuration"),
        ({"name": "bfloat16", "configuration": {"a": 1}}, MetadataError, "takes no configuration"),
        ("object", UnsupportedError, "not one of Zarr v3"),
        ("complex_float8_e4m3", UnsupportedError, "nothing to hold it"),
    ],
    ids=str,
)
def test_data_types_that_cannot_be_had(value, error, reason):
    with pytest.raises(error, match=reason):
        DataType.from_name(value)


@pytest.mark.parametrize(
    ("typestr", "error", "reason"),
    [
        ("|S0", UnsupportedError, "at least one byte"),
        ("<U0", UnsupportedError, "at least one byte"),
        ("|V0", UnsupportedError, "at least one byte"),
        ("|U3", MetadataError, "no byte order"),
        ("|M8[s]", MetadataError, "no byte order"),
        ("<M4[s]", UnsupportedError, "not supported"),
        ("<M8[x]", UnsupportedError, "not supported"),
        ("<M8[s/4]", UnsupportedError, "not supported"),
        ("<U4294967295", UnsupportedError, "not supported"),
        ("<f3", UnsupportedError, "not supported"),
        ("<i4,<i4", UnsupportedError, "not supported"),
        ([], MetadataError, "at least one field"),
        ([["a", "<i4"], ["a", "<i4"]], MetadataError, "'a'"),
        ([["a", "i4"]], MetadataError, "expected a typestr"),
        ([["a", "<i4", [0]]], MetadataError, "shape of integers"),
        ([["a", "<i4", "2"]], MetadataError, "shape of integers"),
        ([["a", "<i4", [2**30, 2**30]]], MetadataError, "dtype is"),
        ([["a", "<i4", [2**10, 2**13]]], UnsupportedError, "at most 16777216"),
        ("|S16777217", UnsupportedError, "at most 16777216"),
        ([[["title", "a"], "<i4"]], MetadataError, r"expected \[name, dtype\]"),
        ([["a", "|O"]], UnsupportedError, "objects within fields"),
        ("|O", MetadataError, "none of the filters"),
        (17, MetadataError, "expected a typestr"),
    ],
    ids=str,
)
def test_typestrs_that_cannot_be_had(typestr, error, reason):
    with pytest.raises(error, match=reason):
        DataType.from_typestr(typestr)


def test_fields_nested_without_end_are_refused():
    typestr, name = [["a", "<i4"]], POINT
    for _ in range(200):
        typestr, name = [["a", typestr]], struct(("a", name))
    with pytest.raises(MetadataError, match="nested more than 32"):
        DataType.from_typestr(typestr)
    with pytest.raises(MetadataError, match="nested more than 32"):
        DataType.from_name(name)


def test_older_documents_keep_their_words():
    legacy = {
        "name": "structured",
        "configuration": {
            "fields": [["p", {"name": "structured", "configuration": {"fields": [["x", "int16"]]}}]]
        },
    }
    data_type = DataType.from_name(legacy)
    assert data_type == DataType.from_name(struct(("p", struct(("x", "int16")))))
    assert data_type.render_name() == legacy
    assert pickle.loads(pickle.dumps(data_type)).render_name() == legacy
    value = data_type.parse_fill("AQI=", 3, "big")
    assert value["p"]["x"] == 258
    assert data_type.render_fill(value, 3, "big") == "AQI="
    assert DataType.from_name("variable_length_bytes").render_name() == "variable_length_bytes"
    assert DataType.from_name("variable_length_bytes") == DataType.from_name("bytes")
    assert DataType.from_name("complex_float32").render_name() == "complex_float32"
    assert DataType.from_name("complex_float32") == DataType.from_name("complex64")


def test_object_codecs_say_what_objects_are():
    names = {"vlen-utf8": "string", "vlen-bytes": "bytes", "vlen-array": "object", "acme": "object"}
    for codec, name in names.items():
        data_type, order = DataType.from_typestr("|O", codec)
        assert (data_type.name, data_type.is_object, order) == (name, True, None)
        assert data_type.typestr(None) == "|O"
        assert pickle.loads(pickle.dumps(data_type)) == data_type


def test_numpy_dtypes_lose_gaps_but_nothing_else():
    aligned = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    assert DataType.from_numpy(aligned).numpy == np.dtype([("a", "i1"), ("b", "f8")])
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})
    with pytest.raises(UnsupportedError, match="overlaps"):
        DataType.from_numpy(overlapping)
    with pytest.raises(UnsupportedError, match="title"):
        DataType.from_numpy(np.dtype([(("title", "a"), "i4")]))
    with pytest.raises(UnsupportedError, match="does not say what its items are"):
        DataType.from_numpy(object)
    with pytest.raises(UnsupportedError, match="is not supported"):
        DataType.from_numpy(ml_dtypes.uint1)
    with pytest.raises(MetadataError, match="missing strings"):
        DataType.from_numpy(np.dtypes.StringDType(na_object=None))


@pytest.mark.parametrize("typestr", [">i4", "<U3", "|S3", ">c16", ">M8[s]", *TYPESTRS[-3:]], ids=str)
def test_orders_take_a_dtype_there_and_back(typestr):
    data_type, order = DataType.from_typestr(typestr)
    stored = stored_dtype(data_type.numpy, order)
    assert order_of(stored) == order
    raw = np.arange(2 * stored.itemsize, dtype="u1")
    expected = raw.view(stored).astype(data_type.numpy).tobytes()
    items = raw.reshape(2, -1).copy()
    for offset, unit, count in split_swaps(data_type.numpy, order):
        part = items[:, offset : offset + unit * count].reshape(2, count, unit)
        items[:, offset : offset + unit * count] = part[:, :, ::-1].reshape(2, -1)
    assert items.tobytes() == expected


class Triple:
    """What a plugin's data type class looks like: three int16 that are one item."""

    @classmethod
    def from_name(cls, name, configuration):
        if configuration.keys() - {"unit"}:
            raise MetadataError(f"data type {name!r} takes a unit only")
        base = DataType.restore(struct(("a", "int16"), ("b", "int16"), ("c", "int16")))
        return DataType(name, dict(configuration), base.numpy, base.fill)

    @classmethod
    def from_numpy(cls, dtype):
        return None


class Flag:
    """A type that numpy holds, and no other data type takes."""

    @classmethod
    def from_name(cls, name, configuration):
        return DataType(name, {}, np.dtype(ml_dtypes.int1), DataType.from_name("int4").fill)

    @classmethod
    def from_numpy(cls, dtype):
        return cls.from_name("acme.flag", {}) if dtype == ml_dtypes.int1 else None


@pytest.fixture
def plugins(monkeypatch):
    def load():
        offers = (
            ("data type", Offer("acme.triple", f"{__name__}:Triple", ("acme.three",))),
            ("data type", Offer("acme.flag", f"{__name__}:Flag")),
            ("data type", Offer("acme.broken", "acme_is_not_installed:Type")),
        )
        return [Plugin("acme", "acme", "acme", "1", "ok", offers)]

    registry = Registry("data type", builtin.DATA_TYPES, (), load)
    monkeypatch.setattr(dtype_module, "registry", registry)


def test_plugins_add_data_types(plugins):
    value = {"name": "acme.triple", "configuration": {"unit": "m"}}
    data_type = DataType.from_name(value)
    assert data_type.render_name() == value
    assert data_type.numpy.names == ("a", "b", "c")
    assert DataType.from_name("acme.three").name == "acme.three"
    with pytest.raises(MetadataError, match="a unit only"):
        DataType.from_name({"name": "acme.triple", "configuration": {"size": 1}})
    assert DataType.from_numpy(ml_dtypes.int1).name == "acme.flag"
    with pytest.raises(ExtensionError, match="could not be imported"):
        DataType.from_name("acme.broken")
    with pytest.raises(UnsupportedError, match=r"'acme.tripel' is not supported.*did you mean"):
        DataType.from_name("acme.tripel")
