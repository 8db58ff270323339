"""GeoZarr: a pyramid as OGC's tile grids say it, in one `multiscales` object with zarr-conventions' layout.

Spec: GeoZarr draft 8.2.3 to 8.2.6; GeoZarr mini spec, "Multiscale Dataset", TileMatrix, TileMatrixLimit;
OGC 17-083r4 (TileMatrixSet 2.0) §6; zarr-conventions/multiscales v0.1.
Example: {"multiscales": {"layout": [{"asset": "0"}], "resampling_method": "average"}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from zstore.errors import MetadataError, NotFoundError
from zstore.geo.conventions.base import (
    Convention,
    Documents,
    Facts,
    Finding,
    GroupNode,
    LevelEntry,
    Node,
    Severity,
    is_group,
    parse_crs,
)
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.model import Affine, GeoModel, Level
from zstore.geo.conventions.tilesets.registry import (
    Y_FIRST_AXES,
    TileMatrix,
    TileMatrixSet,
    list_tile_matrix_sets,
    load_tile_matrix_set,
)
from zstore.geo.conventions.zarr_conventions import (
    is_number,
    member_of,
    parse_numbers,
    parse_resampling,
    render_groups,
    render_layout,
)

# (first row, last row, first column, last column) of the tiles that hold data.
Limits = tuple[int, int, int, int]
# The draft's and the mini spec's words for that.
LIMITS = {
    "tile_matrix_set_limits": ("min_tile_row", "max_tile_row", "min_tile_col", "max_tile_col"),
    "tile_matrix_limits": ("minTileRow", "maxTileRow", "minTileCol", "maxTileCol"),
}
# The standard's rendering pixel, in metres.
PIXEL = 0.00028
X_FIRST_AXES = {"e", "lon", "long", "x", "easting", "longitude"}


class Geozarr(Convention):
    """GeoZarr: parsed is the tile matrix set alone; rendered with it are the three zarr-conventions."""

    name = "geozarr"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """Levels, CRS and resampling of a multiscale group by its tile matrix set.

        What zarr-conventions have of it (`layout`, `proj:`, `spatial:`) is theirs to read.
        """
        stated = node.attrs.get("multiscales") if is_group(node) else None
        if not is_group(node) or stated is None or isinstance(stated, (list, tuple)):
            return Facts()
        findings: list[Finding] = []
        if not isinstance(stated, Mapping):
            message = f"multiscales is {stated!r}; expected an object or a list"
            findings.append(Finding("GZ-37", "error", node.path, message, "object", stated))
            return Facts(levels=(), findings=tuple(findings))
        if not {"layout", "tile_matrix_set", "datasets"} & set(stated):
            message = f"multiscales has the members {sorted(stated)}; expected layout or tile_matrix_set"
            findings.append(Finding("GZ-37", "error", node.path, message))
        levels, crs = list[LevelEntry](), None
        if "tile_matrix_set" in stated:
            levels, crs = parse_tile_matrix_set(stated, node, findings)
        return Facts(
            crs=() if crs is None else (("tile_matrix_set.crs", crs),),
            levels=tuple(levels),
            resampling=parse_resampling(stated, node.path, findings),
            findings=tuple(findings),
        )

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """`zarr_conventions`, `proj:` and `spatial:` of every group, and `multiscales` of a pyramid's."""
        return render_groups(geo, render_layout(geo) | render_tiles(geo) if geo.levels else None)

    def dialects(self, node: Node) -> Iterator[str]:
        """The tile matrix set."""
        stated = node.attrs.get("multiscales")
        if is_group(node) and isinstance(stated, Mapping) and "tile_matrix_set" in stated:
            yield "GeoZarr tile matrix set"


def why_no_tiles(geo: GeoModel) -> str | None:
    """Why a pyramid's levels are no tile matrix set; None where they are one."""
    if geo.crs is None:
        return "there is no CRS"
    for level in geo.levels:
        affine = level.affine
        if affine is None or level.tile_shape is None:
            return f"level {level.path!r} has no {'affine' if affine is None else 'tile shape'}"
        if affine.is_rotated:
            return f"the grid of level {level.path!r} is rotated"
        if affine.a < 0:
            return f"the columns of level {level.path!r} run towards smaller x"
        if abs(affine.a - abs(affine.e)) > 1e-9 * affine.a:
            return f"the cells of level {level.path!r} are not square ({affine.a!r} by {abs(affine.e)!r})"
    return None


