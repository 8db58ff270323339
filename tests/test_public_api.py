"""What people import: names, signatures, docstrings, and the types of the compiled modules."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import surface

import zstore
from zstore.storage.local import LocalStore

SOURCE = Path(zstore.__file__).parents[1]
KERNELS = [
    "zstore._ext.codecs.native",
    "zstore._ext.codecs.vlen",
    "zstore._ext.engine.files",
    "zstore._ext.engine.gather",
    "zstore._ext.engine.references",
    "zstore._ext.engine.select",
    "zstore._ext.engine.transfer",
    "zstore._ext.reduce.fold",
    "zstore._ext.requests.curl",
    "zstore._ext.resample.blocks",
    "zstore._ext.resample.warp",
]


def parameters(function) -> list[str]:
    """Names of the parameters; "*" stands before those that are given by name only."""
    found, is_named = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_named:
            is_named = True
            found.append("*")
        found.append(
            {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
            + parameter.name
        )
    return found


def test_every_public_name_exists():
    for name in zstore.__all__:
        assert getattr(zstore, name) is not None
        assert name in dir(zstore)
    assert {name for name in dir(zstore) if not name.startswith("__")} == set(zstore.__all__)
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        getattr(zstore, "nothing_of_that_name")  # noqa: B009 - as an attribute, for the error's words


def test_star_import_works_in_a_new_process():
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from zstore import *"],
        check=True,
    )


def test_opening_and_making():
    opener = zstore.open
    assert parameters(opener) == [
        "store",
        "path",
        "mode",
        "zarr_format",
        "*",
        "storage_options",
        "allow_pickle",
        "missing",
        "durable",
        "above",
        "**options",
    ]
    assert parameters(zstore.open_array) == parameters(opener)
    assert parameters(zstore.open_group) == [
        "store",
        "path",
        "mode",
        "zarr_format",
        "*",
        "storage_options",
        "attributes",
        "missing",
        "durable",
        "above",
    ]
    # The names and the order that zarr-python has, as far as both have them.
    assert parameters(zstore.create_array) == [
        "store",
        "name",
        "*",
        "shape",
        "dtype",
        "data",
        "chunks",
        "shards",
        "filters",
        "compressors",
        "serializer",
        "checksum",
        "fill_value",
        "order",
        "zarr_format",
        "attributes",
        "chunk_key_encoding",
        "dimension_names",
        "overwrite",
        "storage_options",
        "allow_pickle",
        "missing",
        "durable",
    ]
    assert parameters(zstore.create_group) == [
        "store",
        "path",
        "*",
        "zarr_format",
        "attributes",
        "overwrite",
        "storage_options",
        "missing",
        "durable",
    ]


def test_arrays_have_what_arrays_have():
    names = {name for name in dir(zstore.Array) if not name.startswith("_")}
    assert names >= {
        "append",
        "attrs",
        "basename",
        "blocks",
        "chunks",
        "dims",
        "dtype",
        "fill_value",
        "info",
        "name",
        "nbytes",
        "ndim",
        "oindex",
        "path",
        "read",
        "read_only",
        "refresh",
        "resize",
        "shape",
        "shards",
        "size",
        "store",
        "vindex",
        "zarr_format",
    }
    assert parameters(zstore.Array.read) == ["self", "selection", "*", "out", "missing"]
    assert parameters(zstore.Array.append) == ["self", "data", "axis"]


@pytest.mark.parametrize("name", ["create_array", "open_array"])
def test_parameters_that_zarr_python_has_too_mean_the_same(name):
    zarr = pytest.importorskip("zarr", reason="compared with zarr-python")
    theirs = set(parameters(getattr(zarr, name)))
    ours = set(parameters(getattr(zstore, name))) - {"*", "**options"}
    assert ours - theirs <= {
        "checksum",
        "mode",
        "zarr_format",
        "path",
        "storage_options",
        "allow_pickle",
        "missing",
        "durable",
        "above",
    }


def modules() -> list[str]:
    return [
        module.name
        for module in pkgutil.walk_packages(zstore.__path__, "zstore.")
        if not module.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", modules())
def test_what_a_module_offers_exists_and_has_a_docstring(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    assert module.__doc__, name
    # What a module offers begins without "_"; `__all__` says it where users import from the module.
    for offered in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
        value = getattr(module, offered)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or value.__module__ != name:
            continue
        assert value.__doc__, f"{name}.{offered}"


@pytest.mark.parametrize(
    "name", ["nodes.array.Array", "nodes.group.Group", "storage.base.Store", "codecs.base.BytesCodec"]
)
def test_every_public_member_has_a_docstring(name):
    module, _, kind = name.rpartition(".")
    value = getattr(importlib.import_module(f"zstore.{module}"), kind)
    for member, function in inspect.getmembers(value):
        if not member.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            assert inspect.getdoc(function), member


@pytest.mark.types
def test_types_of_compiled_modules_are_those_of_the_stubs(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    allowed = tmp_path / "allowed"
    # Cython's own: for pickling, and for doctests.
    allowed.write_text(
        "".join(
            rf"zstore\._ext\.\w+\.\w+\.(\w+\.)?__{name}__" + "\n"
            for name in ("reduce_cython", "setstate_cython", "test")
        )
    )
    command = [
        sys.executable,
        "-m",
        "mypy.stubtest",
        *KERNELS,
        "--allowlist",
        str(allowed),
        "--ignore-unused-allowlist",
    ]
    environment = {"PYTHONPATH": str(SOURCE), "MYPYPATH": str(SOURCE), "PATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.types
def test_a_users_script_runs_and_its_types_are_checked(tmp_path):
    script = Path(__file__).with_name("typed_script.py")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MYPYPATH": str(SOURCE)}
    checking = ["-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    for command in ([script, tmp_path / "s"], [*checking, script]):
        if command[0] == "-m" and importlib.util.find_spec("mypy") is None:
            pytest.skip("mypy is not installed")
        result = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_arrays_can_be_pickled(tmp_path):
    for mode in ("r", "r+"):
        array = zstore.open_array(LocalStore(tmp_path), f"a{mode}", "a", shape=(5,), dtype="f4", chunks=(2,))
        array[...] = 1.5
        again = pickle.loads(pickle.dumps(zstore.open_array(tmp_path, f"a{mode}", mode)))
        np.testing.assert_array_equal(again[...], array[...])
        assert again == array
        assert again.read_only == (mode == "r")


def test_errors_can_be_pickled_and_caught_by_the_built_in_kinds():
    from zstore import errors

    kinds = {
        "NotFoundError": LookupError,
        "MetadataError": ValueError,
        "SelectionError": IndexError,
        "StoreError": OSError,
        "ReadOnlyError": OSError,
        "UnknownExtensionError": LookupError,
    }
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, Warning):
            continue
        assert issubclass(kind, kinds.get(name, errors.ZstoreError))
        error = kind("went wrong", path="p", key="k", codec="c", offset=3)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert "went wrong" in str(error)
        assert "'k'" in str(error)


def test_the_header_is_where_get_include_says():
    assert (Path(zstore.get_include()) / "zstore_codec.h").is_file()


def test_set_threads():
    from zstore.engine.schedulers import thread_count

    try:
        zstore.set_threads(3)
        assert thread_count() == 3
        with pytest.raises(ValueError, match="0"):
            zstore.set_threads(0)
    finally:
        zstore.set_threads(None)
    assert thread_count() >= 1


FORMER = {
    "zstore.integrations.zarr_python": "zstore.guests.zarr_python",
    "zstore.integrations.rasters.raster": "zstore.geo.rasters.raster",
    "zstore.conventions.read": "zstore.geo.conventions.read",
    "zstore.conventions.model": "zstore.geo.conventions.base",
    "zstore.model.fill": "zstore.model.dtype",
    "zstore.base.settings": "zstore.base.limits",
    "zstore.validation.fixing.fix": "zstore.geo.validation.fixing.fix",
    "zstore.upkeep.copy": "zstore.jobs.upkeep.copy",
    "zstore.report.notebook": "zstore.geo.report.notebook",
}
# Each in a process of its own, which has imported nothing but the package and numpy.
FORKS = """
import os, sys
import numpy, zstore

