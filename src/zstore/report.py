"""What is to be said of an array or group at a glance: how it is cut and encoded, what it takes on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zstore.array import Array
from zstore.conventions.base import Finding
from zstore.conventions.model import GeoModel
from zstore.conventions.read import read_geo
from zstore.errors import MetadataError
from zstore.group import Group

__all__ = ["Report", "describe_codecs", "format_size", "make_report", "stored_size"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Report:
    """The arrays at and below a node by path, and where they lie, as far as anything says so."""

    arrays: Mapping[str, Array]
    geo: GeoModel | None
    findings: tuple[Finding, ...]


def make_report(node: Array | Group) -> Report:
    """What there is to say of `node`."""
    if isinstance(node, Array):
        arrays = {node.basename: node}
        is_grid = node.ndim > 1
    else:
        arrays = {path: m for path, m in node.members(None) if isinstance(m, Array)}
        is_grid = True
    try:
        geo, findings = read_geo(node) if is_grid else (None, [])
    except MetadataError:
        # No grid of two dimensions: an ordinary group of arrays.
        geo, findings = None, []
    return Report(arrays, geo, tuple(findings))


def stored_size(array: Array) -> int:
    """The bytes that an array takes in its store, its metadata included."""
    return sum(array.store.size(key) or 0 for key in array.store.list(array.path))


def describe_codecs(array: Array) -> str:
    """The codecs in the order of encoding, those within shards after "sharding_indexed"."""
    names: list[str] = []
    chain: list[Any] = [{"name": c.name, "configuration": c.configuration} for c in array.model.codecs]
    while chain:
        codec = chain.pop(0)
        name = codec if isinstance(codec, str) else codec["name"]
        configuration = {} if isinstance(codec, str) else codec.get("configuration", {})
        names.append(name.removeprefix("numcodecs."))
        if name == "sharding_indexed":
            chain[:0] = configuration["codecs"]
    return ", ".join(names)


def format_size(size: int) -> str:
    """A number of bytes as people read it."""
    number, unit = float(size), 0
    while number >= 1024 and unit < len(UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {UNITS[unit]}" if unit == 0 else f"{number:.1f} {UNITS[unit]}"
