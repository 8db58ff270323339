"""Every rule by its id."""

from __future__ import annotations

from zstore.geo.validation.rule import RULES, Rule
from zstore.geo.validation.rules import documents, georeference, pyramids, values

__all__ = ["THEMES", "all_rules"]

THEMES = (documents, georeference, pyramids, values)
PREFIXES = ("GZ", "MS", "OC", "ZC", "GC", "OME", "ZS")


def all_rules() -> dict[str, Rule]:
    """Every rule by its id, in the order of the documents that require it."""
    return dict(sorted(RULES.items(), key=lambda item: _rank(item[0])))


def _rank(id: str) -> tuple[int, str]:
    prefix = id.partition("-")[0]
    return (PREFIXES.index(prefix) if prefix in PREFIXES else len(PREFIXES), id)
