"""The examples of zarr-python's user guide and docstrings with the one import changed, beside zarr-python.

    python tools/zarr_examples.py 3.4.2     from the source distribution of that version; as `parity.py`
    python tools/zarr_examples.py 3.4.2 all prints statements that differ for a known reason, too

Each statement runs in both libraries, in two processes of their own; what it prints and gives is compared
without addresses in memory. zarr-python's run is made twice: where its own results differ (times, random
names), only whether it runs is compared. Where a statement fails in both, it is counted apart. The exit code
is 1 where fewer than 95 % of the others behave alike.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^( *)```python([^\n]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SESSION = re.compile(r'session="([^"]*)"')
# What nobody can run here: blocks that say so, and those that read a bucket or need a GPU.
LEFT_OUT = re.compile(r'exec="false"|markers=|noaa-nwm')
NOISE = [
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"memory://\d+"), "memory://N"),
    # What zarr-python calls a store in memory that has a name.
    (re.compile(r"<FsspecStore\(AsyncFileSystemWrapper, /([\w-]+)\)>"), r"memory://\1"),
    # How objects without a text of their own are shown.
    (re.compile(r"<[\w.]+ object at 0x>"), "<object>"),
    (re.compile(r"\d+\.\d+s\b|(?<=took )\S+|(?<=Speedup is )\S+"), "TIME"),
    (re.compile(r"\bzarr\.(core|storage|codecs)\.[\w.]*\."), ""),
    (re.compile(r"\bzstore\.(zarr|nodes)\.[\w.]*\."), ""),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]
FLOOR = 0.95

# Why a statement behaves otherwise, by a pattern that its text or difference has.
REASONS = {
    r"info\[|cached_keys": "documents that are kept have other white space",
    r"subchunk_write_order": "shards have no order of inner chunks to be told",
    r"'default_zarr_format'": "the settings are not all the same",
    r"Store type": "a store in memory that has a name is of another class",
    r"endian=None": "items of one byte have a byte order in zstore's documents of shards",
    r"grandchild": "a group that can be written to reads the store, not its parent's consolidated metadata",
    r"A group exists in store": "errors have zstore's words",
    r"No\. bytes stored|Storage ratio": "documents have other white space, and streams other sizes",
    r"_store_dict|parse_store_url|_iter_grid|_iter_regions": "a name of zarr-python's inside",
}


def statements(source: Path) -> list[dict[str, str]]:
    """The statements in order: where they stand, their session, and their text; `source` is unpacked."""
    found = []
    guide = [source / "docs" / "quick-start.md", *sorted((source / "docs" / "user-guide").rglob("*.md"))]
    for page in guide:
        for number, (_, options, text) in enumerate(BLOCK.findall(page.read_text())):
            if LEFT_OUT.search(options) or LEFT_OUT.search(text):
                continue
            name = SESSION.search(options)
            session = f"{page.stem}:{name[1] if name else number}"
            found += [{"session": session, "module": "", "text": one} for one in _split(text)]
    for path in sorted((source / "src" / "zarr").rglob("*.py")):
        module = ".".join(path.relative_to(source / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            examples = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
            session = f"{module}:{node.name}:{node.lineno}"
            found += [{"session": session, "module": module, "text": one.source} for one in examples]
    return found


def _split(text: str) -> list[str]:
    """The statements of a block, which may be indented."""
    import textwrap

    text = textwrap.dedent(text)
    return [ast.get_source_segment(text, node) or "" for node in ast.parse(text).body]


def renamed(text: str, library: str) -> str:
    """A statement with the import changed."""
    if library == "zarr":
        return text
    text = re.sub(r"^(\s*)import zarr$", rf"\1import {library} as zarr", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(\s*)import zarr\.([\w.]+)$", rf"\1import {library}.\2; import {library} as zarr", text, flags=re.M
    )
    text = re.sub(r"^(\s*)import zarr\.([\w.]+) as", rf"\1import {library}.\2 as", text, flags=re.MULTILINE)
    return re.sub(r"^(\s*)from zarr\b", rf"\1from {library}", text, flags=re.MULTILINE)


def names_of(module: str, library: str) -> dict[str, Any]:
    """The names that an example in a module's docstrings has, as doctest gives them."""
    parts = module.split(".")[1:]
    while module:
        try:
            return dict(vars(importlib.import_module(".".join([library, *parts]))))
        except ImportError:
            if library == "zarr" or not parts:
                return {}
            parts = parts[:-1]
    return {}


