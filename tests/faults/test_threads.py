"""Threads that do everything at once: the core, views and reductions, through handles that they share."""

from __future__ import annotations

import numpy as np
import pytest

import zstore

from .drills import together


@pytest.mark.parametrize(
    ("thread_count", "turns"), [(16, 64), pytest.param(64, 15_625, marks=pytest.mark.slow)]
)
def test_whatever_threads_do_at_once_each_gets_its_own(thread_count, turns, tmp_path):
    """Windows, points, views, means and writes, through handles that are shared and made anew."""
    group = zstore.create_group(tmp_path)
    values = np.arange(96 * 96, dtype="f4").reshape(96, 96)
    still = group.create_array("still", data=values, chunks=(8, 8), shards=(48, 48))
    plain = group.create_array("plain", data=values, chunks=(16, 96), compressors="lz4")
    # Two threads write into each chunk.
    own = group.create_array("own", shape=(thread_count, 96), chunks=(2, 32), dtype="i4", fill_value=0)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        mine = np.zeros(96, "i4")
        for turn in range(turns):
            (top, bottom), (left, right) = np.sort(rng.integers(0, 97, (2, 2)))
            window, (rows, columns) = np.s_[top:bottom, left:right], rng.integers(0, 96, (2, 5))
            match turn % 16:
                case 0:
                    mine[left:right] = turn + 1
                    own[number, left:right] = turn + 1
                case 1 | 2:
                    assert (own[number] == mine).all()
                case 3:
                    assert (still.vindex[rows, columns] == values[rows, columns]).all()
                case 4:
                    both = plain.read_many([window, np.s_[rows[0], 3:9]])
                    assert (both[0] == values[window]).all()
                    assert (both[1] == values[rows[0], 3:9]).all()
                case 5:
                    again = zstore.open_array(tmp_path / "plain", mode="r")
                    assert again[rows[0], columns[0]] == values[rows[0], columns[0]]
                case 6:
                    joined = zstore.concat([still, plain], 0).read(np.s_[90:102, left:right])
                    assert (joined == np.concatenate([values[90:], values[:6]])[:, left:right]).all()
                case 7 if turn % 512 == 7:  # makes threads of its own
                    assert (still.reduce("mean", 0) == values.mean(0)).all()
                case 8:
                    assert (plain.oindex[rows, window[1]] == values[rows, window[1]]).all()
                case _:
                    array = (still, plain)[turn % 2]
                    assert (array[window] == values[window]).all()

    together(thread_count, work)
