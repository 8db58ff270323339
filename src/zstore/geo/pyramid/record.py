"""The record in a pyramid's attributes: how it was built, and which of its levels are being updated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.pyramid.dataset import place_of
from zstore.nodes.group import Group

# The attribute of a pyramid's group, and of its levels' groups, that is zstore's own.
MEMBER = "zstore"
# Members of a record that may be None.
OPTIONAL = ("finest", "profile", "resampling", "affine")

Record = dict[str, Any]


def read_record(group: Group) -> Record | None:
    """The record of how a pyramid was built; None where it has none.

    Raises
        MetadataError: there is something else in its place.
    """
    held = group.attrs.get(MEMBER)
    record = held.get("pyramid") if isinstance(held, Mapping) else None
    if record is None:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("variables"), dict):
        raise MetadataError(
            f"attribute {MEMBER!r} holds {record!r}; expected a pyramid's record", path=place_of(group)
        )
    variables = {name: {"nodata": None, **entry} for name, entry in record["variables"].items()}
    return {**dict.fromkeys(OPTIONAL), **record, "variables": variables}


def _without_nulls(record: Mapping[str, Any]) -> Record:
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if value is not None
    }


def join_member(held: Any, added: Mapping[str, Any]) -> dict[str, Any]:
    """The attribute's value with `added` in it; what is None is left out."""
    return {**(held if isinstance(held, Mapping) else {}), **_without_nulls(added)}


def mark_levels(group: Group, levels: Sequence[str], build: str, state: str | None) -> None:
    """Write into every level which build its cells are of, and `state` while that build is not complete."""
    for level in levels:
        attributes = group[level].attrs
        held = attributes.get(MEMBER)
        kept = {k: v for k, v in held.items() if k != "state"} if isinstance(held, Mapping) else {}
        attributes.update({MEMBER: join_member(kept, {"build": build, "state": state})})


def name_build(plan: Any, former: str) -> str:
    """The name of a build: another one for another plan, or after another build."""
    text = json.dumps([plan, former], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def number_of(value: Any) -> Any:
    """A number in a form that JSON can hold."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) else value
    return str(plain) if isinstance(plain, float) and not isfinite(plain) else plain


def number_from(value: Any) -> Any:
    """The number that `number_of` made this of."""
    return float(value) if isinstance(value, str) else value
