"""The kernel for items of any length beside plain Python."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from zstore._ext.codecs import vlen

STRINGS = [
    "",
    "a",
    "é",
    "漢字",
    "😀" * 5,
    "x\0y",
    "b" * 15,
    "b" * 16,
    "c" * 400,
    "ab" * 200_000,
    "\u07ff\u0800\uffff",
]
strings = pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy has no StringDType")


def packed(items: list[bytes], count: int | None = None) -> bytes:
    """What numcodecs writes."""
    head = struct.pack("<I", len(items) if count is None else count)
    return head + b"".join(struct.pack("<I", len(item)) + item for item in items)


def scanned(data: bytes, count: int, *, is_text: bool = True, fill: bytes = b"") -> np.ndarray:
    handles = np.empty(count, np.uint64)
    assert vlen.scan(data, handles, is_text=is_text, fill=fill) is None
    return handles


@strings
@pytest.mark.parametrize("fill", ["", "a", "none of them"])
def test_strings_there_and_back(fill):
    items = np.array(STRINGS, np.dtypes.StringDType())
    data = vlen.pack_strings(items)
    assert data == packed([text.encode() for text in STRINGS])
    handles = scanned(data, len(STRINGS), fill=fill.encode())
    assert (handles == 0).tolist() == [text == fill for text in STRINGS]
    made = np.full(len(STRINGS), "what was there before, and longer than a few bytes", items.dtype)
    vlen.take_strings(handles[::-1].copy(), made, fill=fill.encode())
    assert made.tolist() == STRINGS[::-1]


@pytest.mark.parametrize("is_text", [True, False])
def test_objects_there_and_back(is_text):
    items = STRINGS if is_text else [text.encode("utf-16") for text in STRINGS]
    objects = np.empty((1, len(items)), object)
    objects[0] = items
    data = vlen.pack_objects(objects, is_text=is_text)
    assert data == packed([item.encode() if is_text else item for item in items])
    handles = scanned(data, len(items), is_text=is_text, fill=b"none of them")
    made = np.full(len(items), None, object)
    made[0] = "something that was there"
    vlen.take_objects(handles, made, is_text=is_text, fill=None)
    assert made.tolist() == items
    vlen.take_objects(np.zeros(2, np.uint64), made[:2], is_text=is_text, fill=items[3])
    assert made[:3].tolist() == [items[3], items[3], items[2]]


@pytest.mark.parametrize(
    ("data", "count", "fault"),
    [
        (b"", 0, ("short", 0, 0)),
        (b"\0\0\0", 0, ("short", 0, 3)),
        (packed([]), 1, ("count", 0, 0)),
        (packed([b"a"], 2), 1, ("count", 0, 2)),
        (packed([], 2**32 - 1), 0, ("count", 0, 2**32 - 1)),
        (packed([b"abc"])[:-1], 1, ("beyond", 0, 3)),
        (packed([b"abc"], 2), 2, ("beyond", 1, 0)),
        (packed([b"abc"], 2) + b"\0\0", 2, ("beyond", 1, 0)),
        (packed([b"", b""], 2)[:4] + b"\xff" * 8, 2, ("beyond", 0, 2**32 - 1)),
        (packed([b"abc"]) + b"x", 1, ("junk", 1, 1)),
        (packed([]) + b"xyz", 0, ("junk", 0, 3)),
        (packed([b"ok", b"\xff"]), 2, ("text", 1, 1)),
    ],
)
def test_damage_is_named(data, count, fault):
    assert vlen.scan(data, np.empty(count, np.uint64), is_text=True, fill=b"") == fault


def test_every_cut_and_every_longer_chunk_is_damage():
    data = packed([text.encode() for text in STRINGS[:8]])
    for size in range(len(data)):
        assert vlen.scan(data[:size], np.empty(8, np.uint64), is_text=True, fill=b"") is not None, size
    assert vlen.scan(data + b"\0", np.empty(8, np.uint64), is_text=True, fill=b"") is not None


def test_utf8_is_what_python_takes_for_it():
    rng = np.random.default_rng(1)
    cases = [bytes([a]) for a in range(256)] + [
        bytes([a, b]) for a in range(190, 256) for b in range(0, 256, 3)
    ]
    cases += [chr(c).encode() for c in (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)]
    cases += [
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe0\x80\x80",
        b"\xf0\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ]
    valid = ("aé漢😀" * 8).encode()
    for _ in range(3000):
        start, size = rng.integers(0, 30), rng.integers(0, 30)
        text = bytearray(valid[start : start + size])
        if text and rng.integers(2):
            text[rng.integers(len(text))] = rng.integers(256)
        cases.append(bytes(text))
    cases += [b"x" * n + tail for n in range(10) for tail in (b"\xc3", b"\xc3\xa9", b"\x80")]
    for case in cases:
        try:
            case.decode()
            expected = None
        except UnicodeDecodeError:
            expected = ("text", 0, len(case))
        fault = vlen.scan(packed([case]), np.empty(1, np.uint64), is_text=True, fill=b"-")
        assert fault == expected, case


def test_what_is_no_item_is_named():
    def made(*items: object) -> np.ndarray:
        array = np.empty(len(items), object)
        array[:] = items
        return array

    assert vlen.pack_objects(made("a", None), is_text=True) == ("type", 1, 0)
    assert vlen.pack_objects(made("a", b"b"), is_text=True) == ("type", 1, 0)
    assert vlen.pack_objects(made(b"a", "b"), is_text=False) == ("type", 1, 0)
    assert vlen.pack_objects(made("a", "\ud800"), is_text=True) == ("text", 1, 0)
    assert vlen.pack_objects(np.empty(2, object), is_text=True) == ("type", 0, 0)


@strings
def test_missing_strings_are_named():
    nothing = np.array(["a", None], np.dtypes.StringDType(na_object=None))
    assert vlen.pack_strings(nothing) == ("null", 1, 0)
    assert vlen.pack_strings(nothing[:1]) == packed([b"a"])
    assert vlen.pack_strings(nothing[:0]) == packed([])


def test_memory_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected 8"):
        vlen.scan(packed([]), np.empty(0, np.uint32), is_text=True, fill=b"")
    with pytest.raises(ValueError, match="contiguous"):
        vlen.scan(packed([]), np.empty(4, np.uint64)[::2], is_text=True, fill=b"")
    with pytest.raises(ValueError, match="expected 2"):
        vlen.take_objects(np.zeros(2, np.uint64), np.empty(3, object), is_text=True, fill="")
    frozen = np.empty(2, object)
    frozen.flags.writeable = False
    with pytest.raises(ValueError):
        vlen.take_objects(np.zeros(2, np.uint64), frozen, is_text=True, fill="")


@strings
def test_arrays_that_are_no_strings_are_refused():
    with pytest.raises(TypeError, match="StringDType"):
        vlen.pack_strings(np.empty(2, object))
    with pytest.raises(TypeError, match="StringDType"):
        vlen.pack_strings(["a"])
    strings = np.zeros(4, np.dtypes.StringDType())
    with pytest.raises(ValueError, match="contiguous"):
        vlen.pack_strings(strings[::2])
    with pytest.raises(ValueError, match="of 3 items"):
        vlen.take_strings(np.zeros(3, np.uint64), strings, fill=b"")
    strings.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        vlen.take_strings(np.zeros(4, np.uint64), strings, fill=b"")
