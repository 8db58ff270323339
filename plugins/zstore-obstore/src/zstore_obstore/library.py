"""obstore, as this process can use it.

obstore's threads are started once and do not come along when a process forks: any request in the child would
wait for them for ever. So a child loads the compiled part again, from a copy, for the loader takes the same
file for the same library.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

import obstore

__all__ = ["forks", "library"]

COMPILED = "obstore._obstore"

_lock = threading.Lock()
_current = obstore
_loaded_at = 0
_forks = 0


def _note_fork() -> None:
    global _forks, _lock
    _forks += 1
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_note_fork)


def forks() -> int:
    """How many forks lie between the process that imported this and the one that asks."""
    return _forks


def library() -> ModuleType:
    """The package `obstore`, whose threads run in this process."""
    global _current, _loaded_at
    with _lock:
        if _loaded_at != _forks:
            _current = _load_again()
            _loaded_at = _forks
        return _current


def _load_again() -> ModuleType:
    source = sys.modules[COMPILED].__spec__
    assert source is not None
    assert source.origin is not None
    copy = os.memfd_create("obstore")
    # The descriptor stays open: a fork of this process copies from it.
    with open(source.origin, "rb") as file:
        left = os.fstat(file.fileno()).st_size
        while left:
            left -= os.sendfile(copy, file.fileno(), None, left)
    path = f"/proc/self/fd/{copy}"
    spec = importlib.util.spec_from_file_location(COMPILED, path, loader=ExtensionFileLoader(COMPILED, path))
    assert spec is not None
    assert spec.loader is not None
    for name in [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]:
        del sys.modules[name]
    compiled = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiled)
    sys.modules[COMPILED] = compiled
    return importlib.import_module("obstore")
