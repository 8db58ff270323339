"""Prints what others may call: names, signatures and options; and how that differs from an earlier state.

`python tools/surface.py` prints one line for each name, `--write` keeps them in docs/surface.txt, and
`--since REF` prints the lines that git's REF had otherwise. It fails where one is gone or changed, and no
file of changes/ says so.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "surface.txt"
# Modules that anybody may import, and those of plugins.
MODULES = ("zstore", "zstore.aio", "zstore.errors", "zstore.zarr")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
TELLING = ("*.changed.md", "*.removed.md")


def surface() -> list[str]:
    """A line for each public name, sorted."""
    plugin = importlib.import_module("zstore.plugin")
    found = [f"zstore.plugin.{module.name}" for module in pkgutil.iter_modules(plugin.__path__)]
    lines = {line for name in (*MODULES, "zstore.plugin", *found) for line in _of_module(name)}
    return sorted(lines | set(_commands()))


def _of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    for item in getattr(module, "__all__", None) or _own_names(module):
        value = getattr(module, item)
        yield from _of_value(f"{name}.{item}", value)


def _own_names(module: Any) -> list[str]:
    """The public names that a module without `__all__` defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _of_value(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"{name}: module"
    elif get_origin(value) is not None:
        yield f"{name}: type"
    elif inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"{name}: class({bases})"
        yield f"{name}{_signature(value)}"
        for member, item in inspect.getmembers(value):
            if not member.startswith("_") and (item is None or not _is_foreign(item)):
                yield _of_member(f"{name}.{member}", inspect.getattr_static(value, member))
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _is_foreign(item: Any) -> bool:
    """Whether a member comes from Python itself, as those of exceptions and tuples do."""
    home = getattr(item, "__objclass__", None) or getattr(item, "__self__", None)
    is_built_in = type(item).__name__ == "builtin_function_or_method"
    return is_built_in or getattr(home, "__module__", None) == "builtins"


def _of_member(name: str, item: Any) -> str:
    if isinstance(item, property) or not callable(getattr(item, "__func__", item)):
        return f"{name}: attribute"
    return f"{name}{_signature(getattr(item, '__func__', item))}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return ADDRESS.sub("", str(plain))


def _commands() -> Iterator[str]:
    """The options and arguments of zstore's own commands."""
    from zstore.extensions.builtin import COMMANDS
    from zstore.extensions.registry import commands

    for offer in COMMANDS:
        for parameter in commands.resolve(offer.name).params:
            is_option = parameter.param_type_name == "option"
            names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
            yield f"zstore {offer.name} {' '.join(names)}"


def difference(old: list[str], new: list[str]) -> list[str]:
    """The lines that are gone, with "-" before them, and the new ones, with "+"."""
    found = difflib.unified_diff(old, new, lineterm="", n=0)
    return [line for line in found if line[0] in "+-" and not line.startswith(("+++", "---"))]


def since(ref: str) -> tuple[list[str], bool]:
    """How the surface differs from git's `ref`, and whether what is gone or changed is told in changes/."""
    git = ["git", "-C", str(ROOT)]

    def lines_of(*words: str) -> list[str]:
        return subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.splitlines()

    lines = difference(lines_of("show", f"{ref}:docs/surface.txt"), surface())
    told = lines_of("diff", "--name-only", "--diff-filter=AM", ref, "--", "changes")
    is_told = any(Path(name).match(kind) for name in told for kind in TELLING)
    return lines, is_told or not any(line.startswith("-") for line in lines)


def main() -> int:
    """Print, write or compare the surface."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--since", metavar="REF")
    asked = parser.parse_args()
    if asked.write:
        KEPT.write_text("\n".join(surface()) + "\n")
        return 0
    lines, is_told = since(asked.since) if asked.since else (surface(), True)
    print("\n".join(lines))
    if not is_told:
        expected = "expected a file changes/*.changed.md or *.removed.md"
        print(f"names are gone or changed; {expected}", file=sys.stderr)
    return 0 if is_told else 1


if __name__ == "__main__":
    sys.exit(main())
