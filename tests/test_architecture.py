"""How the package hangs together: imports go down the floors of the house, and start-up loads little."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import house
import pytest
import words

from zstore import plugin

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def test_imports_go_down_and_never_in_a_circle():
    assert house.offences(SOURCE) == []


def test_every_floor_and_every_home_of_a_dependency_is_there():
    modules = {house.module_name(path, SOURCE) for path in SOURCE.rglob("*.py")}
    named = {*house.FLOORS, *house.FREE, *(home for homes in house.HEAVY.values() for home in homes)}
    assert {name for name in named if not any(house.within(module, name) for module in modules)} == set()


def test_every_wing_lies_above_the_wings_before_it():
    floors = [sorted(rooms.values()) for rooms in house.WINGS.values()]
    assert all(below[-1] < above[0] for below, above in pairwise(floors))
    assert len(house.FLOORS) == sum(map(len, house.WINGS.values()))


# What each text breaks when it stands in that file.
PLANTED = {
    "from zstore.nodes.array import Array": ("codecs/planted.py", "from floor 4 on floor 6: core needs core"),
    "def late():\n    from zstore.engine.chunks import Chunks": ("model/planted.py", "on floor 5"),
    "def late():\n    import_module('zstore.geo.report.notebook').render()": (
        "nodes/planted.py",
        "on floor 17: core needs geo",
    ),
    "importlib.import_module(f'zstore.cli.{word}')": ("engine/planted.py", "on floor 21: core needs faces"),
    "__import__('zstore.cli')": ("engine/planted.py", "on floor 21: core needs faces"),
    "from zstore.geo.conventions.crs import Crs": ("storage/planted.py", "on floor 14: core needs geo"),
    "from zstore.guests.dask import to_dask": ("geo/conventions/planted.py", "geo needs guests"),
    "if TYPE_CHECKING:\n    from zstore.nodes.array import Array": ("model/planted.py", "on floor 6"),
    "import_module(name)": ("engine/planted.py", "a name that the text does not tell"),
    "from zstore import codecs": ("storage/planted.py", "on floor 4"),
    "import zstore": ("engine/planted.py", "on floor 20: core needs faces"),
    "from zstore.codecs import base": ("indexing/planted.py", "from floor 4 on floor 4"),
    "from zstore.model.array import ArrayModel": ("storage/planted.py", "its room never does"),
    "from zstore.engine.schedulers import map_threads": ("geo/conventions/planted.py", "its room never does"),
    "from zstore.geo.conventions import cf": ("jobs/upkeep/planted.py", "jobs needs geo"),
    "from zstore.jobs.runner import Runner, Journal": (
        "geo/planted.py",
        "jobs.runner.Journal, beside the surface of jobs",
    ),
    "from zstore.plugin.jobs import Runner": ("geo/planted.py", "which is for other packages"),
    "def late():\n    from zstore.geo.pyramid import build": (
        "guests/planted.py",
        "beside the surface of geo",
    ),
    "if TYPE_CHECKING:\n    import zstore.geo.validation.run": (
        "cli/planted.py",
        "beside the surface of geo",
    ),
    "import_module('zstore.guests.dask')": ("cli/planted.py", "beside the surface of guests"),
    "import fsspec.core": ("engine/planted.py", "lives in"),
    "x = 1": ("homeless.py", "has no floor"),
    "from zstore.engine import schedulers": ("engine/fetch.py", "circle: "),
    "def late():\n    from zstore.nodes import array": ("nodes/indexers.py", "circle: "),
    "if TYPE_CHECKING:\n    import zstore.nodes.array": ("nodes/indexers.py", "circle: "),
    "import_module(f'zstore.nodes.{name}')": ("nodes/indexers.py", "circle: "),
}
# What stands in other files at the time, so that there is something to go round with.
BESIDE = {
    "zstore/engine/schedulers.py": "from zstore.engine.fetch import fetch",
    "zstore/nodes/array.py": "from zstore.nodes.indexers import Indexer",
    "zstore/plugin/jobs.py": "from zstore.jobs.runner import Runner\n__all__ = ['Runner']",
}


@pytest.mark.parametrize(("text", "place", "fault"), [(text, *found) for text, found in PLANTED.items()])
def test_planted_offences_are_found(tmp_path, text, place, fault):
    for path in SOURCE.rglob("*.py"):
        copy = tmp_path / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(BESIDE.get(str(copy.relative_to(tmp_path)), ""))
    assert house.offences(tmp_path) == []
    (tmp_path / "zstore" / place).write_text(text)
    [found] = house.offences(tmp_path)
    assert fault in found


def test_the_core_alone_is_a_copy_without_any_room_of_the_other_wings():
    recipe = (ROOT / "Makefile").read_text().partition("\ncore: ")[2].partition("\n\n")[0]
    removed = set(re.findall(r"\w+", recipe.partition("rm -r ")[2].partition("PYTHONPATH")[0]))
    others = {room for wing, rooms in house.WINGS.items() if wing != "core" for room in rooms} - {"zstore"}
    assert {room for room in others if not removed.intersection(room.split("."))} == set()


def test_the_map_shows_the_floors_there_are():
    page = (ROOT / "docs/architecture.md").read_text().partition("\n## A read")[0]
    shown: dict[str, dict[str, int]] = {}
    for wing, floor, rooms in re.findall(r"^\| ?([^|]*) \| (\d+) \| ([^|]+) \|", page, re.MULTILINE):
        shown.setdefault(wing or [*shown][-1], {}).update(
            (f"zstore.{room.strip('/').replace('/', '.')}".removesuffix(".__init__"), int(floor))
            for room in re.findall(r"`([^`]+)`", rooms)
        )
    assert shown == house.WINGS


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="only a checkout knows which files are the project's"
)
def test_nothing_that_a_run_left_is_the_projects():
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {path.partition("/")[0] for path in listed if "/" in path} == {
        *(".ci", ".github", "benchmarks", "changes", "docs", "examples", "licenses", "plugins", "recipe"),
        *("src", "tests", "tools"),
    }


PLUGINS = sorted((ROOT / "plugins").glob("*/src"))


def test_our_plugins_live_on_the_surface_alone():
    assert len(PLUGINS) > 10
    assert {str(source): found for source in PLUGINS if (found := house.internals(source))} == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from zstore.storage.base import Store", "zstore.storage.base.Store"),
        ("def late():\n    from zstore.storage import base", "zstore.storage.base"),
        ("from zstore import storage", "zstore.storage"),
        ("import zstore.storage.base", "zstore.storage.base"),
        ("import zstore\nzstore.storage.base.Store", "zstore.storage"),
        ("import_module('zstore.storage.base')", "zstore.storage.base"),
        ("if TYPE_CHECKING:\n    from zstore.nodes.array import Array", "zstore.nodes.array.Array"),
        ("from zstore.plugin.stores import annotations", "zstore.plugin.stores.annotations"),
    ],
)
def test_an_internal_name_in_a_plugin_is_found(tmp_path, text, name):
    sound = (
        "from zstore import open\nfrom zstore.errors import StoreError\nfrom zstore.plugin import stores\n"
    )
    (tmp_path / "acme.py").write_text(sound)
    assert house.internals(tmp_path) == []
    (tmp_path / "acme.py").write_text(sound + text)
    [found] = house.internals(tmp_path)
    assert f"uses {name}, an internal name" in found


def test_the_page_of_the_surface_lists_the_names_there_are():
    page = (ROOT / "docs/plugin-surface.md").read_text()
    shown = {
        module: dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
        for module, section in re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    }
    modules = {
        name: importlib.import_module(name)
        for name in (
            "zstore.plugin",
            *(f"zstore.plugin.{one.name}" for one in pkgutil.iter_modules(plugin.__path__)),
        )
    }
    assert {name: list(rows) for name, rows in shown.items()} == {
        name: sorted(module.__all__) for name, module in modules.items()
    }
    # What has a docstring is described by its beginning.
    for module, rows in shown.items():
        for name, row in rows.items():
            value = getattr(modules[module], name)
            if inspect.isclass(value) or (
                inspect.isroutine(value) and value.__module__.startswith("zstore.")
            ):
                begin = (inspect.getdoc(value) or "no docstring").partition("\n\n")[0]
                assert row.replace("&#124;", "|") == " ".join(begin.split()).rstrip("."), (module, name)


def test_functions_of_the_surface_say_their_types():
    for module in pkgutil.iter_modules(plugin.__path__):
        surface = importlib.import_module(f"zstore.plugin.{module.name}")
        for name, value in ((name, getattr(surface, name)) for name in surface.__all__):
            if inspect.isfunction(value):
                signature = inspect.signature(value)
                types = [one.annotation for one in signature.parameters.values()]
                assert inspect.Signature.empty not in (*types, signature.return_annotation), name


def loaded_after(statement: str, *, whole: bool = False) -> set[str]:
    """The packages, or by their whole names the modules, that a statement loads."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    return {name if whole else name.split(".")[0] for name in result.stdout.split()}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}


