"""The kernel of reductions refuses what would lead it out of its memory."""

from __future__ import annotations

import numpy as np
import pytest

from zstore._ext.reduce import fold as kernels


def fold(**changed):
    """Fold a box of (2, 3) items into three cells by their sum, with something changed."""
    cells = np.zeros(3, np.int64)
    given = {
        "items": np.arange(6, dtype="u2"),
        "shape": (2, 3),
        "a": cells,
        "b": None,
        "count": None,
        "labels": None,
        "method": kernels.FOLDS["sum"],
        "item_type": 2,
        "skip": kernels.SKIPS["none"],
        "nodata": b"\0\0",
        "cell_steps": (0, 1),
        "label_steps": (0, 0),
        "number_steps": (0, 0),
    }
    given |= changed
    kernels.fold(**given)
    return cells


def test_items_go_to_their_cells():
    assert fold().tolist() == [3, 5, 7]
    labels = np.array([1, 5, -1, 0, 2, 1], np.int32)
    more = {"label_steps": (3, 1), "cell_steps": (0, 0), "groups": 3, "group_step": 1}
    assert fold(labels=labels, **more).tolist() == [3, 5, 4], "labels that are no group are left out"


@pytest.mark.parametrize(
    "changed",
    [
        {"items": np.arange(5, dtype="u2")},
        {"a": np.zeros(2, np.int64)},
        {"cell_steps": (1, 1)},
        {"cell_steps": (0, -1)},
        {"shape": (2, -3)},
        {"skip": kernels.SKIPS["value"]},
        {"skip": 7},
        {"skip": kernels.SKIPS["nan"]},
        {"nodata": bytes(9)},
        {"labels": np.zeros(2, np.int32), "label_steps": (0, 1)},
        {"labels": np.zeros(3, np.int32), "label_steps": (0, 1), "groups": 2, "group_step": 3},
        {"method": kernels.FOLDS["spread"], "item_type": 4, "items": np.zeros(6, "u4"), "b": np.zeros(3)},
        {"method": kernels.FOLDS["first_least"], "b": np.zeros(2, np.int64)},
        {"number_steps": (0,)},
    ],
)
def test_memory_that_is_too_small_is_refused(changed):
    with pytest.raises(ValueError):
        fold(**changed)


def test_what_no_kernel_does_is_refused():
    for changed in ({"method": 99}, {"item_type": 12}, {"method": kernels.FOLDS["moments"], "item_type": 5}):
        with pytest.raises(TypeError, match="no fold"):
            fold(**changed)
    with pytest.raises(ValueError):
        fold(a=np.zeros(3, np.int64).view("u1")[:-1].copy())
    read_only = np.zeros(3, np.int64)
    read_only.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        fold(a=read_only)
