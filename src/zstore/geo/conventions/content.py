"""The meaning of values: packing, nodata, units and cell bounds; dates, bands, the entry in a STAC catalogue.

Packed numbers are never taken for positions or dates.
The array's attribute `bands` lists them in STAC 1.1's words, one object per band: one for an array that is
a band, as many as items for one with a dimension of bands. Read as well: STAC 1.0's `eo:bands`, either list
on the group, its objects named like the arrays, and coordinates of central wavelengths, as CF has them.
Spec: CF 1.11 §2.5.1 (missing data), §3.1 (units), §3.5 (flags), §4.4 (time coordinate, calendars), §7.1
(cell boundaries), §8.1 (packed data); NetCDF Users Guide, attribute conventions; STAC 1.1 common metadata,
"Bands"; STAC extension eo 2.0; CF standard name sensor_band_central_radiation_wavelength;
zarr-conventions/stac, v0.1 and the draft v1 before it, which had `stac:encoding` (what both take is
written); GeoZarr draft, classes "time", "bands", "stac".
Example: {"bands": [{"name": "B04", "eo:common_name": "red", "eo:center_wavelength": 0.665}]}
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from zstore.errors import MetadataError, ZstoreError
from zstore.geo.conventions.base import (
    ArrayNode,
    Band,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    HeldArray,
    Mend,
    Node,
    Stac,
    Variable,
    Witness,
    arrays_along,
    arrays_of,
    is_array,
    is_group,
    parse_crs,
    plain_name,
    unused_attribute,
)
from zstore.geo.conventions.geozarr import declare, is_number, member_of, objects, parse_numbers
from zstore.geo.conventions.levels import Line
from zstore.geo.conventions.timeaxis import TimeAxis, is_of_time
from zstore.model.packing import (
    FILLS,
    PACKING,
    SCALING,
    Circle,
    check_packing,
    choose_nodata,
    decode,
    distinct_fills,
    fit_nodata,
    is_circular,
    packing_number,
    parse_fills,
    parse_packing,
    quantum,
    render_nodata,
)
from zstore.storage.base import join_key

METRES = {
    "m": 1.0, "metre": 1.0, "meter": 1.0,
    "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "international_foot": 0.3048, "international_feet": 0.3048,
    "us_survey_foot": 1200 / 3937, "us_survey_feet": 1200 / 3937, "survey_foot": 1200 / 3937,
    "survey_feet": 1200 / 3937, "ftus": 1200 / 3937,
    "micron": 1e-6, "yard": 0.9144, "mile": 1609.344, "international_mile": 1609.344, "nautical_mile": 1852.0,
}  # fmt: skip
RADIANS = {
    "rad": 1.0, "radian": 1.0, "1": 1.0,
    "degree": math.radians(1), "deg": math.radians(1), "arcdeg": math.radians(1), "°": math.radians(1),
    "degree_east": math.radians(1), "degree_north": math.radians(1), "degree_e": math.radians(1),
    "degree_n": math.radians(1), "degreee": math.radians(1), "degreen": math.radians(1),
    "arcdegree": math.radians(1), "degree_true": math.radians(1),
    "arcminute": math.radians(1 / 60), "arcmin": math.radians(1 / 60), "arc_minute": math.radians(1 / 60),
    "arcsecond": math.radians(1 / 3600), "arcsec": math.radians(1 / 3600),
    "arc_second": math.radians(1 / 3600),
    "grad": math.pi / 200, "grade": math.pi / 200, "gon": math.pi / 200,
}  # fmt: skip
SYMBOLS = {"k": 1e3, "h": 1e2, "d": 1e-1, "c": 1e-2, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
PREFIXES = {
    "mega": 1e6, "kilo": 1e3, "hecto": 1e2, "deca": 1e1, "deci": 1e-1, "centi": 1e-2, "milli": 1e-3,
    "micro": 1e-6, "nano": 1e-9, "pico": 1e-12, "giga": 1e9,
}  # fmt: skip
# What may bear a symbol as its prefix: nobody writes "kfoot".
SHORT = ("m", "rad")
COMPOUND = re.compile(r"^(us|international|nautical|arc)\s+(survey\s+)?", re.IGNORECASE)
TERM = re.compile(r"(?:([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*[ *·]\s*)?(\S+)")


def length_of(units: str) -> float | None:
    """The metres in a unit; None if it is no unit of length."""
    return _measure(units, METRES)


def angle_of(units: str) -> float | None:
    """The radians in a unit; None if it is no unit of angle."""
    return _measure(units, RADIANS)


def _measure(units: str, known: dict[str, float]) -> float | None:
    found = TERM.fullmatch(COMPOUND.sub(lambda words: f"{'_'.join(words[0].split())}_", units.strip()))
    if found is None:
        return None
    one = _word(found[2], known)
    return None if one is None else one * float(found[1] or 1)


def _word(word: str, known: dict[str, float]) -> float | None:
    name = word.lower().replace("degrees", "degree")
    # "ms" are milliseconds, and no metres.
    for candidate in (name, name.removesuffix("s") if len(name) > 2 else name):
        if candidate in known:
            return known[candidate]
        for prefix, times in PREFIXES.items():
            if candidate.startswith(prefix) and candidate.removeprefix(prefix) in known:
                return times * known[candidate.removeprefix(prefix)]
    # In symbols, capitals count.
    if word[:1] in SYMBOLS and word[1:] in SHORT and word[1:] in known:
        return SYMBOLS[word[0]] * known[word[1:]]
    return None


def rounding_of(coordinate: ArrayNode, values: np.ndarray[Any, Any]) -> float:
    """The error of a coordinate's values from the rounding of floats; 0 for integers."""
    dtype = np.dtype(coordinate.dtype)
    return float(np.finfo(dtype).eps * np.abs(values).max(initial=0.0) * 4) if dtype.kind == "f" else 0.0


