"""How the package hangs together: imports go down the floors of the house, and start-up loads little."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

# Rooms and their floors; the longest name that fits a module is its room. Neighbours are strangers.
FLOORS: dict[str, int] = {
    "zstore.errors": 0,
    "zstore.base": 0,
    "zstore._ext": 0,
    "zstore.extensions": 1,
    "zstore.model": 2,
    "zstore.storage": 3,
    "zstore.indexing": 4,
    "zstore.codecs": 4,
    "zstore.resampling": 4,
    "zstore.engine": 5,
    "zstore.nodes": 6,
    "zstore.conventions": 7,
    "zstore.pyramid": 8,
    "zstore.validation": 8,
    "zstore.upkeep": 8,
    "zstore.report": 9,
    "zstore.integrations": 9,
    "zstore.testing": 9,
    "zstore.cli": 10,
    "zstore.__main__": 10,
    "zstore": 11,
}

# Rooms of several modules each, whose members may know each other.
ROOMS: list[set[str]] = [{"zstore.cli", "zstore.__main__"}]

# Floors that are not enough: (room, what it never imports, though it lies below).
NEVER: list[tuple[str, str]] = [
    ("zstore.model", "zstore.codecs"),
    ("zstore.model", "zstore.storage"),
    ("zstore.storage", "zstore.model"),
    ("zstore.storage", "zstore.codecs"),
    ("zstore.codecs", "zstore.storage"),
    ("zstore.indexing.select", "zstore.codecs"),
    ("zstore.indexing.select", "zstore.storage"),
    ("zstore.conventions", "zstore.engine"),
    ("zstore.conventions", "zstore.codecs"),
]

# Imports that break a rule, and why they may.
ALLOWED: dict[tuple[str, str], str] = {}

# Each heavy dependency, and the only modules that may import it.
HEAVY: dict[str, tuple[str, ...]] = {
    "pluggy": ("zstore.extensions",),
    "fsspec": ("zstore.storage.fsspec",),
    "ml_dtypes": ("zstore.model.types.small", "zstore.codecs.casting"),
    "numcodecs": ("zstore.codecs.blosc", "zstore.codecs.numcodecs", "zstore.integrations.numcodecs"),
    "blosc2": ("zstore.codecs.blosc",),
    "zstandard": ("zstore.codecs",),
    "msgpack": ("zstore.codecs.objects",),
    "pcodec": ("zstore.codecs.pcodec",),
    "zfpy": ("zstore.codecs.zfpy",),
    "pyproj": ("zstore.conventions.crs",),
    "cftime": ("zstore.conventions.content",),
    "rasterio": ("zstore.integrations",),
    "xarray": ("zstore.integrations.xarray",),
    "zarr": ("zstore.integrations",),
    "dask": ("zstore.integrations",),
    "h5netcdf": ("zstore.integrations.rasters.netcdf",),
    "h5py": ("zstore.integrations.rasters.netcdf",),
    "click": ("zstore.cli",),
    "rich": ("zstore.cli",),
}

LINE_LIMIT = 400
# Files longer than that, and why.
LONG: dict[str, str] = {}


class Import(NamedTuple):
    """One import: the module that has it, what it imports, and the line."""

    module: str
    target: str
    line: int


def module_name(path: Path, source: Path) -> str:
    name = ".".join(path.relative_to(source).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imports(path: Path, source: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions too; not those for type checkers only."""
    module = module_name(path, source)
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    modules = {module_name(other, source) for other in source.rglob("*.py")}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                # `from zstore.model import v2` imports zstore.model.v2.
                inner = f"{node.module}.{alias.name}"
                yield Import(module, inner if inner in modules else node.module or "", node.lineno)


def room_of(module: str) -> str | None:
    fitting = [room for room in FLOORS if within(module, room)]
    best = max(fitting, key=len, default=None)
    # The package itself is its __init__ alone, so that a new module must be given a floor.
    return best if best != "zstore" or module == "zstore" else None


def within(module: str, room: str) -> bool:
    """Whether a module is the room or in it; `resampling_grid` belongs to `resampling`."""
    return module == room or module.startswith((f"{room}.", f"{room}_"))


def offences(source: Path) -> list[str]:
    """What breaks a rule, in words."""
    found = []
    for path in sorted(source.rglob("*.py")):
        module = module_name(path, source)
        room = room_of(module)
        if room is None:
            found.append(f"{module} has no floor")
            continue
        for entry in imports(path, source):
            if entry.target.split(".")[0] in HEAVY:
                homes = HEAVY[entry.target.split(".")[0]]
                if not any(within(module, home) for home in homes):
                    found.append(f"{module}:{entry.line} imports {entry.target}, which lives in {homes}")
            if entry.target.split(".")[0] != "zstore" or (module, entry.target) in ALLOWED:
                continue
            other = room_of(entry.target)
            if other is None:
                found.append(f"{module}:{entry.line} imports {entry.target}, which has no floor")
            elif other == room or any({room, other} <= neighbours for neighbours in ROOMS):
                continue
            elif other == "zstore" and FLOORS[room] >= 6:
                continue  # the public names, from above
            elif FLOORS[other] >= FLOORS[room]:
                floors = f"from floor {FLOORS[room]} on floor {FLOORS[other]}"
                found.append(f"{module}:{entry.line} imports {entry.target}, {floors}")
            elif any(within(module, a) and within(entry.target, b) for a, b in NEVER):
                found.append(f"{module}:{entry.line} imports {entry.target}, which its room never does")
    return found


