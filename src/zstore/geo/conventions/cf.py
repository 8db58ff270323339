"""CF and GDAL: coordinate variables, the grid mapping variable, and GDAL's own attributes beside them.

GDAL's are `_CRS` and `AREA_OR_POINT` of arrays, `GeoTransform` and `spatial_ref` of the grid mapping.
Spec: CF 1.11 §4 (coordinates), §5.6 (grid mappings); OGC Zarr 2.0 §4.4.2; GDAL's Zarr driver, "SRS encoding";
GDAL's netCDF driver, "Georeference".
Example: {"standard_name": "air_temperature", "units": "K", "grid_mapping": "spatial_ref"}
         {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32632"}, "AREA_OR_POINT": "Area"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zstore.errors import MetadataError
from zstore.geo.conventions.base import (
    Affine,
    ArrayNode,
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GeoModel,
    GroupNode,
    Level,
    Mend,
    Node,
    Severity,
    Variable,
    Witness,
    arrays_along,
    arrays_of,
    group_outside,
    is_array,
    parse_crs,
    plain_name,
)
from zstore.geo.conventions.content import (
    angle_of,
    check_bounds,
    is_regular,
    length_of,
    parse_variable,
    read_bounds,
    read_values,
    render_fill,
    render_variable,
)
from zstore.geo.conventions.crs import Crs, cf_number
from zstore.geo.conventions.levels import Grid
from zstore.storage.base import join_key

CF_VERSION = "CF-1.11"
# Longer rows and columns have no coordinate variables: the affine says the same in six numbers.
COORDINATE_LIMIT = 1 << 22
AXIS_NAMES = {
    "y": "Y", "lat": "Y", "latitude": "Y", "northing": "Y", "row": "Y", "rlat": "Y",
    "x": "X", "lon": "X", "long": "X", "longitude": "X", "easting": "X", "col": "X", "rlon": "X",
}  # fmt: skip
STANDARD_NAMES = {
    "projection_y_coordinate": "Y", "projection_x_coordinate": "X",
    "projection_y_angular_coordinate": "Y", "projection_x_angular_coordinate": "X",
    "latitude": "Y", "longitude": "X",
    "grid_latitude": "Y", "grid_longitude": "X",
}  # fmt: skip
# Names and units of longitude and latitude alone: other coordinates may be degrees along other circles.
NAMES = {"Y": ("lat", "latitude", "nav_lat"), "X": ("lon", "long", "longitude", "nav_lon")}
DEGREES = {
    "Y": ("degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"),
    "X": ("degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"),
}
# Attributes by which netCDF's own dialect of Zarr is known.
NCZARR = (
    "_nczarr_group", "_nczarr_array", "_nczarr_attrs", "_NCPROPERTIES", "_NCZARR_GROUP", "_NCZARR_ARRAY",
)  # fmt: skip
# Units of coordinates that count cells, as odc-geo writes them beside a rotated affine.
CELLS = ("pixel", "pixels")
# Metres: the false easting of a grid whose zones are numbered in it is 60,500,000 at most.
FARTHEST = 1e8


class Cf(Convention):
    """The Climate and Forecast conventions."""

    name = "cf"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """CRS of the grid mapping variable, affine of the coordinates, and the array's own attributes.

        Of the grid mapping: `crs_wkt`, then `spatial_ref`, then the parameters; and its `GeoTransform`.
        """
        if not is_array(node):
            return Facts()
        siblings = {} if parent is None else arrays_along(node, parent)
        mapping, findings = _find_mapping(node, parent, siblings)
        name = "" if mapping is None else mapping.path.rpartition("/")[2]
        variable, found = parse_variable(node, name or None)
        findings += found
        dimensions = _spatial_dimensions(node, siblings)
        units = [_units_of(siblings.get(name)) for name in dimensions or ()]
        crs: list[tuple[str, Crs]] = [] if mapping is None else _parse_mapping(mapping, units, findings)
        # One that lies in a group above carries the CRS alone: the grids below it may be several.
        affines = stated_geotransform(mapping, f"{name}.", findings) if name in siblings else ()
        coordinate_affine = None
        if dimensions is not None:
            first_crs = crs[0][1] if crs else None
            y, x = (_parse_axis(node, name, siblings, first_crs, findings) for name in dimensions)
            if y is not None and x is not None:
                coordinate_affine = Affine(x[1], 0.0, x[0] - x[1] / 2, 0.0, y[1], y[0] - y[1] / 2)
        return Facts(
            crs=tuple(crs),
            affines=affines,
            coordinate_affine=coordinate_affine,
            coordinate_dimensions=dimensions,
            variable=variable,
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`Conventions`, every array's attributes, and for every grid its coordinates and `spatial_ref`."""
        documents: Documents = {"": Document(kind="group", attributes={"Conventions": CF_VERSION})}
        for grid in geo.grids:
            documents[grid.path] = Document(kind="group", attributes={"Conventions": CF_VERSION})
            for name, variable in geo.variables.items():
                attributes = render_variable(variable, zarr_format)
                if geo.crs is not None:
                    # Without this, xarray reads `spatial_ref` as data, and rioxarray finds no CRS.
                    listed = [CRS_VARIABLE, *str(attributes.get("coordinates", "")).split()]
                    attributes |= {"grid_mapping": CRS_VARIABLE, "coordinates": " ".join(listed)}
                documents[join_key(grid.path, name)] = Document(
                    kind="array",
                    attributes=attributes,
                    dimension_names=variable.dimensions or geo.dimensions,
                    fill_value=render_fill(variable, zarr_format),
                )
            is_short = max(grid.shape) <= COORDINATE_LIMIT
            coordinates = render_coordinates(geo, grid) if is_short else {}
            documents |= {join_key(grid.path, name): document for name, document in coordinates.items()}
            if geo.crs is not None:
                attributes = {"long_name": "coordinate reference system", "crs_wkt": geo.crs.wkt}
                documents[join_key(grid.path, CRS_VARIABLE)] = Document(
                    kind="array",
                    attributes={**geo.crs.cf, **attributes},
                    dimension_names=(),
                    data=np.zeros((), np.int32),
                    fill_value=None if zarr_format == 2 else 0,
                )
        return documents

    def dialects(self, node: Node) -> Iterator[str]:
        """The dialect of groups that claim CF or whose arrays use it, or netCDF's own dialect of Zarr."""
        if not is_array(node) and "CF-" in str(node.attrs.get("Conventions", "")):
            yield "CF"
        if is_array(node) and "grid_mapping" in node.attrs:
            yield "CF grid mapping"
        if any(key in node.attrs for key in NCZARR):
            yield "NCZarr"