def render_tiles(geo: GeoModel) -> dict[str, Any]:
    """The members of `multiscales` that readers of tiles want: the tile matrix set and both limits objects.

    South-up grids count their rows from the bottom left. {} where `why_no_tiles` says why.
    """
    if geo.crs is None or why_no_tiles(geo) is not None:
        return {}
    counts = {level.path: _tile_counts(level) for level in geo.levels}
    limits = {path: (0, rows - 1, 0, columns - 1) for path, (columns, rows) in counts.items()}
    tile_matrix_set = {
        "id": _set_id(geo.crs, geo.levels[0]),
        "title": "native grid",
        "crs": geo.crs.url or {"wkt": dict(geo.crs.projjson)},
        "orderedAxes": _ordered_axes(geo.crs),
        "tileMatrices": [_matrix(level, geo.crs) for level in reversed(geo.levels)],
    }
    return {"tile_matrix_set": tile_matrix_set, **render_limits(limits)}


def render_limits(limits: Mapping[str, Limits]) -> dict[str, dict[str, Any]]:
    """The members of `multiscales` that hold limits by level, in the draft's and in the mini spec's words."""
    made: dict[str, dict[str, Any]] = {
        member: {path: dict(zip(names, found, strict=True)) for path, found in limits.items()}
        for member, names in LIMITS.items()
    }
    for path, found in made["tile_matrix_limits"].items():
        made["tile_matrix_limits"][path] = {"tileMatrix": path, **found}
    return made


def parse_limits(stated: Any, member: str, path: str) -> Limits | None:
    """The limits of a level in that member of `multiscales`; None where they are no whole numbers."""
    found = member_of(member_of(stated, member), path)
    numbers = [found.get(name) for name in LIMITS[member]] if isinstance(found, Mapping) else []
    whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return (whole[0], whole[1], whole[2], whole[3]) if len(whole) == 4 else None


def _matrix(level: Level, crs: Crs) -> dict[str, Any]:
    if level.affine is None or level.tile_shape is None:
        raise MetadataError(f"level {level.path!r} has no affine or no tile shape; expected both")
    columns, rows = _tile_counts(level)
    origin = [level.affine.c, level.affine.f]
    return {
        "id": level.path,
        "scaleDenominator": level.affine.a * crs.metres_per_unit / PIXEL,
        "cellSize": level.affine.a,
        "cornerOfOrigin": "topLeft" if level.affine.e < 0 else "bottomLeft",
        "pointOfOrigin": origin[::-1] if crs.is_y_first else origin,
        "tileWidth": level.tile_shape[1],
        "tileHeight": level.tile_shape[0],
        "matrixWidth": columns,
        "matrixHeight": rows,
    }


def _tile_counts(level: Level) -> tuple[int, int]:
    height, width = level.tile_shape or level.shape
    return -(-level.shape[1] // width), -(-level.shape[0] // height)


def _ordered_axes(crs: Crs) -> list[str]:
    axes = ["Lon", "Lat"] if crs.is_geographic else ["E", "N"]
    return axes[::-1] if crs.is_y_first else axes


def _set_id(crs: Crs, level: Level) -> str:
    cell = 0.0 if level.affine is None else level.affine.a
    unit = {"metre": "m", "degree": "deg"}.get(crs.unit_name, crs.unit_name.replace(" ", "_"))
    # morecantile takes letters, digits, "_" and "-" only.
    return re.sub(r"[^\w-]", "_", f"{(crs.code or 'native').replace(':', '')}_{cell:g}{unit}", flags=re.ASCII)


def parse_tile_matrix_set(
    stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], Crs | None]:
    """The levels of a `multiscales` object by its `tile_matrix_set`, and the set's CRS.

    A set may have more matrices than the pyramid has levels: those that are there count.
    """
    tile_matrix_set = stated["tile_matrix_set"]
    if isinstance(tile_matrix_set, Mapping):
        crs = parse_tile_matrix_crs(tile_matrix_set, node.path, findings)
        entries = parse_tile_matrices(tile_matrix_set, crs, node, findings)
        present = {name for name, _ in node.members()}
        return [entry for entry in entries if entry.path in present], crs
    if isinstance(tile_matrix_set, str):
        return _well_known(tile_matrix_set, stated, node, findings)
    message = f"tile_matrix_set is {tile_matrix_set!r}; expected an object or a name"
    findings.append(Finding("GZ-38", "error", node.path, message))
    return [], None