def test_importing_zstore_loads_itself_only():
    assert loaded_after("import zstore") - set(sys.stdlib_module_names) == {"zstore"}


def test_the_command_line_loads_what_a_command_needs_when_it_is_typed():
    loaded = loaded_after("import zstore.cli.root", whole=True)
    assert "numpy" not in loaded
    wings = {house.wing_of(name) for name in loaded if house.within(name, "zstore")} - {None}
    assert wings == {"core", "faces"}
    # A command of its own loads no other command.
    loaded |= loaded_after("import zstore.cli.tree", whole=True)
    commands = {name for name in loaded if name.startswith("zstore.cli.")}
    assert commands == {"zstore.cli.options", "zstore.cli.root", "zstore.cli.tree"}


def test_opening_loads_numpy_and_the_standard_library_only():
    third = loaded_after("import numpy; import zstore; zstore.open") - set(sys.stdlib_module_names)
    # Cython's own module has no file: it is part of every compiled one.
    assert {name for name in third if not name.startswith("_")} <= {"zstore", "numpy", "cython_runtime"}


def test_everyday_work_loads_no_heavy_dependency(tmp_path):
    place = repr(str(tmp_path / "store"))
    program = (
        f"import zstore; a = zstore.create_array({place}, 'a', shape=(4, 4), chunks=(2, 2), shards=(4, 4), "
        f"dtype='f4'); a[...] = 1; assert a[1, 1] == 1; zstore.open({place}, 'a')[[0], :]"
    )
    assert loaded_after(program) & set(house.HEAVY) == set()


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_module_says_what_it_is():
    said = {line.path for line in words.first_lines() if not line.name}
    assert {str(path.relative_to(SOURCE)) for path in python_files()} - said == set()