def is_regular(coordinate: ArrayNode, centres: np.ndarray[Any, Any]) -> bool:
    """Whether a coordinate's values have one step, but for the rounding of floats and of packed numbers."""
    step = float(centres[-1] - centres[0]) / max(len(centres) - 1, 1)
    rounding = rounding_of(coordinate, centres)
    rounding += min(quantum(coordinate.attrs, np.dtype(coordinate.dtype)), MOST_ROUNDING * abs(step))
    off = np.abs(centres - (centres[0] + step * np.arange(len(centres)))).max()
    return bool(off <= TOLERANCE * abs(step) + rounding)


def fit_line(coordinate: ArrayNode) -> Line | None:
    """The line of cells whose centres are a coordinate's decoded values; None if they are not regular."""
    values = read_values(coordinate, []) if len(coordinate.shape) == 1 else None
    if values is None or len(values) < 2 or values.dtype.kind not in "iuf":
        return None
    centres = values.astype(np.float64)
    if not np.isfinite(centres).all() or centres[-1] == centres[0] or not is_regular(coordinate, centres):
        return None
    step = float(centres[-1] - centres[0]) / (len(centres) - 1)
    return Line(float(centres[0]) - step / 2, step)


def read_values(coordinate: ArrayNode, findings: list[Finding]) -> np.ndarray[Any, Any] | None:
    """All values of a coordinate, decoded; None, with a finding, if they are damaged, gone or too many."""
    name, attributes = coordinate.path.rpartition("/")[2], coordinate.attrs
    try:
        values = decode(np.asarray(coordinate[...]), attributes)
    except ZstoreError as error:
        message = f"coordinate {name!r} cannot be read, and is not used: {error}"
        rule = "GZ-29" if isinstance(error, MetadataError) else "ZS-03"
        findings.append(Finding(rule, "error", coordinate.path, message))
        return None
    limits = _limits(attributes, np.dtype(coordinate.dtype))
    if limits is not None and values.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            outside = int(np.count_nonzero((values < limits[0]) | (values > limits[1])))
        if outside:
            # Everybody else takes these for places, too: hiding them would leave the data without one.
            message = f"{outside} values of coordinate {name!r} are outside its valid range; they count"
            findings.append(Finding("GZ-16", "warning", coordinate.path, message, list(limits)))
    return values


def _limits(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, float] | None:
    """The least and the greatest valid number, decoded; None without such an attribute.

    Integers are packed as the values are; floats beside packed integers are decoded already.
    """
    stated = attributes.get("valid_range", [attributes.get("valid_min"), attributes.get("valid_max")])
    if not isinstance(stated, (list, tuple)) or len(stated) != 2 or stated == [None, None]:
        return None
    low, high = (
        default if number is None else number
        for number, default in zip(stated, (-math.inf, math.inf), strict=True)
    )
    if any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in (low, high)):
        return None
    is_packed = dtype.kind in "iu" and all(isinstance(n, int) for n in stated if n is not None)
    if not (is_packed or dtype.kind == "f"):
        return low, high
    scale, offset = parse_packing(attributes)
    try:
        ends = [n * (1.0 if scale is None else scale) + (offset or 0.0) for n in (low, high)]
    except OverflowError:  # integers beyond float64: no limits of such items
        return None
    return min(ends), max(ends)


