"""Expressions of bands, such as "(B5 - B4) / (B5 + B4)": a small grammar, of which Python runs nothing.

expression  sum, or sum ("<" | "<=" | ">" | ">=" | "==" | "!=") sum
sum         term (("+" | "-") term)*
term        factor (("*" | "/") factor)*
factor      ("+" | "-") factor, or atom ("**" factor)?
atom        number, band, 'band with other characters', function "(" expression, … ")", "(" expression ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zstore_serve.problems import Problem

__all__ = ["Expression", "parse_expression"]

Values = np.ndarray[Any, np.dtype[np.float64]]

LONGEST = 512
DEEPEST = 32
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)(?![\w.])|(?P<name>[^\W\d][\w.:]*)|'(?P<quoted>[^']+)'"
    r"|(?P<sign>\*\*|<=|>=|==|!=|[-+*/(),<>]))"
)
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, np.abs),
    "sqrt": (1, np.sqrt),
    "log": (1, np.log),
    "log10": (1, np.log10),
    "exp": (1, np.exp),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "hypot": (2, np.hypot),
    # Which of the two it would be is not known where the test is missing.
    "where": (3, lambda test, one, other: np.where(np.isnan(test), np.nan, np.where(test != 0, one, other))),
}
OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


@dataclass(frozen=True)
class Expression:
    """An expression: the names of its bands, and the function that computes it from their values."""

    bands: tuple[str, ...]
    compute: Callable[[Mapping[str, Values]], Any]

    def __call__(self, values: Mapping[str, Values]) -> Values:
        """The result for these values of the bands; NaN where there is none, as of a division by 0."""
        with np.errstate(all="ignore"):
            made = np.asarray(self.compute(values), np.float64)
        shape = next(iter(values.values())).shape
        return np.where(np.isfinite(made), made, np.nan) + np.zeros(shape)


def parse_expression(text: str) -> Expression:
    """The expression that `text` is.

    Raises
        Problem: the text is no expression, or a too long one.
    """
    if len(text) > LONGEST:
        raise Problem(400, f"expression has {len(text)} characters; expected {LONGEST} at most")
    parser = _Parser(text)
    compute = parser.comparison(0)
    if parser.tokens:
        raise Problem(
            400, f"expression goes on with {parser.tokens[0][1]!r}; expected an operator or its end"
        )
    if not parser.bands:
        raise Problem(400, "expression names no band")
    return Expression(tuple(dict.fromkeys(parser.bands)), compute)


class _Parser:
    """Parses tokens from the left; each method of the grammar gives a function of the bands' values."""

    def __init__(self, text: str) -> None:
        self.bands: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise Problem(
                    400,
                    f"expression has {text[at : at + 10]!r}; expected a band, number or operator",
                )
            kind = str(found.lastgroup)
            self.tokens.append((kind, found[kind]))
            at = found.end()

    def comparison(self, depth: int) -> Callable[[Any], Any]:
        left = self._chain(("+", "-"), lambda: self._chain(("*", "/"), lambda: self._factor(depth)))
        sign = self._sign("<", "<=", ">", ">=", "==", "!=")
        if sign is None:
            return left
        right = self._chain(("+", "-"), lambda: self._chain(("*", "/"), lambda: self._factor(depth)))
        operate = OPERATORS[sign]

        def compute(values: Any) -> Any:
            # Each side is computed once: twice would double the work at every depth of nesting.
            one, other = left(values), right(values)
            # A comparison with NaN is NaN, not false.
            return np.where(np.isnan(one) | np.isnan(other), np.nan, operate(one, other))

        return compute

    def _sign(self, *wanted: str) -> str | None:
        if self.tokens and self.tokens[0][0] == "sign" and self.tokens[0][1] in wanted:
            return self.tokens.pop(0)[1]
        return None

    def _expect(self, sign: str) -> None:
        if self._sign(sign) is None:
            found = repr(self.tokens[0][1]) if self.tokens else "its end"
            raise Problem(400, f"expression has {found} where {sign!r} is expected")

    def _chain(
        self, signs: tuple[str, ...], operand: Callable[[], Callable[[Any], Any]]
    ) -> Callable[[Any], Any]:
        steps = [(OPERATORS["+"], operand())]
        while (sign := self._sign(*signs)) is not None:
            steps.append((OPERATORS[sign], operand()))

        def compute(values: Any) -> Any:
            made = steps[0][1](values)
            for operate, take in steps[1:]:
                made = operate(made, take(values))
            return made

        return compute

    def _factor(self, depth: int) -> Callable[[Any], Any]:
        if depth > DEEPEST:
            raise Problem(400, f"expression is nested more than {DEEPEST} deep")
        sign = self._sign("+", "-")
        if sign is not None:
            inner = self._factor(depth + 1)
            return inner if sign == "+" else lambda values: np.negative(inner(values))
        base = self._atom(depth)
        if self._sign("**") is None:
            return base
        power = self._factor(depth + 1)
        return lambda values: np.power(base(values), power(values))

    def _atom(self, depth: int) -> Callable[[Any], Any]:
        if not self.tokens:
            raise Problem(400, "expression ends where a number or a band is expected")
        if self._sign("(") is not None:
            inner = self.comparison(depth + 1)
            self._expect(")")
            return inner
        kind, text = self.tokens.pop(0)
        if kind == "number":
            number = np.float64(text)
            return lambda values: number
        if kind == "sign":
            raise Problem(400, f"expression has {text!r} where a number or a band is expected")
        if kind == "name" and self._sign("(") is not None:
            return self._call(text, depth)
        self.bands.append(text)
        return lambda values: values[text]

    def _call(self, name: str, depth: int) -> Callable[[Any], Any]:
        if name not in FUNCTIONS:
            raise Problem(400, f"no function {name[:80]!r}; there are {', '.join(FUNCTIONS)}")
        count, function = FUNCTIONS[name]
        taken = [self.comparison(depth + 1)]
        while self._sign(",") is not None:
            taken.append(self.comparison(depth + 1))
        self._expect(")")
        if len(taken) != count:
            raise Problem(400, f"{name} has {len(taken)} arguments; expected {count}")
        return lambda values: function(*(take(values) for take in taken))
