"""What goes on where the system lacks what Linux alone has."""

from __future__ import annotations

import fcntl
import importlib.util
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore._ext.engine import files
from zstore.base import system

LINUX = {os: ("memfd_create", "sched_getaffinity"), mmap: ("MADV_HUGEPAGE",)}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without the calls of `LINUX`, and without the files of /proc and /sys."""

    def guard(call):
        def guarded(path, *args, **words):
            if str(path).startswith(("/proc/", "/sys/")):
                raise FileNotFoundError(path)
            return call(path, *args, **words)

        return guarded

    for module, names in LINUX.items():
        for name in names:
            monkeypatch.delattr(module, name)
    for module, name in ((os, "open"), (os, "readlink"), (Path, "read_text"), (Path, "write_text")):
        monkeypatch.setattr(module, name, guard(getattr(module, name)))


def test_elsewhere_there_is_something_in_the_place_of_each_call(elsewhere):
    assert system.processor_count() == os.cpu_count()
    assert system.memory_size() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert bytes(system.map_zeros(3)) == bytes(3)
    done = list[int]()
    assert (system.growth_of(lambda: done.append(1)), done) == (0, [1])
    assert system.machine_id() is system.start_of(os.getpid()) is None


def test_the_most_memory_of_some_work_is_told():
    system.growth_of(lambda: None)
    # Memory of its own: what a freed array leaves is there already.
    assert system.growth_of(lambda: mmap.mmap(-1, 8 << 20).write(bytes(8 << 20))) >= 6 << 20


def test_a_compiled_module_is_copied_and_loads_beside_itself(elsewhere):
    copy = system.copy_to_load(files.__file__)
    assert copy != files.__file__
    name = files.__name__
    again = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, copy))
    again.__spec__.loader.exec_module(again)
    assert again.Tree is not files.Tree
    assert sys.modules[name] is files


def test_a_file_is_opened_again_with_a_lock_of_its_own(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    again = system.reopen(descriptor, os.O_RDONLY)
    assert os.path.sameopenfile(descriptor, again)
    with pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.close(descriptor)


def test_elsewhere_a_file_is_not_opened_again(elsewhere, tmp_path):
    with open(tmp_path / "file", "wb") as file:
        assert system.reopen(file.fileno(), os.O_RDONLY) is None


@pytest.mark.parametrize("name", ["a.zarr", "a.zarr.zip"])
def test_elsewhere_arrays_are_written_and_read(elsewhere, name, tmp_path):
    array = zstore.create_array(tmp_path / name, data=np.arange(20), chunks=7)
    array[3:9] = 5
    array.resize((22,))
    array.store.flush()
    assert array[...].tolist() == [0, 1, 2, *[5] * 6, *range(9, 20), 0, 0]
