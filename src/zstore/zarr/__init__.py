"""Programs of zarr-python 3 on zstore's engine, with one import changed: `import zstore.zarr as zarr`.

Functions, classes and arguments have zarr-python's names and results; what they do is done by zstore, whose
arrays and groups are at `array.node` and `group.node`. zarr-python is not needed.
`docs/from-zarr-python.md` says what differs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from zstore.errors import missing_name
from zstore.zarr.api import synchronous
from zstore.zarr.api.synchronous import *  # noqa: F403
from zstore.zarr.awaited import AsyncArray, AsyncGroup
from zstore.zarr.config import config
from zstore.zarr.nodes import Array, Group

# The version of zarr-python whose names these are.
__version__ = "3.4.2"

__all__ = ["Array", "AsyncArray", "AsyncGroup", "Group", "__version__", "config", "print_debug_info"]
__all__ += synchronous.__all__

# Modules that are imported when they are asked for.
MODULES = ("abc", "api", "buffer", "codecs", "core", "dtype", "errors", "experimental", "registry", "storage")

ADVICE = {
    "Blosc": "zarr.codecs.BloscCodec, or numcodecs.Blosc",
    "DirectoryStore": "zarr.storage.LocalStore",
    "FSStore": "zarr.storage.FsspecStore",
    "N5Store": "`zstore.open('NAME.n5')`, which reads N5",
    "hierarchy": "zarr.Group",
    "testing": "zstore.testing",
}


def print_debug_info() -> None:
    """Print the versions of zstore and of the packages it works with."""
    from importlib.metadata import version
    from platform import platform, python_version

    names = ("zstore", "numpy", "numcodecs", "fsspec")
    lines = {"platform": platform(), "python": python_version(), **{name: version(name) for name in names}}
    print("\n".join(f"{name}: {value}" for name, value in lines.items()))


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"zstore.zarr.{name}")
    raise missing_name("module 'zstore.zarr'", name, ADVICE.get(name))