Numbers = np.ndarray[Any, np.dtype[np.float64]]
# How far an edge may be from where it should be, and how far a centre from the middle, in cells.
TOLERANCE = 1e-3
OFF_CENTRE = 1e-2
# The most that rounding packed numbers may move an edge, in cells.
MOST_ROUNDING = 0.1


def read_bounds(
    coordinate: ArrayNode, siblings: Mapping[str, Any], findings: list[Finding]
) -> tuple[Numbers, float] | None:
    """The decoded edges of every cell of a coordinate, in stored order, and their possible error.

    None where the coordinate has no bounds; with a finding, where it has some that cannot be used.

    Shapes
        edges (n, 2) for a coordinate (n).
    Units
        those of the coordinate.
    """
    name = coordinate.attrs.get("bounds")
    if not isinstance(name, str) or not name.strip():
        return None
    found = siblings.get(name)
    if found is None:
        message = f"bounds name {name!r}, which is not beside the coordinate"
        findings.append(Finding("GZ-29", "note", coordinate.path, message, sorted(siblings), name))
        return None
    wrong = _misfit(coordinate, found)
    if wrong is not None:
        message = f"bounds {name!r} {wrong}; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    values = read_values(found, findings)
    if values is None:
        return None
    edges = values.astype(np.float64)
    if not np.isfinite(edges).all() or (edges[:, 0] == edges[:, 1]).any():
        message = f"bounds {name!r} are not finite, or leave a cell no room; they are not used"
        findings.append(Finding("GZ-29", "error", found.path, message))
        return None
    packed = quantum(found.attrs, np.dtype(found.dtype)) / 2
    widest = float(np.abs(edges[:, 1] - edges[:, 0]).max())
    return edges, rounding_of(found, values) + min(packed, MOST_ROUNDING * widest)


def _misfit(coordinate: ArrayNode, bounds: ArrayNode) -> str | None:
    """The reason why an array cannot be the bounds of a coordinate; None if it can."""
    if bounds.shape != (*coordinate.shape, 2) or np.dtype(bounds.dtype).kind not in "iuf":
        return f"are {bounds.dtype} of the shape {bounds.shape}; expected numbers of {(*coordinate.shape, 2)}"
    stated, own = bounds.attrs.get("units"), coordinate.attrs.get("units")
    if stated in (None, "", own):
        return None
    measures = [
        None if not isinstance(units, str) else (length_of(units), angle_of(units)) for units in (stated, own)
    ]
    is_same = measures[0] == measures[1] not in (None, (None, None))
    return None if is_same else f"have the units {stated!r}; expected the coordinate's, {own!r}"


def check_bounds(
    coordinate: ArrayNode,
    centres: Numbers,
    bounds: tuple[Numbers, float],
    is_regular: bool,
    findings: list[Finding],
) -> tuple[float, float] | None:
    """The middle of the first cell and the step by the bounds, if those differ from the centres.

    None where both agree, where the cells are not of one size, and where the two contradict each other: the
    centres count then, and a finding says so.
    """
    name, edges, size = coordinate.path.rpartition("/")[2], bounds[0], len(centres)
    # Either edge may come first, whichever way the centres run.
    falls = centres[-1] < centres[0] if size > 1 else edges[0, 1] < edges[0, 0]
    edges = np.sort(edges, axis=1)[:, ::-1] if falls else np.sort(edges, axis=1)
    begins, ends = edges[:, 0], edges[:, 1]
    step = float(ends[-1] - begins[0]) / size
    close = TOLERANCE * abs(step) + bounds[1] + rounding_of(coordinate, centres)
    outside = np.abs(centres - (begins + ends) / 2) > np.abs(ends - begins) / 2 + close
    if outside.any():
        message = (
            f"{outside.sum()} of {size} values of {name!r} lie outside of their bounds; the values count"
        )
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    places = begins[0] + step * np.arange(size + 1)
    off = np.abs(np.append(begins, ends[-1]) - places)
    gap = np.abs(ends[:-1] - begins[1:]).max(initial=0.0)
    if max(off.max(), gap) > close:
        if is_regular:
            _report_uneven(coordinate, centres, edges, close, findings)
        return None
    first = float(begins[0]) + step / 2
    shift = max(abs(first - centres[0]), abs(first + step * (size - 1) - centres[-1]))
    is_middle = is_regular and shift <= OFF_CENTRE * abs(step) + close
    if is_middle and size > 1:
        return None
    if not is_middle:
        message = f"values of {name!r} are not the middles of its cells, which are regular; the bounds count"
        findings.append(Finding("GZ-29", "warning", coordinate.path, message, first, float(centres[0])))
    return first, step