def test_first_lines_of_docstrings_name_what_one_gets():
    assert words.riddles() == []


@pytest.mark.parametrize("line", ["What a job reads.", "Where tiles begin.", "The size of what is stored."])
def test_a_clause_in_the_place_of_a_noun_is_reported(tmp_path, line):
    (tmp_path / "planted.py").write_text(f'"""A sound line."""\ndef run():\n    """{line}"""\n')
    [found] = words.riddles(tmp_path)
    assert found == ("planted.py", 3, "run", line)


def test_no_two_classes_have_one_name(tmp_path):
    assert words.same_names() == {}
    (tmp_path / "a.py").write_text("class Part: ...\n")
    (tmp_path / "b.py").write_text("class Part: ...\nclass Whole: ...\n")
    assert words.same_names(tmp_path) == {"Part": ["a.py", "b.py"]}


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


# What Linux alone has, as a word of Python or of C, and the only places that ask for it.
OF_LINUX = re.compile(
    r"\b(?:sched_\w+affinity|memfd_create|sendfile|copy_file_range|posix_fadvise|fallocate|splice|eventfd|epoll_\w+"
    r"|inotify_\w+|pidfd_open|pipe2|preadv2|pwritev2|renameat2|statx|io_uring\w*|getrandom|prctl|unshare|setns"
    r"|gettid|MADV_(?!DONTNEED)\w+|O_(?:DIRECT|NOATIME)|openat2|SYS_\w+)\b(?=\(|\s*[|),;]|$)"
    r'|"/(?:proc|sys)/|<linux/'
)
HOMES_OF_LINUX = {"zstore/base/system.py", "zstore/_ext/engine/files.h", "zstore/_ext/engine/put.h"}
# What POSIX has and Windows has not: a port has these places to rewrite.
OF_POSIX = re.compile(r"^import fcntl|\bdir_fd=|\bos\.O_DIRECTORY|register_at_fork|os\.getuid", re.M)
HOMES_OF_POSIX = {
    "zstore/base": {"locks.py"},
    "zstore/engine": {"awaiting.py", "intents.py"},
    "zstore/jobs/upkeep": {"convert.py"},
    "zstore/storage": {"base.py", "cached.py", "local.py"},
    "zstore/storage/objects": {"library.py"},
    "zstore/storage/zip": {"archive.py"},
    "zstore/_ext/engine": {"transfer.pyx"},
}


