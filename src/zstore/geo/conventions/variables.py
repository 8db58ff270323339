"""The meaning of one array's values as CF attributes: nodata, packing, names, flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import ArrayNode, Finding, Variable, unused_attribute
from zstore.geo.conventions.content import listed_bands
from zstore.geo.conventions.nodes import plain_name
from zstore.model.packing import (
    check_packing,
    choose_nodata,
    decode_fill,
    fit_nodata,
    packing_number,
    parse_fills,
    render_nodata,
)

# Attributes that some part of the model holds; everything else goes through untouched.
MODELLED = frozenset((
    "_FillValue", "missing_value", "scale_factor", "add_offset", "units", "standard_name", "long_name",
    "valid_range", "flag_values", "flag_masks", "flag_meanings", "grid_mapping", "_CRS", "AREA_OR_POINT",
    "GeoTransform", "spatial_ref", "zarr_conventions", "_ARRAY_DIMENSIONS",
))  # fmt: skip
MODELLED_PREFIXES = ("proj:", "spatial:")


def render_fill(variable: Variable, zarr_format: int) -> Any:
    """The array's own `fill_value`: its nodata where it has one, else null in Zarr v2 and 0 in v3."""
    if variable.nodata is not None:
        return fit_nodata(variable.nodata, variable.dtype)
    return None if zarr_format == 2 else 0


def render_variable(variable: Variable, zarr_format: int) -> dict[str, Any]:
    """The CF attributes of an array of data.

    Raises
        MetadataError: nodata does not fit the type, the packing is no packing, or a flag has no meaning.
    """
    attributes = dict(variable.attributes)
    for name in ("standard_name", "long_name", "units"):
        if getattr(variable, name) is not None:
            attributes[name] = getattr(variable, name)
    for name in ("scale_factor", "add_offset"):
        number = getattr(variable, name)
        if number is not None:
            check_packing(name, number)
            attributes[name] = float(number)
    if variable.nodata is not None:
        dtype = variable.dtype
        if dtype is None:
            raise MetadataError(f"nodata is {variable.nodata!r}; expected the dtype of the array with it")
        attributes |= render_nodata(fit_nodata(variable.nodata, dtype), dtype, zarr_format)
    for name in ("valid_range", "flag_values", "flag_masks"):
        if getattr(variable, name) is not None:
            attributes[name] = list(getattr(variable, name))
    if variable.flag_meanings is not None:
        flags = variable.flag_values or variable.flag_masks
        if flags is None or len(flags) != len(variable.flag_meanings):
            raise MetadataError(
                f"flag_meanings are {variable.flag_meanings!r}; expected one per flag of {flags!r}"
            )
        if any(not meaning or meaning.split() != [meaning] for meaning in variable.flag_meanings):
            raise MetadataError(
                f"flag_meanings are {variable.flag_meanings!r}; expected words without blanks"
            )
        attributes["flag_meanings"] = " ".join(variable.flag_meanings)
    return attributes


def parse_variable(node: ArrayNode, grid_mapping: str | None) -> tuple[Variable, list[Finding]]:
    """(variable, findings) of an array's attributes; of each fact, the first attribute that states it counts.

    Nodata is chosen by `choose_nodata`.
    """
    attributes, dtype = node.attrs, np.dtype(node.dtype)
    findings: list[Finding] = []
    values: dict[str, Any] = {"dtype": dtype}
    if node.dims is not None and None not in node.dims:
        values["dimensions"] = tuple(plain_name(str(name)) for name in node.dims)
    for name in ("standard_name", "long_name", "units"):
        if isinstance(attributes.get(name), str):
            values[name] = attributes[name]
        elif name in attributes:
            findings.append(unused_attribute(node, "GZ-16", name, "a string"))
    for name in ("scale_factor", "add_offset"):
        try:
            values[name] = packing_number(attributes, name)
        except MetadataError:
            findings.append(
                unused_attribute(node, "GZ-16", name, "a finite number, and a scale other than 0")
            )
    values["nodata"], found = _parse_nodata(node, dtype)
    findings += found
    values |= _parse_flags(node, findings)
    values["attributes"] = _others(node, grid_mapping, values)
    return Variable(**values), findings


