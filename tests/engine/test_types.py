"""Items of every type of fixed size through the engine: what is read is what was written, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import zstore
from zstore.errors import CodecError, MetadataError
from zstore.model import v2
from zstore.model.dtype import in_words
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

MIXED = [("a", "<i4"), ("b", ">f8", (2,)), ("c", [("x", "u1"), ("y", ">c8")])]
PLAIN = [("a", ">i4"), ("b", "S3"), ("t", ">M8[s]"), ("u", ">U2")]
NATIVE = [("a", "<i4"), ("b", "S3"), ("p", [("x", "<f4"), ("y", "u1")])]
ALIKE = [("a", ">i4"), ("b", ">f4")]
TIMES = ["M8[25us]", "m8[D]", ">M8[ns]", ">m8"]
BOTH = ["?", ">u2", "i8", "f2", ">c16", *TIMES, "S5", "U3", ">U3", "V3", PLAIN, NATIVE, ALIKE]
DTYPES = [
    *[(earlier, dtype) for earlier in (1, 2) for dtype in [*BOTH, MIXED, "f16", ">c32", ">f16"]],
    *[(3, dtype) for dtype in [*BOTH, ml_dtypes.bfloat16, "int4", "float8_e4m3", "complex_bfloat16", "r16"]],
]
SHAPE, CHUNKS = (13, 7), (4, 3)


def bits(items) -> bytes:
    """All bits of the items that mean something."""
    items = np.asarray(items)
    if items.dtype.type in (np.longdouble, np.clongdouble):
        return items.astype("c16").tobytes()
    return items.tobytes()


def items_of(dtype: np.dtype) -> np.ndarray:
    """Items of any bits that mean something."""
    rng = np.random.default_rng(3)
    if dtype.type in (np.longdouble, np.clongdouble):
        return (np.arange(91).reshape(SHAPE) / 7).astype(dtype)
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, 91 * dtype.itemsize, dtype="u1")
    if dtype.kind == "U" or (dtype.names or ())[-1:] == ("u",):
        raw = np.where(np.arange(len(raw)) % 4 == 0, raw, 0).astype("u1")
    return raw.view(dtype).reshape(SHAPE)


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


OPTIONS: dict[str, dict] = {
    "zstd": {},
    "F": {"order": "F", "compressors": None},
    "shards": {"shards": (8, 6)},
    "blosc": {"compressors": "blosc"},
}


@pytest.mark.parametrize(
    ("zarr_format", "dtype", "options"),
    [
        pytest.param(zarr_format, dtype, options, id=f"{zarr_format}-{dtype}-{name}")
        for zarr_format, dtype in DTYPES
        for name, options in OPTIONS.items()
        if name in {1: ["F"], 2: ["zstd", "F", "blosc"], 3: OPTIONS}[zarr_format]
    ],
)
def test_items_come_back(store, zarr_format, dtype, options):
    array = zstore.create_array(
        store, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, **options
    )
    items = items_of(array.dtype)
    array[...] = items
    read = zstore.open_array(store, mode="r+")
    assert read.model == array.model
    selections = [..., np.s_[1:9, 2], np.s_[::-3, 1::2], np.s_[5], np.s_[3, 4], np.s_[12:, :0]]
    for selection in selections:
        assert bits(read[selection]) == bits(items[selection])
    places = ([0, 12, 5, 5], [6, 0, 1, 1])
    assert bits(read.vindex[places]) == bits(items[places])
    assert bits(read.oindex[[9, 1], [6, 0]]) == bits(items[np.ix_([9, 1], [6, 0])])
    changed = items.copy()
    changed[3:6, 2:5] = items[0:3, 0:3]
    changed[[12, 0], [6, 6]] = items[1, 1]
    read[3:6, 2:5] = items[0:3, 0:3]
    read.vindex[[12, 0], [6, 6]] = items[1, 1]
    assert bits(zstore.open_array(store)[...]) == bits(changed)


@pytest.mark.parametrize(
    ("zarr_format", "dtype", "fill"),
    [
        (2, ">M8[s]", np.datetime64("2001-01-01")),
        (3, "M8[s]", "2001-01-01T00:00:00"),
        (3, "S5", b"abc"),
        (3, ">U4", "äb"),
        (2, MIXED, (1, (2, 3), (4, 5j))),
        (3, PLAIN, {"a": 7, "b": b"x", "t": np.datetime64(5, "s"), "u": "é"}),
        (3, "bfloat16", -2.5),
        (3, ">c16", 1 - 2j),
        (2, ">f16", 0.5),
    ],
    ids=str,
)
def test_missing_chunks_are_the_fill_value(store, zarr_format, dtype, fill):
    array = zstore.create_array(
        store, shape=SHAPE, chunks=CHUNKS, dtype=dtype, zarr_format=zarr_format, fill_value=fill
    )
    again = zstore.open_array(store, mode="r+")
    expected = np.full(SHAPE, array.fill_value, array.dtype)
    assert bits(again[...]) == bits(expected)
    assert bits(again[2, 3]) == bits(expected[2, 3])
    items = items_of(array.dtype)
    again[1, 1] = items[0, 0]
    expected[1, 1] = items[0, 0]
    assert bits(zstore.open_array(store)[...]) == bits(expected)
    again[1, 1] = expected[0, 0]
    if array.dtype.type is np.longdouble:
        return  # whose chunks hold bytes that mean nothing, and never equal the fill value's
    assert not [key for key in store.list("") if key not in (".zarray", "zarr.json")]


def test_defaults_mean_nothing_there():
    for zarr_format in (2, 3):
        array = zstore.create_array(MemoryStore(), shape=3, dtype="M8[D]", zarr_format=zarr_format)
        assert np.isnat(array[...]).all()
        array = zstore.create_array(MemoryStore(), shape=3, dtype="U2", zarr_format=zarr_format)
        assert array[...].tolist() == ["", "", ""]


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[7us]", "M8", "m8"])
def test_fill_values_of_times_as_text(dtype):
    def count(fill: str | bytes) -> int:
        array = zstore.create_array(MemoryStore(), shape=3, dtype=dtype, fill_value=fill)
        return int(array[...].view("i8")[0])

    assert {count(text) for text in ("NaT", "nat", b"NaT")} == {-(2**63)}
    assert dtype[0] == "M" or [count(text) for text in ("5", "-5", b"5")] == [5, -5, 5]
    assert dtype != "M8[D]" or count("1970-01-08") == 7


@pytest.mark.parametrize(
    ("dtype", "fill", "reason"),
    [
        ("M8[D]", np.datetime64("2001-01-01T12:00"), "whole number of the unit"),
        ("M8[D]", "yesterday", "a time"),
        ("M8[D]", np.timedelta64(1, "D"), "a time"),
        ("m8[s]", [1, 2], "a time"),
        ("S2", b"abc", "at most 2 bytes"),
        ("S2", "é", "Base64"),
        ("U2", "abc", "at most 2 characters"),
        ("U2", 7, "at most 2 characters"),
        ("V3", b"ab", "3 bytes"),
        ([("a", "u1")], (300,), "expected a value for"),
        ([("a", "u1")], {"b": 3}, "expected a value for"),
        ([("a", "u1")], np.array((3,), [("b", "u1")])[()], "has the fields"),
        ([("a", "u1")], b"ab", "1 bytes"),
        (str, 7, "a string"),
        (bytes, "text", "bytes"),
        ("int4", 9, "from -8 to 7"),
    ],
    ids=str,
)
def test_fill_values_that_do_not_fit(dtype, fill, reason):
    with pytest.raises(MetadataError, match=reason):
        zstore.create_array(MemoryStore(), shape=3, dtype=dtype, fill_value=fill)


@pytest.mark.parametrize("dtype", [PLAIN, "U3"], ids=str)
def test_a_chunk_of_another_length_is_an_error(tmp_path, dtype):
    array = zstore.create_array(tmp_path, shape=4, chunks=4, dtype=dtype, compressors=None)
    array[...] = items_of(array.dtype)[0, :4]
    chunk = tmp_path / "c" / "0"
    for data in (chunk.read_bytes()[:-1], chunk.read_bytes() + b"\0"):
        chunk.write_bytes(data)
        for selection in (..., 2):
            with pytest.raises(CodecError, match=r"c/0"):
                zstore.open_array(tmp_path, mode="r")[selection]


def test_structured_arrays_may_leave_the_order_out(tmp_path):
    array = zstore.create_array(tmp_path, shape=2, dtype=[("a", "<u2")], compressors=None)
    array[...] = np.array([(1,), (2,)], array.dtype)
    document = (tmp_path / "zarr.json").read_text()
    start, end = document.index('"configuration": {\n        "endian"'), document.index('"attributes"')
    (tmp_path / "zarr.json").write_text(
        document[:start].rstrip().rstrip(",") + "\n    }\n  ],\n  " + document[end:]
    )
    assert zstore.open_array(tmp_path)[...].tolist() == [(1,), (2,)]


def test_orders_that_do_not_fit_the_fields_are_refused():
    from zstore.codecs.base import ChunkSpec
    from zstore.codecs.bytes import BytesByField

    dtype = np.dtype([("a", "<i4"), ("b", "<f8")])
    for order in (["little"], ["little", None], ["little", ["big"]], ["little", "big", "big"]):
        with pytest.raises(MetadataError, match="do not fit"):
            BytesByField(order).bind(ChunkSpec((2,), dtype, None))
    for configuration, fault in (
        ({}, "lacks the option 'endian'"),
        ({"endian": "little"}, "order for each field"),
        ({"endian": ["middle"]}, "order for each field"),
        ({"endian": [None], "x": 1}, "unknown options: 'x'"),
    ):
        with pytest.raises(MetadataError, match=fault):
            BytesByField.from_configuration(configuration)
    codec = BytesByField(["little", "big"])
    assert BytesByField.from_configuration(codec.to_configuration()) == codec
    assert v2.ORDER_CODECS[list] == codec.name


def test_times_that_numpy_has_no_words_for_are_shown_by_their_bits() -> None:
    def write(value: np.generic) -> str:
        raise OverflowError(str(type(value)))

    # So newer releases of numpy say of it by themselves.
    far = np.array([6 << 56], "i8").view("M8[25us]")[0]
    assert in_words(far, write) == "0x0000000000000006 of datetime64[25us]"
    fields = np.array([(far, 1)], [("a", "M8[25us]"), ("b", "i4")])[0]
    for fill in (far, fields):
        array = zstore.create_array(MemoryStore(), shape=3, dtype=fill.dtype, fill_value=fill)
        assert "Fill value" in array.info
        assert array[...].tobytes() == 3 * fill.tobytes()
        with pytest.raises(MetadataError, match=r"fill_value is .* for data type int32"):
            zstore.create_array(MemoryStore(), shape=3, dtype="i4", fill_value=fill)
