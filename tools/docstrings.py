"""What the site makes of docstrings: this project's sections become bold words and lists.

A section is a line with one word on it (Shapes, Units, Raises, Spec); what is set in below it belongs to it.
Tables of names and what they mean, set with spaces, are shown as they are written.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

__all__ = ["Docstrings", "to_markdown"]

SECTIONS = {"Shapes", "Units", "Raises", "Spec"}
ROW = re.compile(r"(\S+(?:, \S+)*) {2,}(\S.*)")
# In a table: names whose meaning is below, or one so long that a single space follows it.
NAMES = re.compile(r"(\w+(?:, \w+)*)$()|(\w+) (.*)")


def to_markdown(text: str) -> str:
    """A docstring of this project's as Markdown."""
    first, _, rest = text.partition("\n")
    parts: list[str] = [first]
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(rest).strip("\n")):
        parts += _sections(paragraph)
    return "\n\n".join(part for part in parts if part.strip())


def _sections(paragraph: str) -> list[str]:
    parts: list[str] = []
    kept: list[str] = []
    for line in paragraph.split("\n"):
        if line.strip() in SECTIONS and not line.startswith(" "):
            parts.append(_block(kept))
            kept = []
            parts.append(f"**{line.strip()}**")
        else:
            kept.append(line)
    return [*parts, _block(kept)]


def _block(lines: list[str]) -> str:
    """Plain text, or rows of a name and what it means as a list."""
    text = textwrap.dedent("\n".join(lines))
    rows = text.split("\n")
    if not rows[0].strip():
        return ""
    if any(ROW.match(row) for row in rows) and not rows[0].startswith(" "):
        made = []
        for row in rows:
            found = ROW.match(row) or NAMES.match(row)
            name, said = [part for part in found.groups() if part is not None] if found else ("", "")
            made.append(f"- `{name}`: {said}".rstrip() if found else f"  {row.strip()}")
        return "\n".join(made)
    if all(re.match(r"[A-Z]\w+(, [A-Z]\w+)*: |\s", row) for row in rows):
        return "\n".join(f"- {row}" if not row.startswith(" ") else f"  {row.strip()}" for row in rows)
    return text


class Docstrings(griffe.Extension):
    """Applied to every docstring that the site collects."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of a module, a class or a function."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