def test_imports_go_down():
    assert offences(SOURCE) == []


def test_every_exception_from_the_rules_is_needed():
    real = {(entry.module, entry.target) for path in SOURCE.rglob("*.py") for entry in imports(path, SOURCE)}
    assert set(ALLOWED) <= real
    modules = {module_name(path, SOURCE) for path in SOURCE.rglob("*.py")}
    assert {room for room in FLOORS if not any(within(module, room) for module in modules)} == set()
    assert {name for name in LONG if not (SOURCE / name).exists()} == set()


PLANTED = {
    "from zstore.nodes.array import Array": "zstore/codecs/planted.py",
    "def late():\n    from zstore.engine.chunks import Chunks": "zstore/model/planted.py",
    "import zstore.storage.local": "zstore/codecs/planted.py",
    "from zstore import codecs": "zstore/engine/../storage/planted.py",
    "from zstore.model.array import ArrayModel": "zstore/storage/planted.py",
    "from zstore.engine.pool import map_threads": "zstore/conventions/planted.py",
    "from zstore.codecs import chain": "zstore/storage/planted.py",
    "import fsspec.core": "zstore/engine/planted.py",
    "x = 1": "zstore/homeless.py",
    "from zstore.cli.main import main": "zstore/integrations/planted.py",
    "import zstore": "zstore/engine/planted.py",
}


@pytest.mark.parametrize("text", PLANTED)
def test_planted_offences_are_found(tmp_path, text):
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    for room in ("integrations", "cli.py"):
        place = tmp_path / "zstore" / room
        if room.endswith(".py"):
            place.write_text("")
        else:
            place.mkdir(exist_ok=True)
    assert offences(tmp_path) == []
    (tmp_path / PLANTED[text]).resolve().write_text(text)
    assert len(offences(tmp_path)) == 1


def test_imports_for_type_checkers_only_do_not_count(tmp_path):
    place = tmp_path / "zstore/model"
    place.mkdir(parents=True)
    (place / "planted.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from zstore.nodes.array import Array\n"
    )
    assert offences(tmp_path) == []


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    return {name.split(".")[0] for name in result.stdout.split()}


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}


def test_importing_zstore_loads_numpy_and_the_standard_library_only():
    third = loaded_after("import numpy; import zstore") - set(sys.stdlib_module_names)
    assert {name for name in third if not name.startswith("_")} <= {"zstore", "numpy"}
    assert loaded_after("import zstore") - set(sys.stdlib_module_names) <= {"zstore", "numpy"}


def test_everyday_work_loads_no_heavy_dependency(tmp_path):
    place = repr(str(tmp_path / "store"))
    program = (
        f"import zstore; a = zstore.create_array({place}, 'a', shape=(4, 4), chunks=(2, 2), shards=(4, 4), "
        f"dtype='f4'); a[...] = 1; assert a[1, 1] == 1; zstore.open({place}, 'a')[[0], :]"
    )
    assert loaded_after(program) & set(HEAVY) == set()


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_files_are_short():
    long = {
        str(path.relative_to(SOURCE)): count
        for path in python_files()
        if (count := len(path.read_text().splitlines())) > LINE_LIMIT
    }
    assert set(long) == set(LONG), long


def test_every_module_names_what_it_offers_and_says_what_it_is():
    for path in python_files():
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        if path.name not in ("__init__.py", "__main__.py"):
            assigned = [
                t.id
                for node in tree.body
                if isinstance(node, ast.Assign)
                for t in node.targets
                if isinstance(t, ast.Name)
            ]
            assert "__all__" in assigned, path


def test_no_rooms_for_odds_and_ends():
    parts = {part for path in python_files() for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert parts & {"utils", "util", "common", "helpers", "misc", "manager", "managers"} == set()


def test_texts_know_no_machine():
    # What a text of the project must not mention: places on somebody's machine.
    places = re.compile(
        r"/(?:home|root|Users|work|workspace)/|\b[A-Z]:\\|/tmp/(?!\S*\{)|localhost:\d|\b\d{1,3}(?:\.\d{1,3}){3}:\d"
    )
    texts = [
        path
        for folder, endings in (("src", ("py", "pyx", "pyi", "h")), ("docs", ("md",)), (".", ("md", "toml")))
        for ending in endings
        for path in (
            (ROOT / folder).glob(f"*.{ending}") if folder == "." else (ROOT / folder).rglob(f"*.{ending}")
        )
    ]
    assert len(texts) > 50
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if places.search(line)
    ]
    assert found == []
