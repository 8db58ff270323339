"""A group and what is below it, drawn as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zstore.errors import ZstoreError
from zstore.model.array import ArrayModel

if TYPE_CHECKING:
    from zstore.nodes.group import Group

__all__ = ["Tree"]


class Tree:
    """A group and what is below it, drawn as text. A member that cannot be read shows why."""

    __slots__ = ("_text",)

    def __init__(self, group: Group, level: int | None = None) -> None:
        lines = [group.name]
        _draw(group, "", level, lines)
        self._text = "\n".join(lines)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


def _draw(group: Group, indent: str, level: int | None, lines: list[str]) -> None:
    if level is not None and level < 1:
        return
    members = list(group._loaders())
    for index, (name, load) in enumerate(members):
        branch, further = ("└── ", "    ") if index == len(members) - 1 else ("├── ", "│   ")
        try:
            model = load()
        except ZstoreError as error:
            lines.append(f"{indent}{branch}{name} ({error.message})")
            continue
        if isinstance(model, ArrayModel):
            lines.append(f"{indent}{branch}{name} {model.shape} {model.dtype}")
            continue
        lines.append(f"{indent}{branch}{name}")
        below = type(group)(group.store, f"{group.path}/{name}".lstrip("/"), model, read_only=group.read_only)
        _draw(below, indent + further, None if level is None else level - 1, lines)