def coordinate_attributes(crs: Crs | None, axis: str) -> dict[str, str]:
    """The CF attributes of the coordinate variable along `axis`, "X" or "Y", under a CRS."""
    is_x = axis == "X"
    if crs is None:
        return {"long_name": f"{axis.lower()} coordinate", "axis": axis}
    if crs.cf.get("grid_mapping_name") == "rotated_latitude_longitude":
        name = "grid_longitude" if is_x else "grid_latitude"
        return {"standard_name": name, "long_name": name.replace("_", " "), "units": "degrees", "axis": axis}
    if crs.is_geographic:
        name, units = ("longitude", "degrees_east") if is_x else ("latitude", "degrees_north")
        units = units if crs.unit_name == "degree" else crs.units
        return {"standard_name": name, "long_name": name, "units": units, "axis": axis}
    return {
        "standard_name": f"projection_{axis.lower()}_coordinate",
        "long_name": f"{axis.lower()} coordinate of projection",
        "units": crs.units,
        "axis": axis,
    }


def render_coordinates(geo: GeoModel, grid: Level) -> Documents:
    """The coordinate variables of a grid by name; none if it is rotated or has no affine."""
    centres = None if grid.affine is None else grid.affine.coordinates(grid.shape)
    if centres is None:
        return {}
    return {
        name: Document(
            kind="array",
            attributes=dict(coordinate_attributes(geo.crs, axis)),
            dimension_names=(name,),
            data=values,
            fill_value=float("nan"),
        )
        for name, axis, values in zip(geo.dimensions, ("Y", "X"), centres, strict=True)
    }


