"""What a read takes, told by its plan; and what makes a store slow, told by its documents."""

from __future__ import annotations

import numpy as np
import pytest

import zstore
from zstore.nodes.slowness import slow_reasons

from ..storage.bucket_server import BucketServer

ITEMS = np.ones((100, 64), "f4")


@pytest.mark.parametrize(
    ("options", "selection", "expected"),
    [
        ({"chunks": (10, 64)}, np.s_[:, 3], (400, 25600, 10, 10)),
        ({"chunks": (10, 64), "shards": (50, 64)}, np.s_[:, 3], (400, 25600, 10, 2)),
        ({"chunks": (10, 64)}, np.s_[5:15], (2560, 5120, 2, 2)),
        ({"chunks": (10, 64)}, ..., (25600, 25600, 10, 10)),
        ({"chunks": (10, 64)}, np.s_[:0], (0, 0, 0, 0)),
        ({"chunks": (10, 64)}, ([0, 99], slice(None)), (512, 5120, 2, 2)),
        ({"chunks": ([60, 40], [64])}, np.s_[59:61, 0], (8, 25600, 2, 2)),
        ({"chunks": ([60, 40], [64])}, np.s_[[1, 2, 3], 0], (12, 15360, 1, 1)),
    ],
)
def test_a_selection_is_explained(options, selection, expected, tmp_path):
    array = zstore.create_array(tmp_path, data=ITEMS, **options)
    found = array.explain(selection)
    assert (found.selected_size, found.decoded_size, found.chunk_count, found.value_count) == expected
    assert len(found.keys) == min(8, found.value_count)
    assert all((tmp_path / key).exists() for key in found.keys)
    # As many bytes are read and decoded as it says.
    with zstore.trace() as trace:
        items = array[selection]
    assert items.nbytes == trace.totals["read"].bytes == found.selected_size


def test_the_way_of_a_read_is_named(tmp_path):
    ways = {
        "the kernels read files": zstore.create_array(tmp_path / "a", data=ITEMS, chunks=(10, 64)),
        "from memory; the kernels decode": zstore.create_array("memory://", data=ITEMS, chunks=(10, 64)),
        "fetched one by one; codecs in Python decode": zstore.create_array(
            tmp_path / "b", data=ITEMS, chunks=(10, 64), compressors=[{"id": "bz2"}], zarr_format=2
        ),
    }
    for way, array in ways.items():
        assert way in str(array.explain(0))
    with pytest.raises(zstore.errors.SelectionError):
        ways["the kernels read files"].explain(100)


def test_causes_of_slow_reading_are_named_with_what_mends_them(tmp_path, monkeypatch):
    group = zstore.create_group(tmp_path)
    group.create_array("good", data=ITEMS, chunks=(100, 64))
    group.create_array("small", data=ITEMS, chunks=(1, 64))
    group.create_array("sharded", data=ITEMS, chunks=(1, 64), shards=(100, 64))
    group.create_array("large", shape=(1 << 15, 1 << 14), chunks=(1 << 14, 1 << 13), dtype="f4")
    group.create_array("texts", data=np.array(["a", "b"], object), dtype="str")
    old = zstore.create_array(tmp_path / "old", data=ITEMS, compressors=[{"id": "bz2"}], zarr_format=2)
    said = [*slow_reasons(group, [*group.members(None)]), *slow_reasons(old, [("", old)])]
    assert [line.rpartition("/")[2].partition(":")[0] for line in said] == ["large", "small", "old"]
    for line, expected in zip(
        said, ("512.0 MiB, decoded whole", "100 chunks of 256 B, each a file", "bz2"), strict=True
    ):
        assert expected in line
        assert "`zstore convert" in line
    # Once that is done, nothing is said of it any more.
    joined = zstore.create_array(tmp_path / "joined", data=ITEMS, chunks=(1, 64), shards=(100, 64))
    assert [*slow_reasons(joined, [("", joined)])] == []


def test_members_that_are_asked_for_one_by_one_are_named():
    with BucketServer() as server:
        where = {"store": "s3://b/x", "storage_options": server.options()}
        group = zstore.create_group(**where)
        for k in range(9):
            group.create_array(f"a{k}", data=np.zeros(3))
        [said] = slow_reasons(group, [*group.members()])
        assert "9 members without consolidated metadata" in said
        group.consolidate()
        group = zstore.open_group(**where, mode="r")
        assert [*slow_reasons(group, [*group.members()])] == []
