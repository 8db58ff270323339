"""Blosc2 chunks through their Python package, as ocf_blosc2 configures them."""

from __future__ import annotations

import blosc2
import numpy as np
import pytest

import zstore
from zstore.codecs.blosc2 import NumcodecsBlosc2
from zstore.errors import CodecError
from zstore.testing.codecs import CodecContract

ITEMS = np.cumsum(np.random.default_rng(0).integers(-3, 4, 3000)).astype("i4")


class TestBlosc2(CodecContract):
    damage_count = 60
    knows_its_end = True

    def make(self):
        return NumcodecsBlosc2("zstd", 3)


@pytest.mark.parametrize(("cname", "codec"), [("blosc2", blosc2.Codec.BLOSCLZ), ("zstd", blosc2.Codec.ZSTD)])
def test_chunks_are_those_that_the_package_makes_and_reads(cname, codec):
    # The two calls that ocf_blosc2 makes.
    theirs = blosc2.compress(ITEMS, codec=codec, clevel=5)
    ours = NumcodecsBlosc2(cname)
    assert bytes(ours.decode(memoryview(theirs), ITEMS.nbytes)) == ITEMS.tobytes()
    assert bytes(blosc2.decompress(ours.encode(memoryview(ITEMS).cast("B")))) == ITEMS.tobytes()


def test_chunks_of_other_filters_are_read():
    filters = [blosc2.Filter.DELTA, blosc2.Filter.BITSHUFFLE]
    theirs = blosc2.compress2(ITEMS, codec=blosc2.Codec.LZ4, typesize=4, filters=filters)
    assert bytes(NumcodecsBlosc2().decode(memoryview(theirs), ITEMS.nbytes)) == ITEMS.tobytes()
    with pytest.raises(CodecError, match="at most 100 allowed"):
        NumcodecsBlosc2().decode(memoryview(theirs), 100)


def test_a_store_of_theirs_is_read(tmp_path):
    array = zstore.create_array(
        tmp_path,
        shape=(3000,),
        chunks=(1000,),
        dtype="i4",
        zarr_format=2,
        compressors={"id": "blosc2", "cname": "zstd"},
    )
    for k in range(3):
        part = ITEMS[1000 * k : 1000 * (k + 1)]
        (tmp_path / str(k)).write_bytes(blosc2.compress(part, codec=blosc2.Codec.ZSTD, clevel=5))
    np.testing.assert_array_equal(array[...], ITEMS)