def run(library: str, listed: list[dict[str, str]]) -> list[dict[str, str]]:
    """The result of each statement: what it printed and gave, or the error."""
    import numpy as np

    warnings.simplefilter("ignore")
    spaces: dict[str, dict[str, Any]] = {}
    results = []
    for one in listed:
        if one["session"] not in spaces:
            np.random.seed(0)
            spaces[one["session"]] = {**names_of(one["module"], library), "__name__": "example"}
            spaces[one["session"]] |= {"np": np, "zarr": importlib.import_module(library)}
        results.append(_step(renamed(one["text"], library), spaces[one["session"]]))
    return results


def _step(text: str, names: dict[str, Any]) -> dict[str, str]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            tree = ast.parse(text)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "example", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "example", "eval"), names) if last else None
            shown = repr(value)
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        return {"error": f"{kinds[0]}", "words": f"{type(error).__name__}: {error}"[:300]}
    return {"printed": _quiet(printed.getvalue()), "value": _quiet(shown)}


def _quiet(text: str) -> str:
    for pattern, put in NOISE:
        text = pattern.sub(put, text)
    return text.strip()[:5000]


def compare(listed: Any, ours: Any, theirs: Any, again: Any) -> tuple[Counter[str], list[str]]:
    """The numbers of statements by outcome, and a line for each that differs."""
    counts, lines = Counter[str](), []
    broken: dict[str, str] = {}
    for one, mine, other, second in zip(listed, ours, theirs, again, strict=True):
        if "error" in other and "error" in second:
            outcome = "in neither" if "error" in mine else "alike"
        elif other != second:
            outcome = "alike" if "error" not in mine else "otherwise"
        else:
            outcome = "alike" if mine == other else "otherwise"
        if outcome == "otherwise":
            said = f"{one['text']}\n{mine}\n{other}"
            reason = next((why for pattern, why in REASONS.items() if re.search(pattern, said)), None)
            if reason is None and mine.get("error") == "NameError":
                reason = broken.get(one["session"])
            if reason and "error" in mine:
                broken[one["session"]] = reason
            lines.append(
                f"{reason or 'NO REASON'}  {one['session']}\n    {one['text']}\n    {mine}\n    {other}"
            )
            outcome = "otherwise, with a reason" if reason else "otherwise, without one"
        counts[outcome] += 1
    return counts, lines


def main(version: str, *words: str) -> int:
    """Run the examples of a version in both, and print how many behave alike."""
    import parity

    python, source = parity.prepare("zarr", version)
    this = Path(__file__).resolve()

    def child(interpreter: Any, *asked: str) -> Any:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "out.json"
            folder = Path(place) / "work"
            folder.mkdir()
            env = {**os.environ, "EXAMPLES": str(source.parent / "examples.json")}
            subprocess.run([interpreter, this, *asked, out], check=True, cwd=folder, env=env)
            return json.loads(out.read_text())

    listed = child(python, "--list", source)
    (source.parent / "examples.json").write_text(json.dumps(listed))
    theirs, again = (child(python, "--run", "zarr") for _ in range(2))
    counts, lines = compare(listed, child(sys.executable, "--run", "zstore.zarr"), theirs, again)
    print(*(line for line in lines if "all" in words or line.startswith("NO REASON")), sep="\n")
    for reason, count in Counter(line.split("  ")[0] for line in lines).items():
        print(f"{count:5} otherwise: {reason}")
    both = sum(counts.values()) - counts["in neither"]
    share = counts["alike"] / both
    print(f"zarr-python {version}: {len(listed)} statements, {dict(counts)}: {share:.1%} of {both} alike")
    return int(share < FLOOR)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        Path(sys.argv[3]).write_text(json.dumps(statements(Path(sys.argv[2]))))
    elif sys.argv[1:2] == ["--run"]:
        examples = json.loads(Path(os.environ["EXAMPLES"]).read_text())
        Path(sys.argv[3]).write_text(json.dumps(run(sys.argv[2], examples)))
    elif len(sys.argv) < 2:
        raise SystemExit(__doc__)
    else:
        raise SystemExit(main(*sys.argv[1:]))
