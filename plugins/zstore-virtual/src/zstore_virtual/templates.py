"""The templates of kerchunk's references, filled in by a small grammar: nothing in them is executed.

Between "{{" and "}}" stands a name, a number, a text, an arithmetic expression of these (+ - * // % and
brackets), or a call of a template with named values: "{{f(c='text')}}".

Spec
    kerchunk "References specification", version 1.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from zstore.errors import MetadataError, UnsupportedError

__all__ = ["Template", "Value"]

Value = int | str
FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# The longest expression, the longest text that a template makes, and the largest number.
MOST_EXPRESSION, MOST_TEXT, MOST_NUMBER = 200, 8192, 1 << 62
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Template:
    """A text with fields, parsed once and filled in often.

    Raises
        MetadataError: the text is too long.
        UnsupportedError: a field is outside the grammar.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MOST_TEXT:
            raise MetadataError(f"a template has {len(text)} characters; expected {MOST_TEXT} at most")
        if "{%" in text or "{#" in text:
            raise UnsupportedError(f"the template {text!r} has a statement; expected fields in {{{{ }}}}")
        parts = FIELD.split(text)
        self._parts: list[str | ast.expr] = [*parts]
        for k in range(1, len(parts), 2):
            self._parts[k] = _parse(parts[k])

    def fill(self, values: Mapping[str, Value | Template]) -> str:
        """The text with its fields filled in.

        Raises
            MetadataError: a name has no value, an operation is not possible, or the text is too long.
        """
        text = "".join(
            part if isinstance(part, str) else str(_evaluate(part, values)) for part in self._parts
        )
        if len(text) > MOST_TEXT:
            raise MetadataError(f"a template makes {len(text)} characters; expected {MOST_TEXT} at most")
        return text


def _parse(text: str) -> ast.expr:
    text = text.strip()
    try:
        if len(text) > MOST_EXPRESSION:
            raise ValueError(f"it has {len(text)} characters")
        expression = ast.parse(text, mode="eval").body
        _check(expression)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedError(
            f"the template expression {text[:80]!r} is not supported ({error}); expected names, numbers, "
            "texts, + - * // % and calls of templates"
        ) from None
    return expression


def _check(node: ast.expr) -> None:
    """Raise ValueError where an expression has something that the grammar lacks."""
    if isinstance(node, ast.Name):
        return
    if isinstance(node, ast.Constant) and type(node.value) in (int, str):
        return
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        _check(node.left)
        _check(node.right)
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        for keyword in node.keywords:
            if keyword.arg is None:
                raise ValueError("** in a call")
            _check(keyword.value)
        return
    raise ValueError(type(node).__name__)


def _evaluate(node: ast.expr, values: Mapping[str, Value | Template]) -> Value:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int | str)
        return node.value
    if isinstance(node, ast.Name):
        named = _named(node.id, values)
        # A template that is named without a call is given no values.
        return named.fill({}) if isinstance(named, Template) else named
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        called = _named(node.func.id, values)
        if not isinstance(called, Template):
            raise MetadataError(f"{node.func.id!r} is called, but is not a template with fields")
        return called.fill({k.arg or "": _evaluate(k.value, values) for k in node.keywords})
    if isinstance(node, ast.UnaryOp):
        return -_number(node.operand, values)
    assert isinstance(node, ast.BinOp)
    try:
        number = OPERATORS[type(node.op)](_number(node.left, values), _number(node.right, values))
    except ZeroDivisionError:
        raise MetadataError("a template divides by zero") from None
    if abs(number) > MOST_NUMBER:
        raise MetadataError("a template makes a number beyond 2^62")
    return number


def _number(node: ast.expr, values: Mapping[str, Value | Template]) -> int:
    found = _evaluate(node, values)
    if not isinstance(found, int):
        raise MetadataError(f"a template computes with {found!r}; expected a number")
    return found


def _named(name: str, values: Mapping[str, Value | Template]) -> Value | Template:
    if name not in values:
        raise MetadataError(f"a template names {name!r}; expected one of {sorted(values)}")
    return values[name]
