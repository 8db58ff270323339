"""References of JSON as the kernel takes them, against the parser of the standard library."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zstore._ext.engine.references import References

GRID = (3, 120)
SPACES = ["", " ", "\n ", "\t\r"]
ADDRESSES = ["a.nc", "s3://b/ä.nc", r"s3:\/\/b\/c \"quoted\".nc", ""]
SEEDS = st.integers(0, 2**32)
ODD = ['"text"', '["a.nc", 1]', '["a.nc", -1, 2]', '["a.nc", 1.5, 2]', '["a.nc", 01, 2]', "[null]", "{}",
       '["a.nc", 1000000000000000000, 2]', '["a.nc", 1, 2, 3]', "7"]  # fmt: skip
NAMES = [
    "x/0.0",
    "a/0",
    "a/0.0.0",
    "a/00.1",
    "a/3.0",
    "a/0.120",
    "a/0/1",
    "a/c",
    "a/-1.0",
    "a/.zarray",
    "a/0.1 ",
]


def taken(text: bytes, at: int = 1, *, room: int = 64, start: bytes = b"a/", separator: bytes = b".") -> Any:
    """The rows that are taken, addresses in the place of their numbers, and where that ends."""
    addresses: list[str] = []

    def number_of(said: bytes) -> int:
        addresses.append(json.loads(b'"%s"' % said))
        return len(addresses) - 1

    columns = [np.full(room, -9, kind) for kind in ("i8", "i4", "i8", "i8")]
    row, end = References(text, number_of).take(at, start, separator, GRID, columns, 0)
    assert all((column[row:] == -9).all() for column in columns)
    found = zip(*(column[:row].tolist() for column in columns), strict=True)
    return [(number, addresses[source], offset, size) for number, source, offset, size in found], end


def expected(text: bytes, separator: str = ".") -> list[Any]:
    """What the members of an object are, as the standard library reads them."""
    rows = []
    for key, value in json.loads(text, object_pairs_hook=list):
        y, x = map(int, key.removeprefix("a/").split(separator))
        rows.append((y * GRID[1] + x, *(value if len(value) == 3 else (*value, 0, -1))))
    return rows


def member(rng: random.Random) -> tuple[str, bool]:
    """A member's text, and whether it is a plain reference to a chunk."""
    space, is_plain = rng.choice(SPACES), rng.random() < 0.9
    numbers = [str(rng.randrange(10 ** rng.randint(1, 18))) for _ in range(2)]
    parts = [f'"{rng.choice(ADDRESSES)}"', *(numbers if rng.random() < 0.8 else [])]
    key = f"a/{rng.randrange(GRID[0])}.{rng.randrange(GRID[1])}"
    value = f"[{space}{f'{space},{space}'.join(parts)}{space}]"
    if not is_plain and rng.random() < 0.5:
        key = rng.choice(NAMES)
    elif not is_plain:
        value = rng.choice(ODD)
    return f'{space}"{key}"{space}:{space}{value}{space}', is_plain


@given(SEEDS, st.integers(1, 12), st.integers(0, 12))
def test_plain_references_are_taken_up_to_the_first_other_one(seed: int, count: int, room: int) -> None:
    rng = random.Random(seed)
    said = [member(rng) for _ in range(count)]
    text = ("{" + ",".join(member for member, _ in said) + "}").encode()
    # The last one has no comma behind it.
    plain = next((n for n, (_, is_plain) in enumerate(said) if not is_plain), count)
    taken_count = min(plain, count - 1, room)
    rows, end = taken(text, room=room)
    before = ",".join(member for member, _ in said[:taken_count])
    assert rows == expected(("{" + before + "}").encode())
    assert text[:end].strip() == ("{" + before + "," * bool(taken_count)).encode().strip()


@given(SEEDS)
def test_damage_is_never_taken_for_a_reference(seed: int) -> None:
    rng = random.Random(seed)
    text = bytearray(("{" + ",".join(member(rng)[0] for _ in range(5)) + "}").encode())
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(1, len(text))] = rng.choice(b'\x00"\\[]{}:,0 19-a\xff/.')
    if rng.random() < 0.3:
        del text[rng.randint(1, len(text)) :]
    try:
        rows, end = taken(bytes(text))
    except ValueError:
        return  # an address that is no text
    assert rows == expected(b"{" + bytes(text[1:end]).rstrip().removesuffix(b",") + b"}")


def test_slashes_may_be_escaped() -> None:
    text = (
        rb'{"a\/c\/1\/7": ["x\/y", 5, 6], "a\/c\/1\/8": ["x\/y", 11, 6], "a/c/1/9": ["x", 1, 2], "b": ["c"]}'
    )
    rows, end = taken(text, start=rb"a\/c\/", separator=rb"\/")
    assert rows == [(127, "x/y", 5, 6), (128, "x/y", 11, 6)]
    assert taken(text, end, start=b"a/c/", separator=b"/")[0] == [(129, "x", 1, 2)]


def test_what_is_no_place_or_no_column_is_refused() -> None:
    good = [np.empty(2, kind) for kind in ("i8", "i4", "i8", "i8")]
    for at, separator, grid, columns, row in [
        (-1, b".", (1,), good, 0), (3, b".", (1,), good, 0), (0, b"", (1,), good, 0), (0, b".", (), good, 0),
        (0, b".", (1,) * 33, good, 0), (0, b".", (1,), [good[1]] * 4, 0), (0, b".", (1,), good, -1),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r"cannot take|column|no row"):
            References(b"{}", len).take(at, b"", separator, grid, columns, row)
    assert References(b"{}", len).take(2, b"", b".", (1,), good, 5) == (5, 2)
