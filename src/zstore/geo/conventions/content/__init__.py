"""What the data are about: their dates, their spectral bands, and their entry in a STAC catalogue.

The array's attribute `bands` lists them in STAC 1.1's words, one object per band: one for an array that is
a band, as many as items for one with a dimension of bands. Read as well: STAC 1.0's `eo:bands`, either list
on the group, its objects named like the arrays, and coordinates of central wavelengths, as CF has them.
Spec: CF 1.11 §4.4 (time coordinate, calendars); STAC 1.1 common metadata, "Bands"; STAC extension eo 2.0;
CF standard name sensor_band_central_radiation_wavelength; zarr-conventions/stac, v0.1 and the draft v1
before it, which had `stac:encoding` (what both take is written); GeoZarr draft, classes "time", "bands",
"stac".
Example: {"bands": [{"name": "B04", "eo:common_name": "red", "eo:center_wavelength": 0.665}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from zstore.errors import MetadataError
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
    Node,
    Stac,
    Variable,
    is_array,
    is_group,
)
from zstore.geo.conventions.decoding import length_of, read_values
from zstore.geo.conventions.geozarr import declare, is_number, member_of, objects
from zstore.geo.conventions.nodes import arrays_along, arrays_of, plain_name
from zstore.geo.conventions.timeaxis import TimeAxis
from zstore.model.packing import PACKING
from zstore.storage.base import join_key

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
    """Spectral bands: which part of the spectrum an array, or each item of it, holds."""

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
        """The attribute `bands` of every array that has any."""
        return {
            join_key(grid.path, name): Document(
                attributes={"bands": [_render_band(band) for band in variable.bands]}
            )
            for grid in geo.grids
            for name, variable in geo.variables.items()
            if variable.bands
        }

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where the bands are malformed, too many or too few, or others than the model's."""
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
    """The bands that a `bands` or `eo:bands` attribute lists; None where it is no list of objects."""
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
    """The number of bands along an array's dimension of bands; 1 where it has none."""
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
        """Where the object is malformed, refers to places outside its group, or to its own store."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if facts.stac is None or not isinstance(facts.stac.content, Mapping) or facts.stac.kind not in TYPES:
            return findings
        for message in _faults(facts.stac.content):
            findings.append(Finding("ZC-08", "error", node.path, message))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """The words of a catalogue about a group."""
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


NAMES = ("time", "t")
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
        """Where the array's time coordinate cannot be read, lacks its name, or is not the model's."""
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
            findings.append(Finding("MS-09", "warning", found.path, message, "time", stated))
        if geo.time is not None and facts.time != geo.time:
            message = f"time coordinate {facts.time.name!r} is another than the model's"
            findings.append(Finding("GZ-33", "error", found.path, message))
        return findings

    def dialects(self, node: Node) -> Iterable[str]:
        """None of its own: it is part of CF."""
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
    if kind not in "iufM":
        return False
    units = attributes.get("units")
    is_count = isinstance(units, str) and " since " in units
    is_named = attributes.get("standard_name") == "time" or attributes.get("axis") == "T"
    # A forecast's reference time, or the like, is a count of time and no time coordinate.
    is_other = "standard_name" in attributes and attributes["standard_name"] != "time"
    return is_named or ((kind == "M" or is_count or name in NAMES) and not is_other)


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
    try:
        return TimeAxis(
            name,
            values,
            attributes.get("units") if is_count else None,
            "standard" if not is_count else calendar.lower() if isinstance(calendar, str) else calendar,
            kept,
        )
    except MetadataError as error:
        message = f"time coordinate {name!r} is not used: {error.message}"
        findings.append(Finding("MS-09", "error", coordinate.path, message, None, attributes.get("units")))
        return None
