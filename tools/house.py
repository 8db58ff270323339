"""The rooms of the package: who imports whom, on which floor, how large; `python tools/house.py` prints them.

Every way to import counts: at the top of a file, inside a function, for type checkers only, and
`import_module("…")` with a name or the beginning of one. `tests/test_architecture.py` enforces the rules.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "FLOORS",
    "Import",
    "circles",
    "imports",
    "module_name",
    "offences",
    "room_of",
    "sizes",
    "within",
]

SOURCE = Path(__file__).parents[1] / "src"

# Rooms and their floors; the longest name that a module is in is its room. Neighbours are strangers.
FLOORS: dict[str, int] = {
    "zstore.errors": 0,
    "zstore.base": 0,
    "zstore._ext": 0,
    "zstore.extensions": 1,
    "zstore.model": 2,
    "zstore.storage": 3,
    "zstore.indexing": 4,
    "zstore.codecs": 4,
    "zstore.engine": 5,
    "zstore.nodes": 6,
    "zstore.aio": 7,
    "zstore.jobs": 7,
    "zstore.geo.resampling": 7,
    "zstore.jobs.reduction": 9,
    "zstore.jobs.upkeep": 9,
    "zstore.geo": 7,
    "zstore.geo.conventions": 8,
    "zstore.geo.pyramid": 9,
    "zstore.geo.validation": 9,
    "zstore.geo.rasters": 10,
    "zstore.guests": 11,
    "zstore.report": 11,
    "zstore.testing": 11,
    "zstore.units": 11,
    "zstore": 12,
    "zstore.cli": 13,
    "zstore.__main__": 14,
}

# What a room never imports, though it lies below: (room, what).
NEVER: list[tuple[str, str]] = [
    ("zstore.model", "zstore._ext"),
    ("zstore.storage", "zstore.model"),
    ("zstore.indexing", "zstore.storage"),
    ("zstore.codecs", "zstore.storage"),
    ("zstore.jobs", "zstore.geo"),
    ("zstore.geo.conventions", "zstore.engine"),
    ("zstore.geo.conventions", "zstore.codecs"),
]

# Each heavy dependency, and the only modules that may import it.
HEAVY: dict[str, tuple[str, ...]] = {
    "pluggy": ("zstore.extensions",),
    "fsspec": ("zstore.storage.fsspec",),
    "obstore": ("zstore.storage.objects",),
    "botocore": ("zstore.storage.objects",),
    "ml_dtypes": ("zstore.model.types.small", "zstore.codecs.casting"),
    "numcodecs": ("zstore.codecs.numcodecs", "zstore.guests.numcodecs"),
    "blosc2": ("zstore.codecs.blosc2",),
    "msgpack": ("zstore.codecs.objects",),
    "pcodec": ("zstore.codecs.pcodec",),
    "zfpy": ("zstore.codecs.zfpy",),
    "pyproj": ("zstore.geo.conventions.crs",),
    "cftime": ("zstore.geo.conventions.content",),
    "rasterio": ("zstore.geo.rasters",),
    "xarray": ("zstore.guests.xarray",),
    "zarr": ("zstore.guests.zarr_python",),
    "dask": ("zstore.guests",),
    "h5netcdf": ("zstore.geo.rasters",),
    "netCDF4": ("zstore.geo.rasters",),
    "h5py": ("zstore.geo.rasters",),
    "click": ("zstore.cli",),
    "rich": ("zstore.cli",),
}

# Where the text does not tell what is imported: names that users or plugins give, and the public names.
FREE = {"zstore", "zstore.base.former", "zstore.extensions.registry", "zstore.cli.root"}


class Import(NamedTuple):
    """One import: the module that has it, what it imports, and the line."""

    module: str
    target: str
    line: int


def module_name(path: Path, source: Path) -> str:
    """The dotted name of the module in `path`, below `source`."""
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def within(module: str, room: str) -> bool:
    """Whether a module is the room or in it."""
    return module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str | None:
    """The room of a module; None where it has no floor."""
    best = max((room for room in FLOORS if within(module, room)), key=len, default=None)
    # The package itself is its __init__ alone, so that a new module must be given a floor.
    return best if best != "zstore" or module == "zstore" else None


def imports(source: Path = SOURCE) -> Iterator[Import]:
    """Every import of every module below `source`."""
    paths = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(module, alias.name, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    raise ValueError(f"{path}:{node.lineno}: relative import, expected an absolute one")
                for alias in node.names:
                    # `from zstore.model import v2` imports zstore.model.v2.
                    inner = f"{node.module}.{alias.name}"
                    yield Import(module, inner if inner in paths else node.module or "", node.lineno)
            elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
                yield Import(module, _named(node), node.lineno)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _named(node: ast.Call) -> str:
    """What a call imports, as far as the text tells: "zstore.cli" for f"zstore.cli.{word}", else "?"."""
    name = node.args[0] if node.args else None
    if isinstance(name, ast.JoinedStr):
        name = name.values[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return "?"
    return name.value.rstrip(".")


def offences(source: Path = SOURCE) -> list[str]:
    """What breaks a rule, in words."""
    found = []
    modules = {module_name(path, source) for path in source.rglob("*.py")}
    found += [f"{module} has no floor" for module in sorted(modules) if room_of(module) is None]
    known = list(imports(source))
    for entry in known:
        room, top = room_of(entry.module), entry.target.split(".")[0]
        here = f"{entry.module}:{entry.line} imports {entry.target}"
        if room is None:
            continue
        if entry.target == "?" and entry.module not in FREE:
            found.append(f"{here}: a name that the text does not tell")
        if not any(within(entry.module, home) for home in HEAVY.get(top, ("zstore",))):
            found.append(f"{here}, which lives in {HEAVY[top]}")
        if top != "zstore" or (other := room_of(entry.target)) == room:
            continue
        if other is None:
            found.append(f"{here}, which has no floor")
        elif FLOORS[other] >= FLOORS[room]:
            found.append(f"{here}, from floor {FLOORS[room]} on floor {FLOORS[other]}")
        elif any(within(entry.module, a) and within(entry.target, b) for a, b in NEVER):
            found.append(f"{here}, which its room never does")
    arrows: dict[str, set[str]] = defaultdict(set)
    for entry in known:
        if entry.target in modules and entry.target != entry.module:
            arrows[entry.module].add(entry.target)
    return found + [f"circle: {' -> '.join(circle)}" for circle in circles(arrows)]


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One way round for every set of modules that import each other."""
    found: list[list[str]] = []
    done: set[str] = set()
    on_way: list[str] = []

    def visit(module: str) -> None:
        if module in on_way:
            found.append([*on_way[on_way.index(module) :], module])
        elif module not in done:
            on_way.append(module)
            for target in sorted(arrows.get(module, ())):
                visit(target)
            on_way.pop()
            done.add(module)

    for module in sorted(arrows):
        visit(module)
    return found


