"""Threads with small stacks, as embedding programs give them: every operation works, none overflows."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Every thread that Python starts afterwards has this stack; what is imported late is imported before.
PROGRAM = """
import sys, threading, traceback
import numpy as np
import zstore
import zstore.guests.numcodecs, zstore._ext.resample.blocks, zstore._ext.reduce.fold
[getattr(zstore, name) for name in zstore.__all__]
place, name, stack = sys.argv[1], sys.argv[2], int(sys.argv[3])
items = np.arange(256 * 256, dtype="i4").reshape(256, 256)
again = {"overwrite": True}
sharded = {"chunks": (32, 32), "shards": (128, 128)}

def array(**options):
    return zstore.create_array(place, "a", data=items, overwrite=True, **{**sharded, **options})

def partial(**options):
    a = array(**options)
    a[3:40, 3:40] = 7
    assert (a[3:40, 3:40] == 7).all() and a[200, 200] == items[200, 200]

def resized():
    a = array()
    a.append(items[:10])
    a.resize((100, 256))
    assert (a[...] == items[:100]).all()

def link():
    import os, pathlib
    a = array(shards=None)
    chunk = pathlib.Path(place, "a", "c", "0", "0")
    chunk.rename(chunk.with_name("moved"))
    chunk.symlink_to(chunk.with_name("moved").absolute())
    assert (a[...] == items).all()

OPERATIONS = {
    "shard in part": partial,
    "link": link,
    "resize": resized,
    **{f"in part, {codec}": lambda codec=codec: partial(compressors=codec)
       for codec in ("zstd:9", "gzip:9", "numcodecs.lz4", "numcodecs.zlib", "blosc", "crc32c")},
    "points": lambda: array().vindex[[3, 4, 250], [1, 2, 3]],
    "masks": lambda: array()[items > 5],
    "steps": lambda: array()[::-3, 5::7],
    "text": lambda: zstore.create_array(place, "t", data=np.array(["a", "b" * 1000]), dtype="string",
                                        overwrite=True)[...],
    "many": lambda: array().read_many([np.s_[0:9, 0:9], np.s_[5:50, 3]]),
    "reduce": lambda: array().reduce("std", axis=0),
    "average": lambda: zstore.downsample(items.astype("f8"), (2, 2), method="average"),
    "mode": lambda: zstore.downsample(items, (2, 2), method="mode"),
    "cubic": lambda: zstore.downsample(items.astype("f4"), (2, 2), method="cubic"),
    "verify": lambda: (array(), zstore.verify(place)),
    "convert": lambda: (array(), zstore.convert(place, place + "2", chunks=(50, 60), shards=None, **again)),
    "copy": lambda: (array(), zstore.copy(place, place + "3", if_exists="overwrite")),
    "pyramid": lambda: (array(), zstore.build_pyramid(place + "/a", place + "4", levels=2, **again)),
    "delete": lambda: (array(), zstore.open_group(place, mode="r+").__delitem__("a")),
}
failed = []

def run():
    try:
        OPERATIONS[name]()
    except BaseException:
        failed.append(traceback.format_exc())

zstore.create_group(place, overwrite=True)
run()  # whatever is imported late
assert not failed, failed
threading.stack_size(stack)
thread = threading.Thread(target=run)
thread.start()
thread.join()
sys.exit("".join(failed) or None)
"""
NAMES = (
    *(
        "shard in part",
        "link",
        "resize",
        "points",
        "masks",
        "steps",
        "text",
        "many",
        "reduce",
        "average",
        "mode",
    ),
    *("cubic", "verify", "convert", "copy", "pyramid", "delete"),
    *(
        f"in part, {codec}"
        for codec in ("zstd:9", "gzip:9", "numcodecs.lz4", "numcodecs.zlib", "blosc", "crc32c")
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_thread_with_a_stack_of_64_KiB_does_everything(tmp_path, name):
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), name, str(64 << 10)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
