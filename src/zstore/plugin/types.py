"""Data types: the class that a maker gives, and the rules of fill values."""

from __future__ import annotations

from zstore.model.dtype import DataType, DataTypeMaker, refuse_configuration
from zstore.model.fill import IntegerFill

__all__ = [
    "DataType",
    "DataTypeMaker",
    "IntegerFill",
    "refuse_configuration",
]
