"""Words of docstrings and names of classes in the package; `python tools/words.py` prints offences.

A first line says what one gets, by the field's nouns: it begins with none of "what", "who" and "where" in the
place of a noun. A class has a name that no other one has. `tests/test_architecture.py` enforces both.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["FirstLine", "first_lines", "riddles", "same_names", "vague_words"]

SOURCE = Path(__file__).parents[1] / "src"

# A clause in the place of a noun: "What a job reads", "of what is stored", "Where the chunks lie".
CLAUSES = re.compile(
    r"^(What|Who|Whoever|Whatever|Where|Which|How|That)\b"
    r"|\bwhat (a|all|an|is|it|one|others|that|the|there|they|was|were)\b"
    r"|\bthat (there are|is there)$"
)
VAGUE = ("found", "given", "known", "part", "place", "stated")
# Modules that repeat another library's names on purpose.
REPEATED = ("zstore/guests/numcodecs.py", "zstore/zarr/")


class FirstLine(NamedTuple):
    """The first line of a docstring: the file below the source, the line's number, the name, and the text."""

    path: str
    line: int
    name: str
    text: str


def first_lines(source: Path = SOURCE) -> Iterator[FirstLine]:
    """The first line of every docstring of a module, a class or a function."""
    for path in sorted(source.rglob("*.py")):
        for _, line, name, text in _definitions(path.read_text()):
            if text:
                yield FirstLine(str(path.relative_to(source)), line, name, text)


@cache
def _definitions(text: str) -> list[tuple[bool, int, str, str]]:
    """The modules, classes and functions of a text.

    Of each: whether it is a class, the line below its head, its name ("" for the module), and the first line
    of its docstring ("" where it has none).
    """
    return [
        (
            isinstance(node, ast.ClassDef),
            node.body[0].lineno,
            getattr(node, "name", ""),
            said.partition("\n")[0],
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body
        for said in [ast.get_docstring(node) or ""]
    ]


def riddles(source: Path = SOURCE) -> list[FirstLine]:
    """The first lines with a clause in the place of a noun."""
    return [each for each in first_lines(source) if CLAUSES.search(each.text)]


def same_names(source: Path = SOURCE) -> dict[str, list[str]]:
    """The names that several classes have, each with the files of these classes."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        short = str(path.relative_to(source))
        for is_class, _, name, _ in _definitions(path.read_text()) if not short.startswith(REPEATED) else ():
            if is_class:
                files[name].append(short)
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def vague_words(source: Path = SOURCE) -> Counter[str]:
    """The number of vague words in first lines."""
    words = Counter(word for each in first_lines(source) for word in re.findall(r"\w+", each.text.lower()))
    return Counter({word: words[word] for word in VAGUE})


def main() -> None:
    """Print the offences, and the number of vague words."""
    for path, line, name, text in riddles():
        print(f"{path}:{line} {name}: {text}")
    for name, paths in same_names().items():
        print(f"{name}: {', '.join(paths)}")
    print(", ".join(f"{word} {count}" for word, count in vague_words().items()))


if __name__ == "__main__":
    main()