def _well_known(
    name: str, stated: Mapping[str, Any], node: GroupNode, findings: list[Finding]
) -> tuple[list[LevelEntry], Crs | None]:
    limits = stated.get("tile_matrix_set_limits", stated.get("tile_matrix_limits"))
    names = [child for child, found in node.members() if is_group(found)]
    paths = [path for path in limits if path in names] if isinstance(limits, Mapping) else []
    known = _resolve(name, node, findings)
    if known is None:
        return [LevelEntry(path) for path in paths or [p for p in names if p.isdecimal()]], None
    entries = []
    for path in paths or [path for path in names if path in known.tile_matrices]:
        matrix = known.tile_matrices.get(path)
        if matrix is None:
            message = f"level {path!r} is no tile matrix of {known.id}"
            findings.append(Finding("GZ-39", "error", node.path, message, sorted(known.tile_matrices), path))
            entries.append(LevelEntry(path))
            continue
        cell = (matrix.cell_size, matrix.cell_size)
        entries.append(
            LevelEntry(
                path,
                fallback_affine=matrix.affine,
                extent=matrix.shape,
                cell=cell,
                tile_shape=matrix.tile_shape,
            )
        )
    return entries, Crs.from_user(known.crs)


def _resolve(name: str, node: Node, findings: list[Finding]) -> TileMatrixSet | None:
    found, names = known_set(name), list_tile_matrix_sets()
    if found is not None:
        return found
    for known in names:
        if known.lower() == name.lower():
            message = f"tile_matrix_set is {name!r}; it is taken for {known!r}"
            findings.append(Finding("GZ-38", "error", node.path, message, known, name))
            return load_tile_matrix_set(known)
    message = f"tile_matrix_set {name!r} is not one zstore knows; the levels' own georeference counts"
    # A URI may lead somewhere, for those who have a network.
    severity: Severity = "warning" if "://" in name else "error"
    findings.append(Finding("GZ-38", severity, node.path, message, names, name))
    return None


def parse_tile_matrix_crs(
    tile_matrix_set: Mapping[str, Any], path: str, findings: list[Finding]
) -> Crs | None:
    """The CRS of a tile matrix set: `crs`, else TMS 1.0's `supportedCRS`, in any notation."""
    for member in ("crs", "supportedCRS"):
        stated = tile_matrix_set.get(member)
        if isinstance(stated, Mapping):
            stated = stated.get("uri", stated.get("wkt", stated))
        if stated is None:
            continue
        for _, crs in parse_crs(f"tile_matrix_set {member}", stated, "GZ-40", path, findings):
            return crs
    return None


def _listed(tile_matrix_set: Mapping[str, Any]) -> list[Any] | None:
    found = tile_matrix_set.get("tileMatrices", tile_matrix_set.get("tile_matrices"))
    return found if isinstance(found, list) else None


def tile_matrices(stated: Any) -> dict[str, Mapping[str, Any]]:
    """The tile matrices, by id, that a `multiscales` object lists in full; {} where it names a set."""
    found = member_of(stated, "tile_matrix_set")
    return {
        str(matrix["id"]): matrix
        for matrix in (_listed(found) or () if isinstance(found, Mapping) else ())
        if isinstance(matrix, Mapping) and isinstance(matrix.get("id"), (str, int))
    }


def known_set(name: Any) -> TileMatrixSet | None:
    """The tile matrix set of that name; None where zstore has none."""
    try:
        return load_tile_matrix_set(name) if isinstance(name, str) else None
    except NotFoundError:
        return None


def parse_tile_matrices(
    tile_matrix_set: Mapping[str, Any], crs: Crs | None, node: Node, findings: list[Finding]
) -> list[LevelEntry]:
    """One entry per tile matrix, with the affine that its origin and cell size come to."""
    matrices = _listed(tile_matrix_set)
    if matrices is None or "tileMatrices" not in tile_matrix_set:
        message = f"tile_matrix_set has no list tileMatrices; it has {sorted(map(str, tile_matrix_set))}"
        findings.append(Finding("GZ-38", "error", node.path, message, "tileMatrices"))
    if matrices is None:
        return []
    is_y_first = _is_y_first(tile_matrix_set.get("orderedAxes"), crs)
    entries = []
    for matrix in matrices:
        if not isinstance(matrix, Mapping) or not isinstance(matrix.get("id"), (str, int)):
            message = f"tile matrix {matrix!r} has no id; it is left out"
            findings.append(Finding("MS-25", "error", node.path, message))
            continue
        entries.append(_entry(matrix, crs, is_y_first, node, findings))
    return entries