def _report_uneven(
    coordinate: ArrayNode, centres: Numbers, edges: Numbers, close: float, findings: list[Finding]
) -> None:
    """Report cells that do not reach half way to their neighbours' centres; a grid may stop at the pole."""
    half, name = (centres[-1] - centres[0]) / (len(centres) - 1) / 2, coordinate.path.rpartition("/")[2]
    off = np.abs(edges - np.stack([centres - half, centres + half], axis=1)) > close
    is_cut = not off[1:-1].any() and not off[0, 1] and not off[-1, 0]
    what = "cells at the ends of" if is_cut else "cells of"
    message = (
        f"{what} {name!r} are not half way around its values, and no affine can say it; the values count"
    )
    findings.append(Finding("GZ-29", "note" if is_cut else "warning", coordinate.path, message))


# Attributes that some part of the model holds; everything else goes through untouched.
MODELLED = frozenset((
    *FILLS, *SCALING, "units", "standard_name", "long_name",
    "valid_range", "flag_values", "flag_masks", "flag_meanings", "grid_mapping", "_CRS", "AREA_OR_POINT",
    "GeoTransform", "spatial_ref", "zarr_conventions", "_ARRAY_DIMENSIONS",
))  # fmt: skip
MODELLED_PREFIXES = ("proj:", "spatial:")


