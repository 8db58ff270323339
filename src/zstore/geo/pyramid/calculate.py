"""Expressions of bands, such as "(b5 - b4) / (b5 + b4)", as views; Python runs nothing of them.

The grammar is that of Python's expressions, as far as it has names, numbers, texts, operators, comparisons
and calls of numpy's functions by name.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.geo.pyramid.dataset import PlaceLike, open_dataset
from zstore.geo.pyramid.warp import GeoGrid
from zstore.jobs.source import Source
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.open import open as open_node
from zstore.storage.base import Store
from zstore.views.view import View, unpack, view

# Characters of an expression, and calls and operators in each other.
LONGEST = 4096
DEEPEST = 100
# Besides numpy's ufuncs, by their own names.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs, "clip": np.clip, "isclose": np.isclose, "isin": np.isin, "max": np.maximum,
    "min": np.minimum, "nan_to_num": np.nan_to_num, "round": np.round, "where": np.where,
}  # fmt: skip
CONSTANTS = {"e": np.e, "inf": np.inf, "nan": np.nan, "pi": np.pi}
OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide, ast.Mod: np.remainder, ast.Pow: np.power, ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or, ast.BitXor: np.bitwise_xor, ast.LShift: np.left_shift,
    ast.RShift: np.right_shift, ast.UAdd: np.positive, ast.USub: np.negative, ast.Invert: np.invert,
    ast.Not: np.logical_not, ast.And: np.logical_and, ast.Or: np.logical_or, ast.Lt: np.less,
    ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}  # fmt: skip


def calculate(
    expression: str,
    sources: Mapping[str, Any] | Array | Group | Source | PlaceLike,
    *,
    dtype: npt.DTypeLike = "f8",
    above: bool = False,
) -> View:
    """A view of the numbers that an expression makes of arrays, band by band on one grid; no item is read.

    Names in the expression, or texts where a name is no word, are those of `sources`. Their numbers are
    physical: unpacked, NaN for nodata. `stored(name)` has them as they are stored, as bits of quality are.

    expression  operators and comparisons of Python's, and numpy's functions that go item by item:
                "where((stored(qa) & 3) == 0, (b5 - b4) / (b5 + b4), nan)"; data types cast: "uint8(b > 0.3)"
    sources     arrays, groups of one array, views and addresses by name, or a group of arrays of these names;
                of a pyramid, its finest level
    dtype       of physical numbers
    above       whether groups above the address of an array are read, whose georeference the array has

    Raises
        UnsupportedError: the expression is none, or has a word that is no function.
        NotFoundError: there is no source of a name.
        MetadataError: sources lie on different grids; a group of several arrays has one name.
    """
    if not isinstance(expression, str):
        raise UnsupportedError(f"the expression is {expression!r}; expected a text first, like 'b5 - b4'")
    if len(expression) > LONGEST:
        raise UnsupportedError(f"the expression has {len(expression)} characters; expected {LONGEST} at most")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedError(f"{expression!r} is no expression: {error}") from error
    names = _NamedViews(sources, np.dtype(dtype), above=above)
    try:
        made = _Evaluation(names).make(tree, 0)
    except (ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, ZstoreError):
            raise
        raise UnsupportedError(f"{expression!r} cannot be computed: {error}") from error
    if not isinstance(made, View):
        raise UnsupportedError(f"{expression!r} names no source; expected some of {names}")
    names.check_together(made)
    return made


def physical(shown: View, dtype: np.dtype[Any]) -> View:
    """The numbers of a view unpacked, and NaN for nodata."""
    variable = shown.carried.variable  # type: ignore[attr-defined]
    if "_Unsigned" in variable.attributes:
        return unpack(shown.sources[0], dtype=dtype)
    scale, offset, nodata = variable.scale_factor, variable.add_offset, variable.nodata
    if scale is None and offset is None and (nodata is None or nodata != nodata):
        return shown.astype(dtype)
    missing = () if nodata is None else (nodata, *variable.other_nodata)
    return shown.scale(1.0 if scale is None else scale, offset or 0.0, nodata=missing, dtype=dtype)


class _NamedViews:
    """The views that names of an expression stand for."""

    def __init__(self, sources: Any, dtype: np.dtype[Any], *, above: bool) -> None:
        self._dtype, self._above, self._views = dtype, above, dict[str, View]()
        is_mapping = isinstance(sources, Mapping) and not isinstance(sources, Group)
        self._sources: Any = sources if is_mapping else self._opened(sources)
        if not hasattr(self._sources, "get"):
            raise UnsupportedError(f"{sources!r} has no names; expected sources by name, or a group")
        if isinstance(self._sources, Group) and next(self._sources.array_keys(), None) is None:
            # The bands of a pyramid are those of its finest level.
            self._sources = open_dataset(self._sources).arrays

    def __str__(self) -> str:
        names = self._sources.array_keys() if isinstance(self._sources, Group) else self._sources
        return ", ".join(sorted(names))

    def _opened(self, source: Any) -> Any:
        is_address = isinstance(source, str | os.PathLike | Store)
        return open_node(source, mode="r", above=self._above) if is_address else source

    def stored(self, name: str) -> View:
        """The numbers as they are stored."""
        if name not in self._views:
            source = self._opened(self._sources.get(name))
            if source is None:
                raise NotFoundError(f"no source is named {name!r}; expected one of {self}")
            if isinstance(source, Group):
                dataset = open_dataset(source)
                source = dataset.arrays[dataset.only_name]
            self._views[name] = view(source)
        return self._views[name]

    def physical(self, name: str) -> View:
        """The numbers unpacked, and NaN for nodata."""
        return physical(self.stored(name), self._dtype)

    def check_together(self, made: View) -> None:
        """Check that all sources lie on one grid.

        Raises
            MetadataError: they do not.
        """
        places = {name: GeoGrid.of(one) for name, one in self._views.items() if _is_placed(one)}
        if places and not _is_placed(made):
            said = "; ".join(
                f"{name!r} {grid.crs.label}, {tuple(grid.affine)}" for name, grid in places.items()
            )
            raise MetadataError(
                f"the sources lie on different grids ({said}); expected one, as zstore.reproject gives"
            )


def _is_placed(one: View) -> bool:
    model = one.carried.model()  # type: ignore[attr-defined]
    return model is not None and model.crs is not None and model.affine is not None


class _Evaluation:
    """The results of the parts of an expression."""

    def __init__(self, names: _NamedViews) -> None:
        self._names = names

    def make(self, node: ast.AST, depth: int) -> Any:
        """The view, or the constant, that a part of an expression is."""
        if depth > DEEPEST:
            raise UnsupportedError(f"the expression is nested more than {DEEPEST} deep")
        below = depth + 1
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return node.value
        if isinstance(node, ast.Name) and node.id in CONSTANTS:
            return CONSTANTS[node.id]
        if isinstance(node, ast.Name | ast.Constant):
            return self._names.physical(_name(node))
        if isinstance(node, ast.UnaryOp):
            return _call(node.op, [self.make(node.operand, below)])
        if isinstance(node, ast.BinOp):
            return _call(node.op, [self.make(node.left, below), self.make(node.right, below)])
        if isinstance(node, ast.BoolOp):
            made = self.make(node.values[0], below)
            for one in node.values[1:]:
                made = _call(node.op, [made, self.make(one, below)])
            return made
        if isinstance(node, ast.Compare):
            sides = [self.make(one, below) for one in (node.left, *node.comparators)]
            tests = [_call(one, [*sides[at : at + 2]]) for at, one in enumerate(node.ops)]
            made = tests[0]
            for one in tests[1:]:
                made = np.logical_and(made, one)
            return made
        if isinstance(node, ast.List | ast.Tuple):
            return [self.make(one, below) for one in node.elts]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node.func.id, node.args, below)
        raise UnsupportedError(
            f"{ast.unparse(node)!r} is nothing to compute; expected names, numbers, operators, functions"
        )

    def _called(self, word: str, arguments: list[ast.expr], depth: int) -> Any:
        if word == "stored" and len(arguments) == 1:
            return self._names.stored(_name(arguments[0]))
        function: Any = FUNCTIONS.get(word, getattr(np, word, None))
        is_cast = isinstance(function, type) and issubclass(function, np.number | np.bool_)
        is_ufunc = isinstance(function, np.ufunc) and function.signature is None and function.nout == 1
        if function is None or not (is_cast or is_ufunc or word in FUNCTIONS):
            raise UnsupportedError(
                f"{word!r} is no function; expected one of numpy's that go item by item, or a data type"
            )
        count = 1 if is_cast else function.nin if is_ufunc else len(arguments)
        if len(arguments) != count:
            raise UnsupportedError(f"{word} has {len(arguments)} arguments; expected {count}")
        given = [self.make(one, depth) for one in arguments]
        if is_cast and isinstance(given[0], View):
            return given[0].astype(function)
        return function(*given)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise UnsupportedError(f"{ast.unparse(node)!r} is no name of a source; expected one")


def _call(operator: ast.AST, given: list[Any]) -> Any:
    function = OPERATORS.get(type(operator))
    if function is None:
        raise UnsupportedError(f"the operator {type(operator).__name__} is none of numbers")
    if not any(isinstance(one, View) for one in given):
        # Integers of Python's would grow without end.
        given = [np.float64(one) if type(one) is int and function is np.power else one for one in given]
        with np.errstate(all="raise"):
            return np.asarray(function(*given)).item()
    return function(*given)
