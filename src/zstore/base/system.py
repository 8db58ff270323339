"""Calls that only some systems have, each with what goes in its place on the others.

Linux has all of them. Without them results are the same; what is lost is said at each. No other module asks
for what Linux alone has, as `tests/test_architecture.py` checks; the kernels do in `_ext/engine/files.h`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def processor_count() -> int:
    """The number of processors that this process may use; elsewhere all that there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_size() -> int:
    """Bytes of memory of the machine, or of the control group that this process is in, where it has one."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = ""
    return min(size, int(limit)) if limit.isdecimal() else size


def map_zeros(size: int) -> mmap.mmap:
    """Memory of its own, of zeros, in large pages where the system has them."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # To take 24 MiB page by page takes 14 ms, in large pages 2 ms.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def growth_of(work: Callable[[], object]) -> int:
    """The most bytes by which this process's memory grew during the work; 0 elsewhere."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmHWM")
    except OSError:
        work()
        return 0
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def machine_id() -> str | None:
    """The id of this machine's boot and of the namespace of its process ids.

    None elsewhere: nobody can tell whether whoever began interrupted work is still at it.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return None


def start_of(process: int) -> str | None:
    """When a process started, in ticks since the boot; None elsewhere, and if no process has that id."""
    try:
        # The process's name, in brackets, may contain anything; the start time is the 20th field after it.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        # One that was killed keeps its number until its parent asks how it ended.
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def reopen(descriptor: int, flags: int) -> int | None:
    """The file of a descriptor opened once more, with locks of its own; None elsewhere."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def copy_to_load(file: str) -> str:
    """The path of a copy of a compiled module, to be loaded beside it, for as long as this process lives.

    In memory; elsewhere in a folder of its own, which goes with the process.
    """
    if not hasattr(os, "memfd_create"):
        import atexit
        import shutil
        import tempfile

        folder = tempfile.mkdtemp(prefix="zstore-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return shutil.copy(file, folder)
    copy = os.memfd_create(Path(file).name)
    # The descriptor stays open: a fork of this process copies from it.
    with open(file, "rb") as whole:
        left = os.fstat(whole.fileno()).st_size
        while left:
            left -= os.sendfile(copy, whole.fileno(), None, left)
    return f"/proc/self/fd/{copy}"