def render_fill(variable: Variable, zarr_format: int) -> Any:
    """The array's own `fill_value`: its nodata if it has one, else null in Zarr v2 and 0 in v3."""
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
    for name in SCALING:
        number = getattr(variable, name)
        if number is not None:
            check_packing(name, number)
            attributes[name] = float(number)
    if variable.nodata is not None:
        dtype = variable.dtype
        if dtype is None:
            raise MetadataError(f"nodata is {variable.nodata!r}; expected the dtype of the array with it")
        others = [fit_nodata(one, dtype) for one in variable.other_nodata]
        attributes |= render_nodata(fit_nodata(variable.nodata, dtype), dtype, zarr_format, others)
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
    """(variable, findings) of an array's attributes; for each fact, the first attribute with it counts.

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
    for name in SCALING:
        try:
            values[name] = packing_number(attributes, name)
        except MetadataError:
            expected = "a finite number, and a scale other than 0"
            findings.append(unused_attribute(node, "GZ-16", name, expected, _number_in(node, name)))
    values["nodata"], values["other_nodata"], found = _parse_nodata(node, dtype)
    findings += found
    values |= _parse_flags(node, findings)
    values["attributes"] = _others(node, grid_mapping, values)
    return Variable(**values), findings


def _number_in(node: ArrayNode, name: str) -> Mend | None:
    """The correction of an attribute whose number is written as text; None if it is no text."""
    stated = node.attrs[name]
    try:
        number = float(stated) if isinstance(stated, str) else None
    except ValueError:
        return Mend(f"{name} is {stated!r}; expected a number")
    return None if number is None else Mend(f"{name} written as a number", {name: number})


def _parse_nodata(
    node: ArrayNode, dtype: np.dtype[Any]
) -> tuple[int | float | None, tuple[int | float, ...], list[Finding]]:
    """(nodata, further values of it, findings)."""
    findings: list[Finding] = []
    fills = parse_fills(node.attrs, dtype)
    for name, fill in fills.items():
        if isinstance(fill, MetadataError):
            findings.append(unused_attribute(node, "GZ-16", name, f"a value of {dtype.name}"))
    said = [Witness(*pair) for pair in distinct_fills(fills).items()]
    for other in said[1:]:
        message = f"{said[0].source} and {other.source} differ; both are nodata, and the first is written"
        witnesses = (said[0], other)
        found = Finding("GZ-16", "warning", node.path, message, said[0].value, other.value, witnesses)
        findings.append(found)
    others = tuple(one.value for one in said[1:])
    return choose_nodata(node.attrs, dtype, node.fill_value, node.zarr_format, fills), others, findings


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
        listed, meanings = meanings, " ".join(meanings)
        mend = Mend("flag_meanings written as words", {"flag_meanings": meanings})
        findings.append(Finding("GZ-16", "warning", node.path, message, meanings, listed, mend=mend))
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
    if isinstance(parse_fills(attributes, values["dtype"]).get("missing_value"), MetadataError):
        others["missing_value"] = attributes["missing_value"]
    if isinstance(others.get("coordinates"), str):
        names = [name for name in others.pop("coordinates").split() if name != grid_mapping]
        if names:
            others["coordinates"] = " ".join(names)
    return others


def is_direction(variable: Variable) -> bool:
    """Whether values are angles along a whole circle, of which 359 and 1 degree are neighbours.

    By the standard name, or by a valid range of a whole circle.
    """
    turn = angle_of(variable.units or "degree")
    if turn is None or (variable.standard_name is None and variable.units in (None, "1")):
        return False
    low, high = variable.valid_range or (0.0, 0.0)
    span = (high - low) * (variable.scale_factor or 1.0) * turn
    return is_circular(variable.standard_name) or math.isclose(abs(span), 2 * math.pi, rel_tol=1e-3)


def circle_of(variable: Variable) -> Circle | None:
    """The circle of directions or phases, in stored numbers; None for other values, or without a type for it.

    It begins where the valid range does, else at 0, or half a turn before where the type ends before a turn.
    """
    if variable.dtype is None or variable.dtype.kind not in "iuf" or not is_direction(variable):
        return None
    scale, offset = variable.scale_factor or 1.0, variable.add_offset or 0.0
    turn = 2 * math.pi / (angle_of(variable.units or "degree") or 1.0) / abs(scale)
    stated = variable.valid_range
    firsts = [] if stated is None else [float(min(stated))]
    firsts += [first - (turn if scale < 0 else 0) for first in (-offset / scale, -offset / scale - turn / 2)]
    if variable.dtype.kind == "f":
        return Circle(turn, firsts[0])
    limits = np.iinfo(variable.dtype)
    fits = [first for first in firsts if limits.min <= first and first + turn <= limits.max + 1]
    return Circle(turn, fits[0]) if fits else None


def circle_of_array(array: Any) -> Circle | None:
    """The circle of an array of directions or phases; None for other values."""
    return circle_of(parse_variable(HeldArray(array), None)[0])


def colours_of(variable: Variable) -> dict[int, tuple[int, ...]]:
    """(red, green, blue, alpha) by value, 0 to 255 each; {} without colours in that form."""
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


LISTS = ("bands", "eo:bands")
# Member of Band -> its name in STAC 1.1, then in `eo:bands` of STAC 1.0.
MEMBERS = {
    "name": ("name",),
    "description": ("description",),
    "common_name": ("eo:common_name", "common_name"),
    "wavelength": ("eo:center_wavelength", "center_wavelength"),
    "width": ("eo:full_width_half_max", "full_width_half_max"),
}
NUMBERS = ("wavelength", "width")
BAND_NAMES = frozenset(("band", "bands", "wavelength", "wavelengths"))
WAVELENGTHS = frozenset(("sensor_band_central_radiation_wavelength", "radiation_wavelength"))
# In a metre.
MICROMETRES = 1e6


class Bands(Convention):
    """Spectral bands: the part of the spectrum that an array, or each item of it, covers."""

    name = "bands"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The array's own `bands`, its `eo:bands`, its group's, then wavelengths along a dimension."""
        if not is_array(node):
            return Facts()
        findings: list[Finding] = []
        bands = _of_attributes(node, parent, findings)
        if not bands and parent is not None:
            bands = _of_wavelengths(node, arrays_of(parent), findings)
        variable = Variable(bands=bands) if bands else None
        return Facts(variable=variable, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The attribute `bands` of every array that has bands."""
        return {
            join_key(grid.path, name): Document(
                attributes={"bands": [_render_band(band) for band in variable.bands]}
            )
            for grid in geo.grids
            for name, variable in geo.variables.items()
            if variable.bands
        }

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Findings about bands that are malformed, too many or too few, or not the model's."""
        if not is_array(node):
            return []
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        expected = geo.variables.get(node.path.rpartition("/")[2])
        found = () if facts.variable is None else facts.variable.bands
        if expected is not None and expected.bands and found != expected.bands:
            names = [band.name for band in expected.bands]
            message = f"bands are {[band.name for band in found]}; the model's are {names}"
            findings.append(Finding("BANDS", "warning", node.path, message, names))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """The list of an array."""
        if is_array(node) and any(name in node.attrs for name in LISTS):
            yield "STAC bands"


def parse_bands(stated: Any) -> tuple[Band, ...] | None:
    """The bands that a `bands` or `eo:bands` attribute lists; None if it is no list of objects."""
    if not isinstance(stated, (list, tuple)) or not stated:
        return None
    if not all(isinstance(item, Mapping) for item in stated):
        return None
    return tuple(_parse_band(item) for item in stated)


def _parse_band(item: Mapping[str, Any]) -> Band:
    values: dict[str, Any] = {}
    others = dict(item)
    for member, names in MEMBERS.items():
        for name in names:
            value: Any = item.get(name)
            if member not in values and (is_number(value) if member in NUMBERS else isinstance(value, str)):
                values[member] = float(value) if member in NUMBERS else value
                del others[name]
    return Band(**values, others=others)


def _render_band(band: Band) -> dict[str, Any]:
    stated = {names[0]: getattr(band, member) for member, names in MEMBERS.items()}
    return {**{name: value for name, value in stated.items() if value is not None}, **band.others}


def listed_bands(node: ArrayNode) -> tuple[str, tuple[Band, ...]] | None:
    """(attribute, bands) of the first list among an array's attributes that is valid and fits its shape."""
    for name in LISTS:
        bands = parse_bands(node.attrs.get(name))
        if bands is not None and len(bands) in (1, _count(node)):
            return name, bands
    return None


def _of_attributes(node: ArrayNode, parent: GroupNode | None, findings: list[Finding]) -> tuple[Band, ...]:
    found = listed_bands(node)
    for name in LISTS:
        stated = node.attrs.get(name)
        if stated is None or (found is not None and found[0] == name):
            continue
        bands = parse_bands(stated)
        if bands is None or found is None:
            count = _count(node)
            shown = "no list of objects" if bands is None else f"a list of {len(bands)}"
            message = f"{name} is {shown}; expected {count} objects, one per band; it is not used"
            findings.append(Finding("BANDS", "warning", node.path, message, count))
    if found is not None:
        return found[1]
    own = node.path.rpartition("/")[2]
    for name in LISTS:
        listed = None if parent is None else parse_bands(parent.attrs.get(name))
        for band in listed or ():
            if band.name == own:
                return (band,)
    return ()


def _count(node: ArrayNode) -> int:
    """The number of bands along an array's dimension of bands; 1 if it has none."""
    for name, length in zip(node.dims or (), node.shape, strict=False):
        if str(name).lower() in BAND_NAMES:
            return length
    return node.shape[0] if len(node.shape) == 3 else 1


def _of_wavelengths(
    node: ArrayNode, siblings: Mapping[str, Any], findings: list[Finding]
) -> tuple[Band, ...]:
    for dim in node.dims or ():
        for name, coordinate in siblings.items():
            if coordinate.dims != (dim,) or not _is_wavelength(name, coordinate) or 0 in coordinate.shape:
                continue
            units = coordinate.attrs.get("units")
            metres = length_of(units) if isinstance(units, str) else None
            if metres is None:
                message = f"units of wavelengths {name!r} are {units!r}; expected a length; they are not used"
                findings.append(Finding("BANDS", "warning", coordinate.path, message, "um", units))
                continue
            values = read_values(coordinate, findings)
            if values is None:
                continue
            numbers = values.astype(np.float64) * (metres * MICROMETRES)
            if np.isfinite(numbers).all():
                return tuple(Band(wavelength=number) for number in numbers.tolist())
    return ()


def _is_wavelength(name: str, coordinate: ArrayNode) -> bool:
    if np.dtype(coordinate.dtype).kind not in "iuf":
        return False
    stated = coordinate.attrs.get("standard_name")
    return stated in WAVELENGTHS if isinstance(stated, str) else name.lower() in ("wavelength", "wavelengths")


KINDS: tuple[Literal["item", "collection", "link", "key"], ...] = ("item", "collection", "link", "key")
TYPES = {"item": "Feature", "collection": "Collection"}


class StacConvention(Convention):
    """STAC's item or collection of a group, embedded or linked."""

    name = "stac"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """`stac:item`, `stac:collection`, `stac:link` or `stac:key` of a group, the first that is one."""
        if not is_group(node):
            return Facts()
        findings: list[Finding] = []
        found: list[Stac] = []
        for kind in KINDS:
            stated = node.attrs.get(f"stac:{kind}")
            if stated is not None:
                found += _parse(kind, stated, node, findings)
        if len(found) > 1:
            message = f"stac:{found[1].kind} is beside stac:{found[0].kind}; expected one of them"
            findings.append(Finding("ZC-08", "error", node.path, message, found[0].kind, found[1].kind))
        return Facts(stac=found[0] if found else None, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The object or the link, on the outermost group."""
        if geo.stac is None:
            return {}
        attributes: dict[str, Any] = {"zarr_conventions": declare(["stac"])}
        content = geo.stac.content
        attributes[f"stac:{geo.stac.kind}"] = dict(content) if isinstance(content, Mapping) else content
        attributes["stac:encoding"] = "attribute" if geo.stac.kind in TYPES else geo.stac.kind
        return {"": Document(kind="group", attributes=attributes)}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Findings about a malformed object, or one that refers to its own store or outside its group."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if facts.stac is None or not isinstance(facts.stac.content, Mapping) or facts.stac.kind not in TYPES:
            return findings
        for message in _faults(facts.stac.content):
            findings.append(Finding("ZC-08", "error", node.path, message))
        for where, expected, found in _misplaced(facts.stac.content, geo, node, findings):
            message = f"{where} of the {facts.stac.kind} is {found}; expected {expected}"
            findings.append(Finding("ZC-08", "warning", node.path, message, expected, found))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """The dialect of a group with an entry in a catalogue."""
        if is_group(node) and any(key.startswith("stac:") for key in node.attrs):
            yield "STAC"


def _parse(
    kind: Literal["item", "collection", "link", "key"], stated: Any, node: Node, findings: list[Finding]
) -> Iterator[Stac]:
    encoding = node.attrs.get("stac:encoding")
    if encoding not in (None, "attribute", "link", "key", "array"):
        message = f"stac:encoding is {encoding!r}; expected 'attribute' or 'link'"
        findings.append(Finding("ZC-08", "error", node.path, message, "attribute or link", encoding))
    is_object = isinstance(stated, Mapping)
    if kind in TYPES and is_object and stated.get("type") == TYPES[kind]:
        yield Stac(kind, stated)
    elif kind in TYPES and is_object and isinstance(stated.get("href"), str):
        yield Stac("link", stated)
    elif kind in TYPES and isinstance(stated, str) and encoding in ("link", "key", "array"):
        yield Stac("link", {"href": stated}) if encoding == "link" else Stac("key", stated)
    elif (kind == "link" and is_object and isinstance(stated.get("href"), str)) or (
        kind == "key" and isinstance(stated, str)
    ):
        yield Stac(kind, stated)
    else:
        other = "an href" if kind == "link" else "a key"
        expected = f"an object of type {TYPES[kind]!r}" if kind in TYPES else other
        shown = repr(stated)[:80]
        message = f"stac:{kind} is {shown}; expected {expected}; it is not used"
        findings.append(Finding("ZC-08", "error", node.path, message, expected, shown))


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    assets = content.get("assets")
    for name, asset in assets.items() if isinstance(assets, Mapping) else ():
        href = member_of(asset, "href")
        if not isinstance(href, str):
            yield f"asset {name!r} has no href"
        elif "://" in href or href.startswith("/") or ".." in href.split("/"):
            yield f"href of asset {name!r} is {href!r}; expected a path below the group"
    if any(link.get("rel") == "store" for link in objects(content.get("links"))):
        yield "there is a link to the store, which is the one that it is in"


def _misplaced(
    content: Mapping[str, Any], geo: GeoModel, node: Node, findings: list[Finding]
) -> Iterator[tuple[str, Any, Any]]:
    """(member, expected, stated) for each CRS and extent in which STAC's datacube differs from the model."""
    stated = content.get("cube:dimensions", member_of(content.get("properties"), "cube:dimensions"))
    for name, said in stated.items() if isinstance(stated, Mapping) else ():
        axis, system = member_of(said, "axis"), member_of(said, "reference_system")
        if member_of(said, "type") != "spatial" or axis not in ("x", "y") or geo.crs is None:
            continue
        where = f"cube:dimensions.{name}"
        # Where none is stated, they are longitudes and latitudes.
        parsed = parse_crs(f"{where}.reference_system", system or 4326, "ZC-08", node.path, findings)
        for _, crs in parsed:
            is_same = crs.is_same(geo.crs)
            if system is not None and not is_same:
                yield f"{where}.reference_system", geo.crs.label, crs.label
            extent = parse_numbers(member_of(said, "extent"), 2)
            if is_same and extent is not None and geo.bounds is not None and geo.cell_size is not None:
                expected, cell = geo.bounds["xy".index(axis) :: 2], geo.cell_size["yx".index(axis)]
                # Some state the centres of the outer cells.
                if max(abs(one - other) for one, other in zip(extent, expected, strict=True)) > 0.51 * cell:
                    yield f"{where}.extent", list(expected), list(extent)


NAMES = ("time", "t")
# Calendars of CF 1.13, 4.4, whose counts are no dates without more than they say.
DATELESS = {
    "none": "has no dates (CF 4.4.2)",
    "utc": "counts leap seconds, which zstore has no table of (CF 4.4.2)",
    "tai": "has no leap seconds: its dates are some seconds off those of UTC (CF 4.4.2)",
}
OWN = frozenset(("units", "calendar", "standard_name", "axis", "_ARRAY_DIMENSIONS", *PACKING))


class Time(Convention):
    """The time of the data: a coordinate of one dimension, or a single moment beside the data."""

    name = "time"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """The time coordinate of one of the array's dimensions, else a single moment beside it."""
        if not is_array(node) or parent is None:
            return Facts()
        findings: list[Finding] = []
        coordinate = _find(node, arrays_along(node, parent))
        axis = None if coordinate is None else _parse_axis(coordinate, findings)
        return Facts(time=axis, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The coordinate in every grid that has the dimension; a single moment in every grid."""
        axis = geo.time
        if axis is None:
            return {}
        is_single = axis.values.ndim == 0
        if not is_single and not any(axis.name in v.dimensions for v in geo.variables.values()):
            return {}
        attributes: dict[str, Any] = {"standard_name": "time", **axis.attributes}
        if not is_single:
            attributes["axis"] = "T"
        if axis.units is not None:
            attributes |= {"units": axis.units, "calendar": axis.calendar}
        # NaN and NaT are no moments, so that neither hides one; a number could.
        blanks = {"f": "nan", "M": "NaT"}
        blank = blanks.get(axis.values.dtype.kind)
        fill: Any = None if blank is None else np.array(blank, axis.values.dtype)[()]
        return {
            join_key(grid.path, axis.name): Document(
                kind="array",
                attributes=dict(attributes),
                dimension_names=() if is_single else (axis.name,),
                data=axis.values,
                fill_value=0 if fill is None and zarr_format == 3 else fill,
            )
            for grid in geo.grids
        }

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Findings about a time coordinate that is unreadable, lacks its name, or is not the model's."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if facts.time is None or parent is None:
            return findings
        along = arrays_along(node, parent)
        found = along.get(facts.time.name, along.get(f"/{facts.time.name}"))
        assert found is not None
        stated = found.attrs.get("standard_name")
        if stated != "time":
            message = f"standard_name of the time coordinate is {stated!r}; expected 'time'"
            mend = Mend("standard_name added", {"standard_name": "time"}) if stated is None else None
            findings.append(Finding("MS-09", "warning", found.path, message, "time", stated, mend=mend))
        if geo.time is not None and facts.time != geo.time:
            message = f"time coordinate {facts.time.name!r} is another than the model's"
            findings.append(Finding("GZ-33", "error", found.path, message))
        return findings

    def dialects(self, node: Node) -> Iterable[str]:
        """No dialect of its own: time is a part of CF."""
        return ()


def _find(node: ArrayNode, siblings: Mapping[str, Any]) -> Any:
    for name in node.dims or ():
        coordinate = None if name is None else siblings.get(name)
        if name is None or coordinate is None or coordinate.dims not in ((plain_name(name),), None):
            continue
        if _is_time(plain_name(name), coordinate):
            return coordinate
    stated = node.attrs.get("coordinates")
    listed = stated.split() if isinstance(stated, str) else []
    for name in (*listed, *NAMES):
        single = siblings.get(name)
        if single is not None and single.shape == () and _is_time(name, single):
            return single
    return None


def _is_time(name: str, coordinate: ArrayNode) -> bool:
    attributes = coordinate.attrs
    kind = np.dtype(coordinate.dtype).kind
    if kind not in "iufM" or "aggregated_data" in attributes:
        return False
    is_named = attributes.get("standard_name") == "time" or attributes.get("axis") == "T"
    # A forecast's reference time, or the like, is a count of time and no time coordinate.
    is_other = "standard_name" in attributes and attributes["standard_name"] != "time"
    if is_named or is_other:
        return is_named
    units = attributes.get("units")
    return kind == "M" or name in NAMES or (units is not None and is_of_time(units))


def _parse_axis(coordinate: ArrayNode, findings: list[Finding]) -> TimeAxis | None:
    attributes = coordinate.attrs
    name = coordinate.path.rpartition("/")[2]
    if 0 in coordinate.shape:
        return None
    calendar = attributes.get("calendar", "standard")
    kept = {key: value for key, value in attributes.items() if key not in OWN}
    if attributes.get("standard_name", "time") != "time":
        kept["standard_name"] = attributes["standard_name"]
    is_count = np.dtype(coordinate.dtype).kind != "M"
    values = read_values(coordinate, findings)
    if values is None:
        return None
    units = attributes.get("units") if is_count else None
    calendar = "standard" if not is_count else calendar.lower() if isinstance(calendar, str) else calendar
    if is_count and isinstance(calendar, str) and (why := DATELESS.get(calendar)) is not None:
        message = f"time coordinate {name!r} is not used: calendar {calendar!r} {why}"
        findings.append(Finding("MS-09", "warning", coordinate.path, message, None, calendar))
        return None
    try:
        axis = TimeAxis(name, values, units, calendar, kept)
    except MetadataError as error:
        message = f"time coordinate {name!r} is not used: {error.message}"
        findings.append(Finding("MS-09", "error", coordinate.path, message, None, units))
        return None
    if axis.caution is not None:
        message = f"time coordinate {name!r}: {axis.caution}"
        findings.append(Finding("MS-09", "warning", coordinate.path, message, "days since 2000-01-01", units))
    return axis
