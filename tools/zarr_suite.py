"""zarr-python's own tests of behaviour, with `zstore.zarr` in the place of `zarr`; prints counts by cause.

    python tools/zarr_suite.py SOURCE [FILE ...]    SOURCE: an unpacked source distribution of zarr-python
    python tools/zarr_suite.py --pyargs xarray.tests.test_backends -k zarr
                                                    tests of another project that uses zarr-python

It runs in an interpreter that the tests are written for (3.12 or newer for zarr-python 3.2 and up), with
zstore, pytest, pytest-asyncio and hypothesis, but without zarr-python. What the tests import of its inside,
and zstore.zarr does not have, is put in as a stand-in, whose use fails as "inside"; such tests ask how
zarr-python works, and are counted apart.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

FILES = (
    *("test_api.py", "test_array.py", "test_attributes.py", "test_group.py", "test_indexing.py"),
    *("test_resize.py", "test_info.py", "test_tree.py", "test_v2.py", "test_errors.py", "test_zarr.py"),
    *("test_examples.py", "test_api", "test_codecs", "test_store/test_memory.py", "test_store/test_local.py"),
)
LIBRARY = "zstore.zarr"
# Where names of other modules of zarr-python's are looked for.
PLACES = (
    "",
    ".nodes",
    ".storage",
    ".codecs",
    ".dtype",
    ".metadata",
    ".config",
    ".buffer",
    ".errors",
    ".awaited",
)
PLACES += (".api.synchronous", ".api.asynchronous", ".core.sync", ".abc.store", ".abc.codec", ".requests")


is_running = False


class Inside(Exception):
    """Something of zarr-python's inside was used."""


class _StandingIn(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(f"{cls.__name__}.{name}")

    def __call__(cls, *args: Any, **named: Any) -> Any:
        # While tests are collected, decorators and parameters are made of stand-ins.
        if not is_running:
            return args[0] if args and callable(args[0]) else stand_in(f"{cls.__name__}()")
        raise Inside(cls.__name__)

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __getitem__(cls, item: Any) -> Any:
        return cls


def stand_in(name: str) -> Any:
    """A class in the place of a name that there is not; calling it is an error."""
    return _StandingIn(name, (), {})


class Renamed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports of `zarr` and below as those of `zstore.zarr`; modules that it has not hold stand-ins."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname == "zarr" or fullname.startswith("zarr."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        real = LIBRARY + spec.name.removeprefix("zarr")
        try:
            module = importlib.import_module(real)
        except ImportError:
            module = None
        made = ModuleType(spec.name)
        made.__path__ = []
        made.__getattr__ = lambda name: self._find(module, name, spec.name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the names come when they are asked for."""

    def _find(self, module: ModuleType | None, name: str, where: str) -> Any:
        if name in ("__path__", "__file__", "__wrapped__", "__bases__", "pytest_plugins"):
            raise AttributeError(name)
        if module is not None and hasattr(module, name):
            return getattr(module, name)
        if where == "zarr":
            raise AttributeError(f"module 'zarr' has no attribute {name!r}")
        for place in PLACES:
            if hasattr(found := importlib.import_module(LIBRARY + place), name):
                return getattr(found, name)
        return stand_in(f"{where}.{name}")


class Counting:
    """A plugin of pytest that notes each test's outcome, and why it failed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        """From now on, the use of a stand-in is an error."""
        global is_running
        is_running = True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note one phase of a test."""
        if report.outcome == "failed":
            text = str(report.longrepr)
            is_inside = "Inside: " in text or "has no attribute '_" in text
            self.outcomes[report.nodeid] = "inside" if is_inside else _cause(text)
        elif report.outcome == "skipped" or report.when == "call":
            self.outcomes.setdefault(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be collected."""
        if report.outcome == "failed":
            self.outcomes[report.nodeid] = "inside: not collected"


def _cause(text: str) -> str:
    """The last line of an error, without what differs from test to test."""
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "failed: " + (lines[0] if lines else "no reason")[:90]


def main(source: str, *files: str) -> int:
    """Run the tests and print the outcomes, and the causes of failures by their number."""
    import pytest

    counting = Counting()
    words = ["-qq", "--no-header", "-p", "no:cacheprovider", "--tb=short", "-W", "ignore"]
    if source == "--pyargs":
        words += ["-c", "/dev/null", source, *files]
    else:
        words += [
            "-o",
            "addopts=",
            "-o",
            "filterwarnings=ignore",
            "-o",
            "asyncio_mode=auto",
            "--rootdir",
            source,
        ]
        words += [str(Path(source) / "tests" / name) for name in files or FILES]
    pytest.main(words, plugins=[counting])
    kinds = Counter(outcome.partition(":")[0] for outcome in counting.outcomes.values())
    for cause, count in Counter(counting.outcomes.values()).most_common():
        if cause.startswith("failed: "):
            print(f"{count:6} {cause}")
    by_file: dict[str, Counter[str]] = {}
    for name, outcome in counting.outcomes.items():
        by_file.setdefault(name.partition("::")[0], Counter())[outcome.partition(":")[0]] += 1
    for name, count in by_file.items():
        print(f"{name}: {dict(count)}")
    print(f"all: {dict(kinds)}")
    return 0


if __name__ in ("__main__", "__mp_main__"):  # processes that tests start import the same
    sys.meta_path.insert(0, Renamed())

if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(*sys.argv[1:]))