def is_longitude_latitude(grid: Grid) -> bool:
    """Whether a grid's coordinates are longitude and latitude: by their attributes, else by name."""
    arrays = {} if grid.node.parent is None else grid.node.parent.arrays
    said = []
    for axis, name in zip(("Y", "X"), grid.dimensions, strict=True):
        attributes = arrays[name].attrs if name in arrays else {}
        units, standard_name = attributes.get("units"), attributes.get("standard_name")
        wanted = "latitude" if axis == "Y" else "longitude"
        is_degrees = isinstance(units, str) and units in DEGREES[axis]
        is_unsaid = units in (None, "", "degree", "degrees") and standard_name is None
        is_named = name in arrays and is_unsaid and name.lower() in NAMES[axis]
        said.append(standard_name == wanted or (is_degrees and standard_name is None) or is_named)
    return all(said)


def mapping_names(stated: Any) -> list[str]:
    """The arrays that a `grid_mapping` attribute names, the first of which counts.

    CF's longer form names coordinates too: "crs: x y other: lat lon".
    """
    words = stated.split() if isinstance(stated, str) else []
    return [word[:-1] for word in words if word.endswith(":")] or words[:1]


def _stated_mapping(node: Node, parent: GroupNode | None) -> Any:
    own = node.attrs.get("grid_mapping")
    return own if own is not None or parent is None else parent.attrs.get("grid_mapping")


def find_mapping(node: Node, parent: GroupNode | None) -> tuple[str | None, Any]:
    """(the name in `grid_mapping` of an array, or else of its group; the array of that name).

    The array lies beside this one, or in the nearest group above that has one.
    """
    names, above = mapping_names(_stated_mapping(node, parent)), parent
    while names and above is not None:
        found = arrays_of(above).get(names[0])
        if found is not None:
            return names[0], found
        above = group_outside(above)
    return (names[0] if names else None), None


def _find_mapping(
    node: ArrayNode, parent: GroupNode | None, siblings: Mapping[str, Any]
) -> tuple[Any, list[Finding]]:
    name, mapping = find_mapping(node, parent)
    if mapping is not None:
        return mapping, []
    stated = _stated_mapping(node, parent)
    if stated is not None:
        where = "beside this one or in a group above, within the opened store" if name else ""
        message = f"grid_mapping is {stated!r}; expected the name of an array {where}".rstrip()
        expected = sorted(siblings) if name else "a name"
        # Of an array that was opened by itself, elsewhere, nobody knows what lies beside it.
        severity: Severity = "note" if name and parent is None else "error"
        return None, [Finding("GZ-15", severity, node.path, message, expected, stated)]
    taken = stand_in(node, parent)
    if taken is None:
        return None, []
    name = taken.path.rpartition("/")[2]
    message = f"no grid_mapping; the array {name!r} beside this one is taken for it"
    return taken, [Finding("MS-05", "warning", node.path, message, name, None)]


def stand_in(node: ArrayNode, parent: GroupNode | None) -> Any:
    """The scalar beside a grid that is taken for its grid mapping variable, by its name; None without."""
    siblings = {} if parent is None or len(node.shape) < 2 else arrays_of(parent)
    own = node.path.rpartition("/")[2]
    if any(own in (array.attrs.get("bounds"), array.attrs.get("climatology")) for array in siblings.values()):
        # The edges of cells are no data.
        return None
    named = (siblings.get(name) for name in (CRS_VARIABLE, "crs"))
    return next((array for array in named if array is not None and array.shape == ()), None)


# Attributes of grid mapping variables that are not CF's, which count where none of CF's is there.
FOREIGN_CRS = ("epsg_code", "EPSG_code", "proj4", "proj4text")


