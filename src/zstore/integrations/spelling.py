"""Attributes of other formats in JSON's words: numpy's items, bytes, and numbers that JSON has not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError

__all__ = ["SpellingWarning", "spell_attributes"]


class SpellingWarning(UserWarning):
    """An attribute is written in other words than it had, because JSON has none for it."""


def spell_attributes(attributes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The attributes as JSON values; NaN and the infinities as strings, in the words of Zarr's fill values.

    Raises
        MetadataError: bytes that are no UTF-8.
    Warns
        SpellingWarning: a number became a string.
    """
    return {str(name): _spell(value, f"{where}: attribute {name!r}") for name, value in attributes.items()}


def _spell(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise MetadataError(f"{where} is {value!r}; expected text in UTF-8") from None
    if isinstance(value, Mapping):
        return {str(name): _spell(item, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spell(item, where) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        warnings.warn(SpellingWarning(f"{where} is {value}; written as the string {word!r}"), stacklevel=2)
        return word
    return value
