"""Functions of items, place by place: numpy's, casts, unpacking, and those of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from zstore.errors import UnsupportedError
from zstore.views.steps import Function, Items

# numpy's functions, beside its ufuncs, that make each item from the items at the same place.
BY_PLACE = ("angle", "clip", "imag", "isclose", "isin", "nan_to_num", "real", "round", "where")


class Input(NamedTuple):
    """The items of an input, by its number, among the arguments of a function."""

    number: int


@dataclass(frozen=True, eq=False)
class Call(Function):
    """A function called with the inputs' items and with constants.

    function   one of numpy's, or of a user's, which then gets blocks of any shape
    arguments  in order, `Input` for the items of an input
    options    by keyword
    output     which of several results is taken
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()
    output: int | None = None

    def __call__(self, inputs: Sequence[Items], out: Items) -> None:
        if isinstance(self.function, np.ufunc) and self.output is None and out.dtype.kind not in "OT":
            self.function(*self._arguments(inputs), **dict(self.options), out=out)
        else:
            made = np.asarray(self._result(inputs))
            if made.shape != out.shape:
                raise ValueError(
                    f"{self} made items of shape {made.shape} of a block of {out.shape}; expected the same"
                )
            out[...] = made

    def dtype(self, dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
        """The dtype of the result for inputs of these dtypes.

        Raises
            TypeError: the function takes no such items.
        """
        made: np.dtype[Any] = np.asarray(self._result([np.empty(0, dtype) for dtype in dtypes])).dtype
        return made

    def _arguments(self, inputs: Sequence[Items]) -> list[Any]:
        return [inputs[one.number] if isinstance(one, Input) else one for one in self.arguments]

    def _result(self, inputs: Sequence[Items]) -> Any:
        made = self.function(*self._arguments(inputs), **dict(self.options))
        return made if self.output is None else made[self.output]

    def __str__(self) -> str:
        return str(getattr(self.function, "__name__", self.function))


@dataclass(frozen=True)
class Across(Function):
    """One of numpy's reductions that leave NaN out, from the items that the inputs have at the same place.

    name  "nanmin", "nanmax", "nanmean" or "nanmedian"; numpy warns of places without a number, this does not
    """

    name: str

    def __call__(self, inputs: Sequence[Items], out: Items) -> None:
        if self.name == "nanmedian":
            out[...] = _median(np.stack(inputs).astype(out.dtype, copy=False))
        elif self.name == "nanmean":
            with np.errstate(all="ignore"):
                total, count = np.zeros(out.shape, np.result_type(out, "f8")), np.zeros(out.shape, np.int64)
                for one in inputs:
                    is_number = ~np.isnan(one)
                    np.add(total, one, out=total, where=is_number)
                    count += is_number
                out[...] = total / count
        else:
            choose = np.fmin if self.name == "nanmin" else np.fmax
            out[...] = inputs[0]
            for one in inputs[1:]:
                choose(out, one, out=out)

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the result for inputs of a dtype.

        Raises
            TypeError: the function takes no such items.
        """
        if dtype.kind not in "biuf":
            raise TypeError(f"numpy.{self.name} of a view does not take {dtype}; expected real numbers")
        made: np.dtype[Any] = np.asarray(getattr(np, self.name)(np.zeros((1, 1), dtype), axis=0)).dtype
        return made

    def __str__(self) -> str:
        return self.name


ACROSS = ("nanmax", "nanmean", "nanmedian", "nanmin")


def _median(items: Items) -> Items:
    """The median of the numbers along the first axis; NaN where there is none."""
    items.sort(axis=0)  # NaN last
    count = (~np.isnan(items)).sum(0)
    low, high = (np.clip(at, 0, len(items) - 1)[None] for at in ((count - 1) // 2, count // 2))
    below, above = (np.take_along_axis(items, at, 0)[0] for at in (low, high))
    made: Items = np.where(below == above, below, (below + above) / 2)
    return made


@dataclass(frozen=True)
class Cast(Function):
    """A conversion to the dtype of the result, as by numpy's `astype`."""

    def __call__(self, inputs: Sequence[Items], out: Items) -> None:
        np.copyto(out, inputs[0], casting="unsafe")

    def __str__(self) -> str:
        return "astype"


@dataclass(frozen=True)
class Unpack(Function):
    """Physical numbers from stored ones: stored · scale + offset, and NaN for those of `nodata`.

    meant  the integer dtype that stored numbers are read as; None: their own
    """

    scale: float | None
    offset: float | None
    nodata: tuple[int | float, ...]
    meant: np.dtype[Any] | None = None

    def __call__(self, inputs: Sequence[Items], out: Items) -> None:
        stored = inputs[0] if self.meant is None else inputs[0].view(self.meant)
        np.copyto(out, stored, casting="unsafe")
        if self.scale is not None:
            out *= self.scale
        if self.offset is not None:
            out += self.offset
        for number in self.nodata:
            np.copyto(out, np.nan, where=stored == number)

    def __str__(self) -> str:
        return "unpack"


def check_by_place(function: np.ufunc) -> None:
    """Check that a ufunc makes each item from the items at the same place.

    Raises
        UnsupportedError: it does not, as `numpy.matmul`.
    """
    if function.signature is not None:
        raise UnsupportedError(
            f"numpy.{function.__name__} makes items from several places; expected a function that goes place "
            "by place, or items in memory: view.read()"
        )