def _entry(
    matrix: Mapping[str, Any], crs: Crs | None, is_y_first: bool, node: Node, findings: list[Finding]
) -> LevelEntry:
    path = str(matrix["id"])
    cell = _positive(matrix.get("cellSize"))
    tile = (_positive(matrix.get("tileHeight")), _positive(matrix.get("tileWidth")))
    missing = [key for key in ("cellSize", "pointOfOrigin", "tileWidth", "tileHeight") if key not in matrix]
    if missing:
        message = f"tile matrix {path!r} has no {', '.join(missing)}"
        findings.append(Finding("MS-25", "warning", node.path, message))
    denominator = _positive(matrix.get("scaleDenominator"))
    if cell is not None and denominator is not None and crs is not None:
        expected = cell * crs.metres_per_unit / PIXEL
        if abs(denominator - expected) > 1e-6 * expected:
            message = (
                f"scaleDenominator of tile matrix {path!r} is {denominator!r}; its cellSize says {expected!r}"
            )
            findings.append(Finding("GZ-45", "error", node.path, message, expected, denominator))
    origin = parse_numbers(matrix.get("pointOfOrigin"), 2)
    affine = None
    if cell is not None and origin is not None:
        x, y = origin[::-1] if is_y_first else origin
        is_south_up = matrix.get("cornerOfOrigin") == "bottomLeft"
        affine = Affine(cell, 0.0, float(x), 0.0, cell if is_south_up else -cell, float(y))
    tile_shape = (int(tile[0]), int(tile[1])) if tile[0] is not None and tile[1] is not None else None
    counts = (_positive(matrix.get("matrixHeight")), _positive(matrix.get("matrixWidth")))
    extent = None
    if tile_shape is not None and counts[0] is not None and counts[1] is not None:
        extent = (int(counts[0]) * tile_shape[0], int(counts[1]) * tile_shape[1])
    return LevelEntry(
        path,
        fallback_affine=affine if extent is not None else None,
        extent=extent,
        cell=None if cell is None else (cell, cell),
        tile_shape=tile_shape,
    )


def _positive(value: Any) -> float | None:
    return value if is_number(value) and value > 0 else None


def _is_y_first(axes: Any, crs: Crs | None) -> bool:
    if isinstance(axes, (list, tuple)) and len(axes) == 2:
        first = str(axes[0]).lower()
        if first in Y_FIRST_AXES | X_FIRST_AXES:
            return first in Y_FIRST_AXES
    return crs is not None and crs.is_y_first


def enlarge_tiles(matrix: TileMatrix, times: int) -> TileMatrix:
    """A tile matrix of the same tiles, each `times` as many cells wide and high."""
    height, width = matrix.tile_shape
    return replace(
        matrix,
        scale_denominator=matrix.scale_denominator / times,
        cell_size=matrix.cell_size / times,
        tile_shape=(height * times, width * times),
    )


def name_set(
    multiscales: Mapping[str, Any], known: TileMatrixSet, times: int, limits: Mapping[str, Limits]
) -> dict[str, Any]:
    """The `multiscales` object of a pyramid on the grids of `known`: with the set's name and these limits.

    The set is written out, with the matrices that there are: some readers take no bare name, and all of them
    know the set by its `id`. `times` is how often its tiles are enlarged; the set is another one then.

    Raises
        MetadataError: there is no tile matrix set in `multiscales`, or it has other levels.
    """
    stated = multiscales.get("tile_matrix_set")
    if not isinstance(stated, Mapping):
        raise MetadataError(f"multiscales has the members {sorted(multiscales)}; expected tile_matrix_set")
    names = [matrix["id"] for matrix in stated["tileMatrices"]]
    if set(names) != set(limits):
        raise MetadataError(f"limits are given for {sorted(limits)}; expected the levels {sorted(names)}")
    is_own = times > 1
    naming = {"id": f"{known.id}_{times}x" if is_own else known.id, "title": known.title}
    if is_own:
        naming["title"] = f"{known.title}, tiles {times} times as wide and high"
    elif "uri" in known.document:
        naming["uri"] = known.document["uri"]
    rendered = render_limits({name: limits[name] for name in multiscales["tile_matrix_set_limits"]})
    return {**multiscales, "tile_matrix_set": {**stated, **naming}, **rendered}