def _parse_nodata(node: ArrayNode, dtype: np.dtype[Any]) -> tuple[int | float | None, list[Finding]]:
    findings: list[Finding] = []
    fills = parse_fills(node.attrs, dtype)
    for name, fill in fills.items():
        if isinstance(fill, MetadataError):
            findings.append(unused_attribute(node, "GZ-16", name, f"a value of {dtype.name}"))
    valid = {name: fill for name, fill in fills.items() if not isinstance(fill, MetadataError)}
    if len({*map(repr, valid.values())}) == 2:
        message = "_FillValue and missing_value differ; the first one is taken for nodata"
        findings.append(
            Finding("GZ-16", "warning", node.path, message, valid["_FillValue"], valid["missing_value"])
        )
    return choose_nodata(node.attrs, dtype, node.fill_value, node.zarr_format, fills), findings


def _parse_flags(node: ArrayNode, findings: list[Finding]) -> dict[str, Any]:
    attributes, values = node.attrs, dict[str, Any]()
    for name in ("valid_range", "flag_values", "flag_masks"):
        if name not in attributes:
            continue
        found = attributes[name]
        numbers = found if isinstance(found, (list, tuple)) else [found]
        is_right = all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers)
        if not is_right or (name == "valid_range" and len(numbers) != 2):
            findings.append(unused_attribute(node, "GZ-16", name, "numbers"))
        else:
            values[name] = tuple(numbers)
    meanings = attributes.get("flag_meanings")
    if isinstance(meanings, list) and all(isinstance(m, str) and m.split() == [m] for m in meanings):
        message = "flag_meanings is a list; expected words separated by blanks"
        findings.append(Finding("GZ-16", "warning", node.path, message, " ".join(meanings), meanings))
        meanings = " ".join(meanings)
    flags = values.get("flag_values", values.get("flag_masks", ()))
    if isinstance(meanings, str) and len(meanings.split()) == len(flags):
        values["flag_meanings"] = tuple(meanings.split())
    elif meanings is not None:
        findings.append(unused_attribute(node, "GZ-16", "flag_meanings", f"{len(flags)} words, one per flag"))
    return values


def _others(node: ArrayNode, grid_mapping: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
    attributes = node.attrs
    others = {
        key: value
        for key, value in attributes.items()
        if key not in MODELLED and not key.startswith(MODELLED_PREFIXES)
    }
    listed = listed_bands(node)
    if listed is not None:
        # The first list that is one is the model's; what it says goes through it.
        del others[listed[0]]
    # A second missing value is one that the model's single nodata cannot hold.
    if "missing_value" in attributes and "_FillValue" in attributes:
        try:
            if decode_fill(attributes["missing_value"], values["dtype"]) != values["nodata"]:
                others["missing_value"] = attributes["missing_value"]
        except MetadataError:
            others["missing_value"] = attributes["missing_value"]
    if isinstance(others.get("coordinates"), str):
        names = [name for name in others.pop("coordinates").split() if name != grid_mapping]
        if names:
            others["coordinates"] = " ".join(names)
    return others


def colours_of(variable: Variable) -> dict[int, tuple[int, ...]]:
    """(red, green, blue, alpha) by value, 0 to 255 each; {} where no colours are stated in that form."""
    stated = variable.attributes.get("color_table")
    if not isinstance(stated, Mapping):
        return {}
    found = dict[int, tuple[int, ...]]()
    for value, rgba in stated.items():
        is_colour = (
            re.fullmatch("-?[0-9]{1,19}", str(value))
            and isinstance(rgba, list | tuple)
            and len(rgba) in (3, 4)
            and all(isinstance(part, int) and 0 <= part <= 255 for part in rgba)
        )
        if not is_colour:
            return {}
        found[int(value)] = (*rgba, 255)[:4]
    return found
