"""Data types: the class to inherit from, and the rules of fill values."""

from __future__ import annotations

from zstore.model.dtype import DataType, DataTypeMaker, IntegerFill, refuse_configuration

__all__ = [
    "DataType",
    "DataTypeMaker",
    "IntegerFill",
    "refuse_configuration",
]
