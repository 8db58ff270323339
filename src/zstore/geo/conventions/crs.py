"""A coordinate reference system as one value, parsed from any notation."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from json import dumps, loads
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.extensions.extras import optional

Points = np.ndarray[Any, np.dtype[np.float64]]

# Tile matrix sets turn degrees into metres on the equator of WGS 84, whatever the CRS's own ellipsoid.
METRES_PER_RADIAN = 6378137.0
# Meridians that are so many degrees apart have nothing of an area between them.
GAP = 30
# Up to so many positions are transformed on one thread, however many threads ask.
FEW_COUNT = 1 << 13
OPENGIS_AUTHORITIES = {"EPSG": "0", "OGC": "1.3"}
# The parameters of CF's appendix F that are numbers.
CF_NUMBERS = frozenset((
    "azimuth_of_central_line", "earth_radius", "false_easting", "false_northing", "grid_north_pole_latitude",
    "grid_north_pole_longitude", "inverse_flattening", "latitude_of_projection_origin",
    "longitude_of_central_meridian", "longitude_of_prime_meridian", "longitude_of_projection_origin",
    "north_pole_grid_longitude", "perspective_point_height", "scale_factor_at_central_meridian",
    "scale_factor_at_projection_origin", "semi_major_axis", "semi_minor_axis", "standard_parallel",
    "straight_vertical_longitude_from_pole",
))  # fmt: skip
# Those that describe an ellipsoid, and the ways in which they do.
ELLIPSOID = ("earth_radius", "semi_major_axis", "semi_minor_axis", "inverse_flattening")
ELLIPSOIDS = (
    {"earth_radius"}, {"semi_major_axis", "semi_minor_axis"}, {"semi_major_axis", "inverse_flattening"},
)  # fmt: skip
GREENWICH = {"prime_meridian_name": "Greenwich", "longitude_of_prime_meridian": 0.0}
FALSE_ORIGINS = {
    "False easting": "false_easting", "Easting at false origin": "false_easting",
    "Easting at projection centre": "false_easting",
    "False northing": "false_northing", "Northing at false origin": "false_northing",
    "Northing at projection centre": "false_northing",
}  # fmt: skip
UDUNITS = {
    "metre": "m",
    "kilometre": "km",
    "foot": "international_foot",
    "US survey foot": "US_survey_foot",
    "degree": "degrees",
    "radian": "rad",
}


# A definition, or a grid of shifts, in a file or at a URL: PROJ would open it.
_NAMES_A_FILE = re.compile(
    r"""\b(?:init|\w*grids|\w*file)\s*=\s*[^\s+"]*[/\\]"""
    r"""|(?:PARAMETERFILE\s*[\[(]\s*"[^"]*"|"PROJ4_GRIDS")\s*,\s*"[^"]*[/\\]""",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Crs:
    """A coordinate reference system; two are equal when their WKT2 is.

    wkt              WKT2:2019, always there
    code             "AUTHORITY:CODE" where the CRS carries one that the database confirms, else None
    projjson         the same as PROJJSON
    cf               the same as CF grid mapping parameters, without `crs_wkt`; {} where CF has no name for it
    is_geographic    whether the axes are longitude and latitude
    unit_name        the unit of the horizontal axes, as PROJ calls it
    metres_per_unit  what one unit is in metres (degrees: on the equator of WGS 84)
    is_y_first       whether the authority puts northing or latitude before easting or longitude
    """

    wkt: str
    code: str | None = None
    projjson: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    cf: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    is_geographic: bool = field(default=False, compare=False)
    unit_name: str = field(default="metre", compare=False)
    metres_per_unit: float = field(default=1.0, compare=False)
    is_y_first: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        """The code, or the beginning of the WKT, which has several kilobytes."""
        return f"Crs({self.code or self.wkt[:60]!r})"

    @classmethod
    def from_user(cls, value: Any) -> Crs:
        """The CRS of a code, an EPSG number, WKT, a URL or URN, PROJJSON, CF parameters or an object with
        `to_wkt()`.

        Raises
            MetadataError: it is none of these, or PROJ does not know it.
            UnsupportedError: pyproj is not installed.
        """
        if isinstance(value, Crs):
            return value
        if isinstance(value, bool):
            raise MetadataError(f"CRS is {value!r}; expected a code, WKT, PROJJSON or CF parameters")
        if isinstance(value, Integral):
            return _parsed("text", f"EPSG:{value}")
        if isinstance(value, str):
            return _parsed("text", value)
        if isinstance(value, Mapping):
            is_cf = "grid_mapping_name" in value or "crs_wkt" in value
            return cls.from_cf(value) if is_cf else cls.from_projjson(value)
        if hasattr(value, "to_wkt"):
            return _parsed("text", value.to_wkt())
        raise MetadataError(
            f"CRS is a {type(value).__name__}; expected a code, WKT, PROJJSON or CF parameters, or to_wkt()"
        )

    @classmethod
    def from_projjson(cls, document: Mapping[str, Any]) -> Crs:
        """The CRS of a PROJJSON object."""
        return _parsed("projjson", dumps(document))

    @classmethod
    def from_cf(cls, parameters: Mapping[str, Any]) -> Crs:
        """The CRS of a CF grid mapping variable's attributes; `crs_wkt` counts before the parameters.

        Numbers may be text, or lists of one, which other formats make of them. Lengths are metres.
        """
        return _parsed("cf", dumps({name: cf_number(name, value) for name, value in parameters.items()}))

    @property
    def url(self) -> str | None:
        """The CRS's OGC URL, for authorities that have one there."""
        authority, _, code = (self.code or "").partition(":")
        version = OPENGIS_AUTHORITIES.get(authority)
        return f"http://www.opengis.net/def/crs/{authority}/{version}/{code}" if version else None

    @property
    def label(self) -> str:
        """A short name of the CRS for people: its code, its name, or where it has none its method."""
        named, method = self.wkt.partition(",")[0], self.cf.get("grid_mapping_name")
        if self.code is None and method is not None and named.endswith(('"undefined"', '"unknown"')):
            return f"unnamed {method}, ellipsoid of {self.cf.get('semi_major_axis'):.12g} m"
        return self.code or named

    @property
    def units(self) -> str:
        """The unit of the horizontal axes, as UDUNITS (and so CF) writes it."""
        return UDUNITS.get(self.unit_name, f"{self.metres_per_unit!r} m")

    @property
    def radians_per_unit(self) -> float:
        """The unit of a geographic CRS in radians."""
        return self.metres_per_unit / METRES_PER_RADIAN

    def transform(self, other: Crs, x: Points, y: Points) -> tuple[Points, Points]:
        """(x, y) in another CRS of positions in this one; not finite if the other has none.

        Easting or longitude comes first, whatever the authorities say.
        """
        call = partial(_transform, self.wkt, other.wkt, x, y)
        if np.size(x) > FEW_COUNT:
            return call()
        try:
            waiting = _thread(os.getpid()).submit(call)
        except RuntimeError:  # no thread begins while the interpreter ends
            return call()
        return waiting.result()

    def degrees_around(self, x: Points, y: Points) -> tuple[float, float, float, float] | None:
        """(west, south, east, north) in degrees around positions; None where none of them has a place there.

        East is above 180 across the antimeridian. Of a projected CRS, whose positions are taken for a grid of
        an area, the widest gap between their meridians is what the area does not cover; without one of GAP
        degrees, it has all longitudes. Longitudes of a geographic CRS stay as they are.
        """
        lon, lat = self.transform(Crs.from_user("OGC:CRS84"), x, y)
        known = np.isfinite(lon) & np.isfinite(lat)
        if not known.any():
            return None
        south, north = max(-90.0, float(lat[known].min())), min(90.0, float(lat[known].max()))
        if self.is_geographic:
            return float(lon[known].min()), south, float(lon[known].max()), north
        found = np.unique(np.round(lon[known] % 360, 9))
        gaps = np.diff(np.append(found, found[0] + 360))
        at = int(gaps.argmax())
        if gaps[at] < GAP:
            return -180.0, south, 180.0, north
        west = float(found[(at + 1) % len(found)])
        west = west - 360 if west >= 180 else west
        return west, south, west + 360 - float(gaps[at]), north

    def is_same(self, other: Crs) -> bool:
        """Whether both mean the same coordinates; names and the order of the axes do not count."""
        return self == other or _is_same_wkt(self.wkt, other.wkt)


def cf_number(name: str, value: Any) -> Any:
    """A CF parameter as a number, or as two, whether it was written as text, a list or a number."""
    if name not in CF_NUMBERS:
        return value
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    found = list(words) if isinstance(words, (list, tuple)) else [words]
    with suppress(ValueError):
        found = [float(word) if isinstance(word, str) else word for word in found]
        return found[0] if len(found) == 1 else found
    return value


def _pyproj() -> ModuleType:
    with optional("a CRS can be read and written only with pyproj", "geo"):
        import pyproj
    return pyproj  # type: ignore[no-any-return,unused-ignore]


@lru_cache(maxsize=128)
def _pyproj_crs(wkt: str) -> Any:
    return _pyproj().CRS.from_wkt(wkt)


@lru_cache(maxsize=1)
def _thread(process: int) -> ThreadPoolExecutor:
    """The thread of a process that transforms a few positions at a time.

    A transformer is made anew on each thread, for which PROJ searches its database for tens of milliseconds.
    """
    return ThreadPoolExecutor(1, "zstore-proj")


def _transform(source: str, target: str, x: Points, y: Points) -> tuple[Points, Points]:
    found = _transformer(source, target).transform(x, y)
    return np.asarray(found[0], np.float64), np.asarray(found[1], np.float64)


@lru_cache(maxsize=32)
def _transformer(source: str, target: str) -> Any:
    return _pyproj().Transformer.from_crs(_pyproj_crs(source), _pyproj_crs(target), always_xy=True)


def _parsed(notation: str, text: str) -> Crs:
    parsed = _try_parse(notation, text)
    if isinstance(parsed, Crs):
        return parsed
    raise MetadataError(parsed)


@lru_cache(maxsize=128)
def _try_parse(notation: str, text: str) -> Crs | str:
    """The CRS, or the reason for none; both are cached, as PROJ searches its whole database for either."""
    pyproj = _pyproj()
    if any(_NAMES_A_FILE.search(said) for said in _texts(notation, text)):
        return (
            f"CRS {text[:77]!r} names a file by its path, which is not opened because a document says so; "
            "expected the plain name of a grid in PROJ's own directories"
        )
    try:
        if notation == "projjson":
            found = pyproj.CRS.from_json_dict(loads(text))
        elif notation == "cf":
            found = pyproj.CRS.from_cf(_with_meridian(loads(text)))
        else:
            found = pyproj.CRS.from_user_input(text)
        # PROJ reads some CRSs that it cannot write.
        return _from_pyproj(pyproj, found)
    except MetadataError as error:
        return error.message
    except (pyproj.exceptions.CRSError, KeyError, TypeError, ValueError) as error:
        # from_cf and from_json_dict index and cast what they are given before PROJ sees it.
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        return f"CRS {shown!r} is not one that PROJ {pyproj.proj_version_str} knows: {error}"


def _with_meridian(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with Greenwich as the meridian if they describe an ellipsoid and state no meridian.

    Without one, pyproj searches PROJ's database for that name, which takes 0.2 s; the CRS is the same.
    """
    shape = {name: parameters[name] for name in ELLIPSOID if name in parameters}
    is_ellipsoid = shape.keys() in ELLIPSOIDS and all(
        type(value) in (int, float) and 0 < value < math.inf for value in shape.values()
    )
    is_stated = bool(GREENWICH.keys() & parameters.keys())
    return {**parameters, **GREENWICH} if is_ellipsoid and not is_stated else parameters


def _texts(notation: str, text: str) -> Iterator[str]:
    """The strings in which a CRS may name files."""
    if notation == "text":
        yield text
        return
    pending = [loads(text)]
    while pending:
        held = pending.pop()
        if isinstance(held, dict):
            if notation == "projjson" and isinstance(held.get("value"), str):
                yield f"grids={held['value']}"
            pending += held.values()
        elif isinstance(held, list):
            pending += held
        elif isinstance(held, str):
            yield held


def _from_pyproj(pyproj: ModuleType, found: Any) -> Crs:
    code = _code(pyproj, found)
    if code is not None:
        # The authority's own definition, so that every notation of one CRS comes to the same value.
        found = pyproj.CRS.from_user_input(code)
    wkt = _stable_wkt(pyproj, found)
    axes = found.axis_info or (found.sub_crs_list[0].axis_info if found.sub_crs_list else [])
    if len(axes) < 2:
        raise MetadataError(f"CRS {found.name!r} has {len(axes)} axes; expected two horizontal ones")
    unit, is_geographic = axes[0].unit_name, bool(found.is_geographic)
    factor = axes[0].unit_conversion_factor
    if is_geographic:
        factor = (math.radians(1.0) if unit == "degree" else factor) * METRES_PER_RADIAN
    return Crs(
        wkt, code, found.to_json_dict(), _cf(found), is_geographic, unit, factor, _is_northing(axes[0])
    )


def _cf(found: Any) -> dict[str, Any]:
    try:
        stated = {key: value for key, value in found.to_cf().items() if key != "crs_wkt"}
    except KeyError:
        # A conversion may leave out parameters, for which PROJ has defaults but CF has no words.
        return {}
    horizontal = found.sub_crs_list[0] if found.sub_crs_list else found
    for parameter in getattr(horizontal.coordinate_operation, "params", ()):
        # pyproj gives lengths in the parameter's own unit; CF has a false origin in the coordinates', and a
        # height in metres.
        name = FALSE_ORIGINS.get(parameter.name)
        if name in stated:
            factor = parameter.unit_conversion_factor / horizontal.axis_info[0].unit_conversion_factor
            stated[name] = parameter.value * factor
        elif parameter.name == "Satellite Height" and "perspective_point_height" in stated:
            stated["perspective_point_height"] = parameter.value * parameter.unit_conversion_factor
    return stated


def _stable_wkt(pyproj: ModuleType, found: Any) -> str:
    # PROJ's WKT of some CRSs changes when it is read and written once more; what is stored must not.
    wkt: str = found.to_wkt("WKT2_2019")
    for _ in range(3):
        again: str = pyproj.CRS.from_wkt(wkt).to_wkt("WKT2_2019")
        if again == wkt:
            break
        wkt = again
    return wkt


def _code(pyproj: ModuleType, found: Any) -> str | None:
    identity = found.to_json_dict().get("id")
    if not isinstance(identity, dict):
        return None
    code = f"{identity.get('authority')}:{identity.get('code')}"
    try:
        authority = pyproj.CRS.from_user_input(code)
    except pyproj.exceptions.CRSError:
        return None
    # A document may carry an id that its own parameters contradict: then the parameters are what it says.
    return code if _is_same(found, authority) else None


@lru_cache(256)
def _is_same_wkt(wkt: str, other: str) -> bool:
    return _is_same(_pyproj_crs(wkt), _pyproj_crs(other))


def _is_same(one: Any, other: Any) -> bool:
    if one.equals(other, ignore_axis_order=True):
        return True
    # PROJ ignores the order of the axes of geographic CRSs only.
    if not (one.is_projected and other.is_projected):
        return False
    units = [sorted(axis.unit_conversion_factor for axis in crs.axis_info) for crs in (one, other)]
    return bool(
        units[0] == units[1]
        and one.geodetic_crs.equals(other.geodetic_crs, ignore_axis_order=True)
        and one.coordinate_operation == other.coordinate_operation
    )


def _is_northing(axis: Any) -> bool:
    # On polar CRSs both axes point north (or south): only the name tells which is which.
    name = axis.name.lower()
    if "north" in name or "latitude" in name:
        return True
    if "east" in name or "longitude" in name:
        return False
    return axis.direction in ("north", "south")