def _parse_mapping(
    mapping: ArrayNode, units: Sequence[str | None], findings: list[Finding]
) -> list[tuple[str, Crs]]:
    name = mapping.path.rpartition("/")[2]
    found: list[tuple[str, Crs]] = []
    for member in ("crs_wkt", "spatial_ref"):
        if member in mapping.attrs:
            found += parse_crs(f"{name}.{member}", mapping.attrs[member], "OC-05", mapping.path, findings)
    parameters = {key: value for key, value in mapping.attrs.items() if key not in ("crs_wkt", "spatial_ref")}
    if "grid_mapping_name" in parameters and not found and parameters["grid_mapping_name"] != "healpix":
        try:
            crs = Crs.from_cf(_in_metres(parameters, units))
            found.append((f"{name}.grid_mapping_name", crs))
            findings += _check_figure(mapping, crs)
        except MetadataError as error:
            findings.append(Finding("OC-05", "error", mapping.path, f"parameters: {error.message}"))
    elif found:
        findings += _check_parameters(mapping, found[0][1])
    for member in FOREIGN_CRS if not found else ():
        stated = mapping.attrs.get(member)
        if stated is None:
            continue
        code = int(stated) if isinstance(stated, str) and stated.isdecimal() else stated
        found += parse_crs(f"{name}.{member}", code, "OC-05", mapping.path, findings)
        if found:
            message = f"the CRS is stated only by {member}, an attribute that is not CF's; it is used"
            findings.append(Finding("OC-05", "warning", mapping.path, message, "crs_wkt", stated))
            break
    return found


def _in_metres(parameters: Mapping[str, Any], units: Sequence[str | None]) -> dict[str, Any]:
    """The parameters with a false origin in metres, which CF has in the units of y and x (appendix F).

    Raises
        MetadataError: those are no lengths, or the false origin is nowhere near the Earth.
    """
    converted = dict(parameters)
    for name, unit in zip(("false_northing", "false_easting"), units, strict=False):
        number = cf_number(name, parameters.get(name))
        if not isinstance(number, (int, float)) or not number or unit is None:
            continue
        metres = length_of(unit)
        if metres is None:
            raise MetadataError(
                f"{name} is {number!r} and the coordinates are in {unit!r}; expected a length"
            )
        if metres != 1 and abs(number * metres) > FARTHEST:
            raise MetadataError(
                f"{name} is {number!r} in the coordinates' units, {unit!r}, which is nowhere near the Earth; "
                f"expected {number / metres!r} if it is in metres, or crs_wkt"
            )
        converted[name] = number * metres
    return converted


def _check_parameters(mapping: ArrayNode, crs: Crs) -> list[Finding]:
    findings, name = [], mapping.path.rpartition("/")[2]
    for key, expected in crs.cf.items():
        stated = mapping.attrs.get(key)
        if not isinstance(expected, (int, float)) or not isinstance(stated, (int, float)):
            continue
        if np.isclose(stated, expected, rtol=1e-9, atol=1e-9):
            continue
        # Nothing lies elsewhere for it: netCDF-C writes six digits, pyproj a false origin in metres.
        is_rounded = any(float(f"{expected:.{digits}g}") == stated for digits in range(6, 16))
        is_metric = key.startswith("false_") and np.isclose(stated, expected * crs.metres_per_unit)
        how = " rounded" if is_rounded else f" in metres, the CRS's unit is {crs.units}" if is_metric else ""
        message = f"{key} is {stated!r}{how}, but the CRS's WKT says {expected!r}; the WKT counts"
        severity: Severity = "warning" if how else "error"
        said = (Witness(f"{name}.crs_wkt", expected), Witness(f"{name}.{key}", stated))
        findings.append(Finding("OC-05", severity, mapping.path, message, expected, stated, said))
    return findings


# The figure of the Earth in numbers, which the names of a datum, an ellipsoid or a meridian say as well.
FIGURE = ("semi_major_axis", "semi_minor_axis", "inverse_flattening", "longitude_of_prime_meridian")


def _check_figure(mapping: ArrayNode, crs: Crs) -> list[Finding]:
    """Numbers of a CRS without WKT that differ from its names', by which PROJ goes, GDAL by the numbers."""
    findings = []
    for key in FIGURE:
        stated, named = cf_number(key, mapping.attrs.get(key)), crs.cf.get(key)
        if not isinstance(named, (int, float)) or not isinstance(stated, (int, float)):
            continue
        if not np.isclose(stated, named, rtol=1e-6, atol=1e-9):
            message = f"{key} is {stated!r}, by the names beside it {named!r}; the names count"
            findings.append(Finding("OC-05", "warning", mapping.path, message, named, stated))
    return findings


