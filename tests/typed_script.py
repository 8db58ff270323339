"""What somebody writes who uses zstore and checks types: run, and checked by `mypy --strict`, in a test."""

from __future__ import annotations

import sys
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import zstore
from zstore import errors


def make(place: str) -> zstore.Array:
    array = zstore.create_array(
        place,
        "t",
        shape=(64, 96),
        chunks=(16, 16),
        dtype="f4",
        order="F",
        zarr_format=3,
        dimension_names=("y", "x"),
        missing="fill",
    )
    array[...] = np.arange(64 * 96).reshape(64, 96)
    array[0, ::2] = 7
    array.vindex[[1, 2], [3, 4]] = 0
    array.attrs.update(units="K")
    return array


def describe(array: zstore.Array) -> None:
    assert_type(array.shape, tuple[int, ...])
    assert_type(array.chunks, tuple[int, ...])
    assert_type(array.shards, tuple[int, ...] | None)
    assert_type(array.dims, tuple[str | None, ...] | None)
    assert_type(array.dtype, np.dtype[Any])
    assert_type(array.ndim, int)
    assert_type(array.read_only, bool)
    assert_type(array.path, str)


def read(array: zstore.Array) -> float:
    assert_type(array[...], npt.NDArray[Any])
    assert_type(array[2:4, ::3], npt.NDArray[Any])
    assert_type(array[:, None, [0, 5]], npt.NDArray[Any])
    assert_type(array[[True, False] * 32, 1:], npt.NDArray[Any])
    assert_type(array[3, 4], Any)  # one item, whatever its type is
    assert_type(array.read((slice(2), 1), missing="error"), npt.NDArray[Any])
    assert_type(array.read_many([(0, 0), slice(2)]), list[Any])
    assert_type(array.oindex[[0, 5], :], npt.NDArray[Any])
    assert_type(array.vindex[[0, 5], [1, 2]], npt.NDArray[Any])
    assert_type(array.blocks[0, 1:], npt.NDArray[Any])
    assert_type(np.asarray(array), npt.NDArray[Any])
    view = zstore.view(array)[10:20]
    assert_type(view.read(), npt.NDArray[Any])
    assert_type(zstore.stack([view + 1, array[10:20]], axis=1)[:, 0], zstore.View)
    assert_type(view.T.shape, tuple[int, ...])
    assert_type(array.cached(1 << 20), zstore.Array)
    return float(array[3, 4] + array[:2].mean())


def change(array: zstore.Array) -> None:
    array.resize((48, 96))
    assert_type(array.append(np.zeros((16, 96), "f4"), axis=0), tuple[int, ...])
    assert_type(array.refresh(), zstore.Array)


def walk(place: str) -> list[str]:
    node = zstore.open(place, mode="r")
    assert_type(node, zstore.Array | zstore.Group)
    group = zstore.open_group(place, mode="r+")
    below = group.create_group("g", attributes={"a": 1})
    made = below.create_array("b", data=np.arange(4), order="C")
    assert_type(made, zstore.Array)
    assert_type(group["g/b"], zstore.Array | zstore.Group)
    for name, array in below.arrays():
        assert_type(name, str)
        assert_type(array, zstore.Array)
    for _, inner in group.groups():
        assert_type(inner, zstore.Group)
    assert_type(group.consolidate(), zstore.Group)
    assert_type(zstore.consolidate(group), zstore.Group)
    try:
        zstore.open_array(place, "g", "r")
    except errors.MetadataError as error:
        assert_type(error.path, str | None)
    return list(group.keys())


def judge(place: str) -> None:
    found = zstore.verify(place, missing="error")
    assert_type(found.is_sound, bool)
    assert_type(found.damages[0].path if found.damages else "", str)
    verdict = zstore.validate(place)
    assert_type([finding.message for finding in verdict.findings], list[str])


def build(place: str, array: zstore.Array) -> None:
    pyramid = zstore.build_pyramid(array, f"{place}-levels", levels=1, zarr_format=3)
    assert_type(pyramid, zstore.Group)
    assert_type(zstore.convert(array, f"{place}-v2", zarr_format=2), zstore.Array | zstore.Group)
    smaller: npt.NDArray[Any] = zstore.downsample(array[...], (2, 2))
    assert smaller.shape == (32, 48)


def mistakes(place: str) -> None:
    """What is refused when types are checked, and when it runs."""
    zstore.open(place, mode="rw")  # type: ignore[arg-type]
    zstore.open_array(place, missing="nan")  # type: ignore[arg-type]
    zstore.create_array(place, shape=1, dtype="i1", order="K")  # type: ignore[arg-type]
    zstore.create_array(place, shape=1, dtype="i1", zarr_format=4)  # type: ignore[arg-type]
    zstore.opne(place)  # type: ignore[attr-defined]
    zstore.Array.shapes  # type: ignore[attr-defined]  # noqa: B018


def main(place: str) -> None:
    array = make(place)
    describe(array)
    print(read(array))
    change(array)
    judge(place)
    build(place, array)
    print(walk(place))


if __name__ == "__main__":
    main(sys.argv[1])