def sources(*endings: str) -> dict[str, str]:
    """The texts of our sources, by path; no code that Cython has made."""
    return {
        path.relative_to(SOURCE).as_posix(): path.read_text()
        for ending in endings
        for path in SOURCE.rglob(f"*.{ending}")
    }


def test_what_linux_alone_has_is_behind_one_layer():
    texts = sources("py", "pyx", "h", "cc")
    assert {path for path, text in texts.items() if OF_LINUX.search(text)} == HOMES_OF_LINUX
    # In the kernels, only where it is left out of the portable build.
    files = texts["zstore/_ext/engine/files.h"]
    guarded = files[files.index("#if defined(__linux__) && !defined(ZS_PORTABLE)") : files.index("#else")]
    assert set(re.findall("<linux/.*>", files)) == set(re.findall("<linux/.*>", guarded))


@pytest.mark.parametrize(
    "text",
    ["os.memfd_create('a')", 'open("/proc/self/maps")', "x = os.sched_getaffinity(0)", "a | O_DIRECT | b"],
)
def test_a_word_of_linux_is_found(text):
    assert OF_LINUX.search(text)


def test_what_posix_has_and_windows_lacks_is_in_known_places():
    found: dict[str, set[str]] = {}
    for path, text in sources("py", "pyx").items():
        if OF_POSIX.search(text):
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, set()).add(name)
    assert found == HOMES_OF_POSIX


# What threads share: variables of C that are not constant, and those of a module that Cython code assigns.
SHARED = (
    re.compile(
        r"\bstatic\s+(?!const\b|inline\b|constexpr\b)(?:(?:\w+\s+)*?struct\s*\{[^}]*\}\s*|[^;{}()=]*?\W)(\w+)(?:\[\w+\])*\s*"
        r"(?:__attribute__\(\(\w+\)\)\s*)?[=;]"
    ),
    re.compile(r"^ +global ([\w, ]+)$", re.M),
)


def shared_names(text: str) -> set[str]:
    """The names of the variables that threads share, in a source of the kernels."""
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return {name for kind in SHARED for found in kind.findall(bare) for name in found.split(", ")}


def test_whatever_threads_share_in_the_kernels_is_in_the_audit():
    texts = sources("h", "cc", "pyx")
    found = set().union(*(shared_names(text) for path, text in texts.items() if "/_ext/" in path))
    audit = (ROOT / "docs/design/0031-free-threads.md").read_text().partition("## Objects")[0]
    assert found == set(re.findall(r"^\| `(\w+)` \|", audit, re.M))


@pytest.mark.parametrize(
    "text",
    [
        "static int planted;",
        "static struct {\n    int a;\n} planted = {1};",
        "static _Atomic int64_t\n    planted[4];",
    ],
)
def test_a_variable_that_threads_share_is_found(text):
    assert shared_names(text) == {"planted"}
    assert shared_names("static const int one = 1;\nstatic int two(int three) {\n    return 4;\n}") == set()