def _spatial_dimensions(node: ArrayNode, siblings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Names of the array's y and x dimension; None unless it has exactly one of each."""
    found: dict[str, list[str]] = {"Y": [], "X": []}
    for name in node.dims or ():
        kind = None if name is None else axis_of(name, siblings.get(name))
        if name is not None and kind is not None:
            found[kind].append(name)
    if len(found["Y"]) != 1 or len(found["X"]) != 1:
        return None
    return found["Y"][0], found["X"][0]


def axis_of(name: str, coordinate: Any) -> str | None:
    """The axis of a dimension, "Y" or "X"; None for others.

    By the coordinate's `axis`, then its `standard_name`, then the name of the dimension.
    """
    attributes = {} if coordinate is None else coordinate.attrs
    if attributes.get("axis") in ("X", "Y"):
        return str(attributes["axis"])
    standard_name = attributes.get("standard_name")
    if isinstance(standard_name, str) and standard_name in STANDARD_NAMES:
        return STANDARD_NAMES[standard_name]
    return AXIS_NAMES.get(plain_name(name).lower())


def _parse_axis(
    node: ArrayNode, name: str, siblings: Mapping[str, Any], crs: Crs | None, findings: list[Finding]
) -> tuple[float, float] | None:
    """The centre of the first cell along a dimension, and the step to the next, in the CRS's unit.

    None where the dimension has no coordinates, or none that can be used.
    """
    coordinate = siblings.get(name)
    if coordinate is None or coordinate.dims not in ((plain_name(name),), None):
        return None
    size = node.shape[(node.dims or ()).index(name)]
    if coordinate.shape != (size,):
        message = f"shape of coordinate {name!r} is {coordinate.shape}; expected {(size,)}; it is not used"
        findings.append(Finding("MS-11", "error", coordinate.path, message, (size,), coordinate.shape))
        return None
    if not size or np.dtype(coordinate.dtype).kind not in "iuf":
        return None
    cells = read_bounds(coordinate, siblings, findings)
    if size < 2 and cells is None:
        return None
    values = read_values(coordinate, findings)
    if values is None:
        return None
    values = values.astype(np.float64)
    running = unwrap(coordinate, values)
    if running is not values:
        message = f"{name!r} jumps by a whole circle; it is read as running on to {running[-1]:g}"
        findings.append(Finding("GZ-29", "note", coordinate.path, message, float(running[-1]), values[-1]))
    values = running
    if cells is not None:
        cells = unwrap_bounds(coordinate, values, cells[0]), cells[1]
    step = (values[-1] - values[0]) / max(size - 1, 1)
    if not np.isfinite(values).all() or (step == 0 and size > 1):
        message = f"coordinate {name!r} is not finite and monotonic; it is not used"
        findings.append(Finding("GZ-29", "error", coordinate.path, message))
        return None
    first, step = float(values[0]), float(step)
    has_one_step = is_regular(coordinate, values)
    by_bounds = None if cells is None else check_bounds(coordinate, values, cells, has_one_step, findings)
    if by_bounds is not None:
        first, step = by_bounds
    elif size < 2:
        return None
    elif not has_one_step:
        message = f"coordinate {name!r} is not regularly spaced; no affine can say it"
        findings.append(Finding("GZ-29", "warning", coordinate.path, message))
        return None
    factor = _unit_factor(coordinate, crs, findings)
    return None if factor is None else (first * factor, step * factor)


def unwrap(coordinate: ArrayNode, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Longitudes that jump by a whole circle, as from 179 to -180, running on; others as they are."""
    steps, turn = np.diff(values), _turn_of(coordinate)
    if turn is None or not ((steps > 0).any() and (steps < 0).any()):
        return values
    running = np.unwrap(values, period=turn)
    steps = np.diff(running)
    return running if (steps > 0).all() or (steps < 0).all() else values


def unwrap_bounds(
    coordinate: ArrayNode, values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Edges of cells of longitudes, those that are whole circles away moved to the cells' `values`."""
    turn = _turn_of(coordinate)
    if turn is None:
        return edges
    turns = (edges - values[:, None]) / turn
    # A cell that covers half the globe has its edges a quarter of a turn away, a whole one's half a turn.
    return edges - turn * np.where(np.abs(turns) > 0.75, np.round(turns), 0.0)


def _turn_of(coordinate: ArrayNode) -> float | None:
    """The length of a whole circle in the units of longitudes; None for other coordinates."""
    units, stated = _units_of(coordinate), coordinate.attrs.get("standard_name")
    name = coordinate.path.rpartition("/")[2]
    if stated == "longitude" or units in DEGREES["X"] or (stated is None and name in NAMES["X"]):
        return float(2 * np.pi / (angle_of(units or "degree") or np.radians(1)))
    return None


def _factor_of(units: str, crs: Crs) -> float | None:
    """The factor from coordinates in `units` to those of the CRS; None for units of another kind.

    Scan angles of a geostationary view become lengths by the satellite's height, as PROJ has it.
    """
    if crs.is_geographic:
        angle = angle_of(units)
        return None if angle is None else angle / crs.radians_per_unit
    length = length_of(units)
    if length is not None:
        return length / crs.metres_per_unit
    angle, height = angle_of(units), crs.cf.get("perspective_point_height")
    if angle is None or height is None or crs.cf.get("grid_mapping_name") != "geostationary":
        return None
    return angle * float(height) / crs.metres_per_unit


def _units_of(coordinate: Any) -> str | None:
    units = None if coordinate is None else coordinate.attrs.get("units")
    return units if isinstance(units, str) and units.strip() else None


def _unit_factor(coordinate: ArrayNode, crs: Crs | None, findings: list[Finding]) -> float | None:
    """The factor from a coordinate's values to the CRS's unit; None, with a finding, if there is none."""
    units = _units_of(coordinate)
    if crs is None or units is None:
        return 1.0
    factor = _factor_of(units, crs)
    if units.lower() in CELLS:
        message = f"coordinates count cells ({units}), which says no place; they are not used"
        findings.append(Finding("MS-08", "note", coordinate.path, message, crs.units, units))
        return None
    if factor is None:
        message = f"units are {units!r}, the CRS's {crs.units!r}; these coordinates are not used"
        findings.append(Finding("MS-08", "error", coordinate.path, message, crs.units, units))
        return None
    if abs(factor - 1) < 1e-9:
        return 1.0
    if length_of(units) is not None or crs.is_geographic:
        message = f"units are {units!r}, the CRS's {crs.units!r}; the coordinates are converted"
        findings.append(Finding("MS-08", "warning", coordinate.path, message, crs.units, units))
    return factor


CRS_VARIABLE = "spatial_ref"


def parse_geotransform(value: Any) -> Affine:
    """The affine of a `GeoTransform` attribute: six numbers, or a string of them, in GDAL's order.

    Raises
        MetadataError: it is not that.
    """
    numbers = value
    if isinstance(value, str):
        try:
            numbers = [float(word) for word in value.replace(",", " ").split()]
        except ValueError as error:
            raise MetadataError(f"GeoTransform is {value!r}; expected six numbers") from error
    if not isinstance(numbers, (list, tuple)):
        raise MetadataError(f"GeoTransform is {value!r}; expected six numbers")
    return Affine.from_geotransform(numbers)


def stated_geotransform(node: Node, prefix: str, findings: list[Finding]) -> tuple[tuple[str, Affine], ...]:
    """((source, affine),) of a node's `GeoTransform`; () without a valid one, with a finding."""
    if "GeoTransform" not in node.attrs:
        return ()
    stated = node.attrs["GeoTransform"]
    try:
        affine = parse_geotransform(stated)
    except MetadataError as error:
        findings.append(Finding("GZ-28", "error", node.path, error.message, "six numbers", stated))
        return ()
    if affine.a == 0 and affine.e != 0:
        # No rotation has a = 0 with e other than 0.
        message = f"GeoTransform is {stated!r}, which is in rasterio's order"
        findings.append(Finding("GZ-28", "error", node.path, message, "c a b f d e", stated))
    return ((f"{prefix}GeoTransform", affine),)


def render_geotransform(affine: Affine) -> str:
    """The `GeoTransform` attribute of an affine: six numbers in GDAL's order, with all their digits."""
    return " ".join(repr(float(number)) for number in affine.geotransform)


def is_fill_nodata(variable: Variable, zarr_format: int) -> bool:
    """Whether GDAL takes an array's fill value for nodata, although the array has none.

    Zarr v3 wants a fill value of every array, and nothing tells GDAL that it means no more than that.
    """
    is_number = variable.dtype is not None and variable.dtype.kind in "iufc"
    return zarr_format == 3 and variable.nodata is None and is_number


class Gdal(Convention):
    """GDAL's own attributes of arrays and of their CRS variable."""

    name = "gdal"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """CRS of `_CRS` (url, then wkt, then projjson), then of `spatial_ref`; `GeoTransform`."""
        findings: list[Finding] = []
        if not is_array(node):
            if "_CRS" in node.attrs:
                message = "_CRS is on a group, where GDAL does not look; expected it on the arrays"
                findings.append(Finding("OC-06", "warning", node.path, message))
            stated_geotransform(node, "", findings)
            return Facts(findings=tuple(findings))
        crs = _parse_crs(node, findings)
        affines = stated_geotransform(node, "", findings)
        area_or_point = node.attrs.get("AREA_OR_POINT")
        if area_or_point not in (None, "Area", "Point"):
            message = f"AREA_OR_POINT is {area_or_point!r}; expected 'Area' or 'Point'; it is not used"
            spelt = str(area_or_point).capitalize()
            is_known = isinstance(area_or_point, str) and spelt in ("Area", "Point")
            mend = Mend("AREA_OR_POINT spelt as GDAL does", {"AREA_OR_POINT": spelt}) if is_known else None
            said = ("Area or Point", area_or_point)
            findings.append(Finding("GZ-28", "error", node.path, message, *said, mend=mend))
            area_or_point = None
        variable = Variable(area_or_point=area_or_point)
        return Facts(crs=crs, affines=affines, variable=variable, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`_CRS` and `AREA_OR_POINT` of every array of data, `GeoTransform` of every level's CRS variable."""
        documents: Documents = {}
        for grid in geo.grids:
            for name, variable in geo.variables.items():
                attributes: dict[str, Any] = {}
                if geo.crs is not None:
                    attributes["_CRS"] = _render_crs(geo.crs)
                if variable.area_or_point is not None:
                    attributes["AREA_OR_POINT"] = variable.area_or_point
                documents[join_key(grid.path, name)] = Document(attributes=attributes)
            if geo.crs is not None:
                mapping = {"spatial_ref": geo.crs.wkt}
                if grid.affine is not None:
                    mapping["GeoTransform"] = render_geotransform(grid.affine)
                documents[join_key(grid.path, CRS_VARIABLE)] = Document(attributes=dict(mapping))
        return documents

    def dialects(self, node: Node) -> Iterator[str]:
        """The attributes of an array that only GDAL has."""
        if is_array(node):
            yield from (f"GDAL {name}" for name in ("_CRS", "GeoTransform") if name in node.attrs)


def _render_crs(crs: Crs) -> dict[str, Any]:
    document: dict[str, Any] = {"wkt": crs.wkt, "projjson": dict(crs.projjson)}
    return {"url": crs.url, **document} if crs.url else document


def _parse_crs(node: ArrayNode, findings: list[Finding]) -> tuple[tuple[str, Crs], ...]:
    found: list[tuple[str, Crs]] = []
    stated = node.attrs.get("_CRS")
    if isinstance(stated, Mapping):
        if not {"url", "wkt", "projjson"} & set(stated):
            message = f"_CRS has the members {sorted(stated)}; expected url, wkt or projjson"
            findings.append(Finding("OC-06", "error", node.path, message))
        for member in ("url", "wkt", "projjson"):
            if stated.get(member) is not None:
                found += parse_crs(f"_CRS.{member}", stated[member], "OC-07", node.path, findings)
    elif stated is not None:
        message = f"_CRS is {stated!r}; expected an object with url, wkt or projjson; it is not used"
        findings.append(Finding("OC-06", "error", node.path, message, "object", stated))
    if "spatial_ref" in node.attrs:
        found += parse_crs("spatial_ref", node.attrs["spatial_ref"], "GZ-28", node.path, findings)
    return tuple(found)
