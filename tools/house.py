"""The rooms of the package: who imports whom, on which floor, how large; `python tools/house.py` prints them.

Every way to import counts: at the top of a file, inside a function, for type checkers only, and
`import_module("…")` with a name or the beginning of one. `tests/test_architecture.py` enforces the rules.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "FLOORS",
    "WINGS",
    "Import",
    "beside_surface",
    "circles",
    "doors",
    "homes",
    "imports",
    "internals",
    "module_name",
    "offences",
    "room_of",
    "sizes",
    "surface",
    "wing_of",
    "within",
]

SOURCE = Path(__file__).parents[1] / "src"

# The wings, from the lowest, with rooms and their floors; the longest name that a module is in is
# its room. Every floor of a wing lies above all floors of the wings before it. Neighbours are strangers.
WINGS: dict[str, dict[str, int]] = {
    "core": {
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
        "zstore.plugin": 7,
        "zstore.testing": 7,
    },
    "jobs": {
        "zstore.jobs": 8,
        "zstore.jobs.reduction": 9,
        "zstore.jobs.upkeep": 9,
        "zstore.plugin.jobs": 10,
    },
    "views": {
        "zstore.views": 11,
        "zstore.plugin.views": 12,
        "zstore.training": 12,
    },
    "geo": {
        "zstore.geo": 13,
        "zstore.geo.resampling": 13,
        "zstore.geo.conventions": 14,
        "zstore.geo.pyramid": 15,
        "zstore.geo.validation": 15,
        "zstore.geo.pictures": 16,
        "zstore.geo.rasters": 16,
        "zstore.geo.report": 17,
        "zstore.plugin.conventions": 17,
        "zstore.plugin.pictures": 17,
        "zstore.plugin.pyramids": 17,
        "zstore.plugin.rasters": 17,
        "zstore.plugin.resamplers": 17,
    },
    "guests": {
        "zstore.guests": 18,
    },
    "faces": {
        "zstore.testing.commands": 19,
        "zstore.testing.conventions": 19,
        "zstore.testing.resamplers": 19,
        "zstore": 20,
        "zstore.cli": 21,
        "zstore.testing.jobs": 21,
        "zstore.zarr": 21,
        "zstore.plugin.commands": 22,
        "zstore.__main__": 23,
    },
}
FLOORS = {room: floor for rooms in WINGS.values() for room, floor in rooms.items()}

# What a room never imports, though it lies below: (room, what).
NEVER: list[tuple[str, str]] = [
    ("zstore.model", "zstore._ext"),
    ("zstore.storage", "zstore.model"),
    ("zstore.indexing", "zstore.storage"),
    ("zstore.codecs", "zstore.storage"),
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
    "cftime": ("zstore.geo.conventions.timeaxis",),
    "rasterio": ("zstore.geo.rasters", "zstore.cli.doctor"),
    "xarray": ("zstore.guests.xarray",),
    "zarr": ("zstore.guests.zarr_python",),
    "dask": ("zstore.guests",),
    "torch": ("zstore.guests.torch", "zstore.training.batches"),
    "jax": ("zstore.training.batches",),
    "h5netcdf": ("zstore.geo.rasters",),
    "h5py": ("zstore.geo.rasters",),
    "click": ("zstore.cli",),
    "rich": ("zstore.cli",),
}

# Where the text does not tell what is imported: names that users or plugins give, and the public names.
FREE = {
    "zstore",
    "zstore.base.former",
    "zstore.extensions.registry",
    "zstore.cli.root",
}


class Import(NamedTuple):
    """One import: the module that has it, the name it imports, and the line.

    `is_begun` where the text has only the beginning of the name: any module below `target` may be meant.
    """

    module: str
    target: str
    line: int
    is_begun: bool = False


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


def wing_of(module: str) -> str | None:
    """The wing of a module; None where it has no floor."""
    room = room_of(module)
    return next((wing for wing, rooms in WINGS.items() if room in rooms), None)


def imports(source: Path = SOURCE) -> Iterator[Import]:
    """Every import of every module below `source`."""
    paths = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    for module, path in paths.items():
        for target, name, line in _uses(path):
            # `from zstore.model import v2` imports zstore.model.v2.
            inner = f"{target}.{name}"
            whole = inner if inner in paths else target
            yield Import(module, whole.rstrip("."), line, is_begun=target.endswith("."))


def _uses(path: Path, *, with_attributes: bool = False) -> Iterator[tuple[str, str, int]]:
    """(module, name in it or "", line) of each import in a file; a beginning of a name ends with a dot.

    with_attributes  whether names in `zstore.name` count, too
    """
    imported, attributes = _uses_in(path.read_text())
    for target, name, line in imported:
        if target.startswith("."):
            raise ValueError(f"{path}:{line}: relative import, expected an absolute one")
        yield target, name, line
    if with_attributes:
        yield from attributes


@cache
def _uses_in(text: str) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """The imports in a text, and its attributes; all rules ask for them, and a text takes long to parse."""
    imported, attributes = list[tuple[str, str, int]](), list[tuple[str, str, int]]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported += [(alias.name, "", node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            target = "." * node.level + (node.module or "")
            imported += [(target, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            imported.append((_named(node), "", node.lineno))
        elif isinstance(node, ast.Attribute):
            attributes.append((getattr(node.value, "id", ""), node.attr, node.lineno))
    return imported, attributes


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _named(node: ast.Call) -> str:
    """The name that a call imports, as far as the text tells: "zstore.cli." of f"zstore.cli.{x}", or "?"."""
    name = node.args[0] if node.args else None
    if isinstance(name, ast.JoinedStr):
        name = name.values[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return "?"
    return name.value


def offences(source: Path = SOURCE) -> list[str]:
    """What breaks a rule, in words."""
    found = doors(source)
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
        elif within(other, "zstore.plugin") and not room.startswith(("zstore.plugin", "zstore.testing")):
            found.append(f"{here}, which is for other packages")
        elif FLOORS[other] >= FLOORS[room]:
            found.append(
                f"{here}, from floor {FLOORS[room]} on floor {FLOORS[other]}: "
                f"{wing_of(room)} needs {wing_of(other)}"
            )
        elif any(within(entry.module, a) and within(entry.target, b) for a, b in NEVER):
            found.append(f"{here}, which its room never does")
    arrows: dict[str, set[str]] = defaultdict(set)
    for entry in known:
        if entry.is_begun and entry.module not in FREE:
            arrows[entry.module] |= {name for name in modules if name.startswith(f"{entry.target}.")} - {
                entry.module
            }
        elif entry.target in modules and entry.target != entry.module:
            arrows[entry.module].add(entry.target)
    return found + [f"circle: {' -> '.join(circle)}" for circle in circles(arrows)]


def surface(package: Path = SOURCE / "zstore") -> dict[str, set[str]]:
    """The names for plugins and other wings, by module: `__all__` of `zstore` and of `zstore.plugin`."""
    names = {"zstore": _exported(package / "__init__.py")}
    for path in (package / "plugin").glob("*.py"):
        names[module_name(path, package.parent)] = _exported(path)
    names["zstore.plugin"] |= {name.rpartition(".")[2] for name in names if name.startswith("zstore.plugin.")}
    return names


def homes(package: Path = SOURCE / "zstore") -> set[str]:
    """The names that the surface shows, by the modules it takes them from: "zstore.jobs.source.Source"."""
    return {
        f"{target}.{name}"
        for path in (package / "plugin").glob("*.py")
        for target, name, _ in _uses(path)
        if within(target, "zstore")
    }


def beside_surface(path: Path, public: Mapping[str, set[str]]) -> Iterator[tuple[str, str, int]]:
    """(module, name, line) of what a file uses of zstore beside its surface and its errors."""
    for module, name, line in _uses(path, with_attributes=True):
        if not within(module.rstrip("."), "zstore") or module == "zstore.errors":
            continue
        names = public.get(module)
        if names is None or (name and name not in names):
            yield module, name, line


def internals(source: Path, package: Path = SOURCE / "zstore") -> list[str]:
    """What the modules of a plugin, below `source`, use of zstore beside its surface, in words."""
    public = surface(package)
    return [
        f"{path.relative_to(source)}:{line} uses {f'{module}.{name}'.rstrip('.')}, an internal name"
        for path in sorted(source.rglob("*.py"))
        for module, name, line in beside_surface(path, public)
    ]


def doors(source: Path = SOURCE) -> list[str]:
    """Names that wings use of lower ones beside what the surface shows; everybody may use the core."""
    package, found = source / "zstore", list[str]()
    public, shown = surface(package), homes(package)
    order: dict[str | None, int] = {None: 0, **{wing: at for at, wing in enumerate(WINGS)}}
    for path in sorted(source.rglob("*.py")):
        module = module_name(path, source)
        # What the package itself and the surface show, they take from wherever it is.
        is_surface = module == "zstore" or within(module, "zstore.plugin")
        for target, name, line in () if is_surface else beside_surface(path, public):
            used = f"{target}.{name}".rstrip(".")
            if used not in shown and order[wing_of(used)] in range(1, order[wing_of(module)]):
                found.append(f"{module}:{line} uses {used}, beside the surface of {wing_of(used)}")
    return found


def _exported(path: Path) -> set[str]:
    """The names in `__all__` of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


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
    """Print the wings and their rooms, from the top: floors, files, lines, and the rooms each imports."""
    used: dict[str, set[str]] = defaultdict(set)
    for entry in imports():
        room, other = room_of(entry.module), room_of(entry.target)
        if room and other and room != other and entry.target.startswith("zstore"):
            used[room].add(other.removeprefix("zstore."))
    measured = sizes()
    print("wing    floor  room              files  Python   C, Cython  imports")
    for wing, rooms in reversed(WINGS.items()):
        print(_row(wing, "", "", [measured[room] for room in rooms]))
        for room, floor in sorted(rooms.items(), key=lambda item: -item[1]):
            below = " ".join(sorted(used[room]))
            print(_row("", str(floor), room.removeprefix("zstore."), [measured[room]]), below)
    print(_row("total", "", str(len(FLOORS)), list(measured.values())))
    broken = offences()
    print(f"{sum(', from floor' in text for text in broken)} imports up, "
          f"{sum(text.startswith('circle') for text in broken)} circles")  # fmt: skip
    print(*broken, sep="\n")


def _row(wing: str, floor: str, room: str, counts: list[tuple[int, int, int]]) -> str:
    files, python, kernels = (sum(column) for column in zip(*counts, strict=True))
    return f"{wing:7} {floor:>5}  {room:<16} {files:6} {python:7,} {kernels:11,} "


if __name__ == "__main__":
    main()