def check(former, present):
    names = {}
    exec(f"import {former} as former, {present} as present", names)
    former, module = names["former"], names["present"]
    assert former is module and module.__spec__.name == present == module.__name__

def is_right(*names):
    child = os.fork()
    if not child:
        try:
            check(*names)
        except BaseException as error:
            print(*names, repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

sys.exit(not all([is_right(*names) for names in FORMER.items()]))
"""


def test_former_names_of_modules_give_the_same_modules():
    program = f"FORMER = {FORMER}\n{FORKS}"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_long_calls_do_without_docstrings():
    program = "import zstore; assert [zstore.copy, zstore.convert, zstore.build_pyramid, zstore.verify]"
    subprocess.run([sys.executable, "-OO", "-c", program], check=True)


def test_the_surface_is_the_one_that_is_kept():
    now, kept = surface.surface(), surface.KEPT.read_text().splitlines()
    assert surface.difference(kept, now) == [], "`python tools/surface.py --write`, and a word in changes/"


def test_a_name_that_is_gone_is_told_of(tmp_path, monkeypatch, capsys):
    """A planted break fails until changes/ says so; a new name does not."""

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    (tmp_path / "docs").mkdir()
    (tmp_path / "changes").mkdir()
    (tmp_path / "docs/surface.txt").write_text("zstore.a(x)\nzstore.b\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "before")
    monkeypatch.setattr(surface, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["surface.py", "--since", "HEAD"])
    monkeypatch.setattr(surface, "surface", lambda: ["zstore.a(x)", "zstore.b", "zstore.c"])
    assert surface.main() == 0
    assert capsys.readouterr().out == "+zstore.c\n"
    monkeypatch.setattr(surface, "surface", lambda: ["zstore.a(x, y)", "zstore.b"])
    assert surface.main() == 1
    said = capsys.readouterr()
    assert said.out == "-zstore.a(x)\n+zstore.a(x, y)\n"
    assert "changes/*.changed.md" in said.err
    (tmp_path / "changes/a.changed.md").write_text("`a` takes `y`.")
    git("add", ".")
    assert surface.main() == 0
