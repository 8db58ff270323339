"""parse(render(model)) is the model again, whatever the type, format, codecs and fill value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zstore.model import v2, v3
from zstore.model.document import parse_json, render_json
from zstore.nodes.create import ArrayRequest

FIELDS = np.dtype([("a", "<i4"), ("b", "S3"), ("c", [("x", "<f8"), ("t", "<M8[ms]")])])
MIXED = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", [("x", "u1"), ("y", ">c8")])])
BOTH = [
    "?",
    "i1",
    ">i2",
    "u8",
    "f2",
    ">f4",
    "f8",
    "c8",
    ">c16",
    "M8[25us]",
    ">m8[D]",
    "S5",
    "U3",
    ">U2",
    "V3",
]
DTYPES = {
    2: [*BOTH, str, bytes, FIELDS, FIELDS.newbyteorder(">"), MIXED, "f16", ">c32"],
    3: [*BOTH, str, bytes, FIELDS, FIELDS.newbyteorder(">"), "bfloat16", "int4", "float8_e4m3", "r16"],
}
MODULES = {2: v2, 3: v3}


def draw_fill(data, model):
    """A fill value of the array's type that its format can say."""
    dtype, name = model.dtype, model.data_type.name
    if name == "string" or dtype.kind == "U":
        return data.draw(st.text(max_size=2).filter(lambda text: text != "auto" and text.isprintable()))
    if name == "bytes":
        return data.draw(st.binary(max_size=4))
    if dtype.kind in "fc" or name == "bfloat16":
        return data.draw(st.sampled_from([0, -1.5, np.inf, -np.inf, np.nan]))
    if dtype.kind == "b":
        return data.draw(st.booleans())
    if name in ("int4", "float8_e4m3"):
        return data.draw(st.integers(-8, 7))
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    return np.frombuffer(raw, dtype)[0]


@settings(max_examples=200)
@given(data=st.data(), zarr_format=st.sampled_from([2, 3]), is_sharded=st.booleans())
def test_models_come_back(data, zarr_format, is_sharded):
    dtype = data.draw(st.sampled_from(DTYPES[zarr_format]))
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
    options = {
        "shape": shape,
        "dtype": dtype,
        "zarr_format": zarr_format,
        "order": data.draw(st.sampled_from("CF")),
        "chunks": tuple(2 for _ in shape),
        "shards": tuple(4 for _ in shape) if is_sharded and zarr_format == 3 else None,
        "compressors": data.draw(st.sampled_from([None, "auto", "blosc", "gzip"])),
        "attributes": {"a": 1},
    }
    model = ArrayRequest(**options).model()
    model = ArrayRequest(**options, fill_value=draw_fill(data, model)).model()
    module = MODULES[zarr_format]
    documents = {key: render_json(document) for key, document in module.render_array(model).items()}
    parsed = {key: parse_json(text, path="a") for key, text in documents.items()}
    again = module.parse_array(parsed, path="a")
    assert again == model
    assert {key: render_json(item) for key, item in module.render_array(again).items()} == documents


def test_fill_values_differ_where_their_bits_do():
    def make(fill):
        return ArrayRequest(shape=(1,), dtype="f4", fill_value=fill).model()

    assert make(np.nan) == make(np.nan)
    assert make(0.0) != make(-0.0)
    assert make(np.nan) != make(np.array([0x7FC00001], "u4").view("f4")[0])
    with pytest.raises(TypeError, match="unhashable"):
        hash(make(0))


def test_fields_of_different_orders_stay_in_v2():
    from zstore.errors import UnsupportedError

    model = ArrayRequest(shape=(1,), dtype=[("a", "<i4"), ("b", ">f8")], zarr_format=2).model()
    assert model.codecs[0].name == "zstore.bytes_by_field"
    with pytest.raises(UnsupportedError, match="different byte orders"):
        v3.render_array(model)
    model = ArrayRequest(shape=(1,), dtype=[("a", "<i4"), ("b", ">f8")]).model()
    assert model.codecs[0].configuration == {"endian": "little"}