def sizes(source: Path = SOURCE) -> dict[str, tuple[int, int, int]]:
    """Of each room (files of Python, their lines, lines of C and Cython)."""
    counts: dict[str, list[int]] = {room: [0, 0, 0] for room in FLOORS}
    for path in sorted(source.rglob("*")):
        is_python, is_kernel = path.suffix == ".py", path.suffix in (".pyx", ".pxd", ".pxi", ".h")
        room = room_of(module_name(path, source)) if is_python or is_kernel else None
        if room is not None:
            lines = len(path.read_text().splitlines())
            counts[room][0] += is_python
            counts[room][2 if is_kernel else 1] += lines
    return {room: (files, python, kernels) for room, (files, python, kernels) in counts.items()}


def main() -> None:
    """Print the floors, from the top: rooms, files, lines, and the rooms that each imports."""
    used: dict[str, set[str]] = defaultdict(set)
    for entry in imports():
        room, other = room_of(entry.module), room_of(entry.target)
        if room and other and room != other and entry.target.startswith("zstore"):
            used[room].add(other.removeprefix("zstore."))
    measured = sizes()
    print("floor  room            files  Python   C, Cython  imports")
    for room, floor in sorted(FLOORS.items(), key=lambda item: -item[1]):
        files, python, kernels = measured[room]
        name = room.removeprefix("zstore.")
        below = " ".join(sorted(used[room]))
        print(f"{floor:5}  {name:<14} {files:6} {python:7,} {kernels:11,}  {below}")
    rows = measured.values()
    print(f"total  {len(FLOORS):<14} {sum(r[0] for r in rows):6} {sum(r[1] for r in rows):7,} "
          f"{sum(r[2] for r in rows):11,}")  # fmt: skip
    broken = offences()
    print(f"{sum(', from floor' in text for text in broken)} imports up, "
          f"{sum(text.startswith('circle') for text in broken)} circles")  # fmt: skip
    print(*broken, sep="\n")


if __name__ == "__main__":
    main()
