"""Rasters that lie oddly on the globe, or hold next to nothing: right tiles, or an error by name."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.tilesets.registry import load_tile_matrix_set
from zstore.geo.conventions.write import render_geo
from zstore.geo.pictures.quicklook import preview, quicklook
from zstore.geo.pyramid.tile_grid import GridTransform, cover
from zstore.geo.resampling import methods

pyproj = pytest.importorskip("pyproj")

UTM = Affine(30, 0, 600000, 0, -30, 5300000)
DEGREES = "OGC:CRS84"


def build(place: Path, data: np.ndarray, affine: Affine, crs: Any = DEGREES, **options: Any) -> zstore.Group:
    """A tile pyramid of a raster whose nodata is 0; the places of its cells are exact."""
    variables = {"b": Variable(dtype=data.dtype, nodata=0, dimensions=("y", "x"))}
    geo = GeoModel(Crs.from_user(crs), affine, data.shape, variables=variables)
    documents = render_geo(geo, 3, profile="gdal")[0]
    group = zstore.create_group(place / "source", attributes=documents[""]["attributes"])
    said = documents["b"]
    group.create_array(
        "b",
        data=data,
        fill_value=said["fill_value"],
        attributes=said["attributes"],
        dimension_names=said["dimension_names"],
    )
    return zstore.build_tile_pyramid(group, place / "made", **{"tolerance": 0, **options})


def scene(shape: tuple[int, int] = (40, 40)) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 5000, shape).astype("u2")


def finest_cells(group: zstore.Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All cells of the finest level, and the longitudes and latitudes of their centres."""
    level = group.attrs["multiscales"]["layout"][0]["asset"]
    affine = Affine.from_user(group[level].attrs["spatial:transform"])
    cells = group[f"{level}/b"][...]
    columns, rows = np.meshgrid(np.arange(cells.shape[1]) + 0.5, np.arange(cells.shape[0]) + 0.5)
    x, y = affine.a * columns + affine.c, affine.e * rows + affine.f
    return cells, *pyproj.Transformer.from_crs(3857, 4326, always_xy=True).transform(x, y)


@pytest.mark.parametrize(
    "affine",
    [
        Affine(0.5, 0, 170, 0, -0.5, 10),
        Affine(0.5, 0, -190, 0, -0.5, 10),
        Affine(0.5, 0, 530, 0, -0.5, 10),
        Affine(-0.5, 0, -170, 0, -0.5, 10),
        Affine(0.5, 0, 170, 0, 0.5, -10),
        Affine(0.5, 0.2, 168, 0.2, -0.5, 10),
        Affine(0.5, -0.2, -182, 0.2, 0.5, -15),
    ],
)
def test_wherever_degrees_begin_and_whichever_way_they_run(tmp_path: Path, affine: Affine) -> None:
    data = scene()
    cells, east, north = finest_cells(build(tmp_path, data, affine, method="nearest"))
    want = np.zeros(cells.shape, "u2")
    size = affine.a * affine.e - affine.b * affine.d
    for turn in (-720, -360, 0, 360, 720):
        x, y = east + turn - affine.c, north - affine.f
        columns, rows = (affine.e * x - affine.b * y) / size, (affine.a * y - affine.d * x) / size
        inside = (columns >= 0) & (columns < 40) & (rows >= 0) & (rows < 40)
        want[inside] = data[rows[inside].astype(int), columns[inside].astype(int)]
    np.testing.assert_array_equal(cells, want)
    assert (want[:, : len(want) // 4] > 0).any() and (want[:, -len(want) // 4 :] > 0).any()


@pytest.mark.parametrize("north", [89.9, -86.0, 95.0])
def test_beyond_the_latitudes_of_the_set(tmp_path: Path, north: float) -> None:
    height = 9 if north > 90 else 39
    with pytest.raises(MetadataError, match="outside"):
        build(tmp_path, scene((height, 40)), Affine(0.1, 0, 10, 0, -0.1, north))
    assert not (tmp_path / "made").exists()


def test_across_the_edge_of_the_set_what_lies_inside_is_kept(tmp_path: Path) -> None:
    data = scene((400, 400))
    cells, east, north = finest_cells(
        build(tmp_path, data, Affine(0.01, 0, 10, 0, -0.01, 87), method="nearest", max_zoom=2)
    )
    columns, rows = (east - 10) * 100, (87 - north) * 100
    inside = (columns >= 0) & (columns < 400) & (rows >= 0) & (rows < 400)
    want = np.zeros(cells.shape, "u2")
    want[inside] = data[rows[inside].astype(int), columns[inside].astype(int)]
    assert inside.any()
    np.testing.assert_array_equal(cells, want)


@pytest.mark.parametrize("sampling", ["nearest", "bilinear", "cubic", "average"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1)])
def test_one_cell_and_lines_of_cells(tmp_path: Path, shape: tuple[int, int], sampling: str) -> None:
    group = build(tmp_path, np.full(shape, 7, "u2"), UTM, 32632, sampling=sampling, max_zoom=13)
    limits = group.attrs["multiscales"]["tile_matrix_limits"]["13"]
    rows = range(limits["minTileRow"], limits["maxTileRow"] + 1)
    columns = range(limits["minTileCol"], limits["maxTileCol"] + 1)
    seen = np.concatenate([group.tile(13, x, y).ravel() for x in columns for y in rows])
    # As much as the source covers, of that value and of no other.
    assert set(np.unique(seen)) == {0, 7}
    ground = shape[0] * shape[1] * 900 / (19.11 * np.cos(np.radians(47.8))) ** 2
    assert 0.5 * ground <= (seen == 7).sum() <= (2 if sampling != "average" else 5) * ground + 4


@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_nothing_but_nodata_stores_nothing(tmp_path: Path, dtype: str) -> None:
    group = build(tmp_path, np.zeros((60, 60), dtype), UTM, 32632)
    assert not list((tmp_path / "made").rglob("b/c"))
    assert not quicklook(group, size=64)[..., -1].any()
    updated = zstore.update_pyramid(group, source=tmp_path / "source")
    assert updated.attrs["multiscales"] == group.attrs["multiscales"]


@pytest.mark.parametrize("level", ["0", "2"])
def test_a_small_raster_lies_in_a_tile_wherever_it_is(level: str) -> None:
    matrix, crs = load_tile_matrix_set("WebMercatorQuad")[level], Crs.from_user(3857)
    for west in np.arange(-181.3, 540, 6.7):
        affine = Affine(0.3, 0, west, 0, -0.3, 15.5)
        transform = GridTransform(Crs.from_user(DEGREES), affine, (16, 16), crs, matrix.affine, 0)
        grid = np.meshgrid(np.arange(16) + 0.5, np.arange(16) + 0.5)
        columns, rows = transform.to_target(*grid)
        columns %= matrix.shape[1]
        inside = np.unique(np.stack([rows // 256, columns // 256], axis=-1).reshape(-1, 2), axis=0)
        found = set(map(tuple, cover(transform, matrix).tolist()))
        assert set(map(tuple, inside.astype(int).tolist())) <= found, west


@pytest.mark.parametrize("zoom", ["WebMercatorQuad", "WorldCRS84Quad"])
def test_levels_on_tile_matrices_have_bounds_of_their_cells(tmp_path: Path, zoom: str) -> None:
    group, edges = zstore.create_group(tmp_path / "s"), np.arange(9.0)
    group.create_array("a", data=np.ones((8, 8), "f4"), dimension_names=["lat", "lon"])
    for name, unit in (("lat", "degrees_north"), ("lon", "degrees_east")):
        bounds = np.stack([edges[:-1], edges[1:]], axis=1) + 3
        said = {"units": unit, "bounds": f"{name}_bnds"}
        group.create_array(name, data=bounds.mean(1), dimension_names=[name], attributes=said)
        said = {"units": unit}
        group.create_array(f"{name}_bnds", data=bounds, dimension_names=[name, "bnds"], attributes=said)
    with pytest.warns(zstore.errors.ReadingWarning, match="CRS84"):
        made = zstore.build_tile_pyramid(group, tmp_path / "made", zoom, max_zoom="1")
    for _, level in made.groups():
        for name in ("lat", "lon"):
            centres, bounds = level[name][...], level[level[name].attrs["bounds"]]
            step = (centres[1] - centres[0]) / 2
            expected = np.sort(np.stack([centres - step, centres + step], axis=1), axis=1)
            np.testing.assert_allclose(np.sort(bounds[...], axis=1), expected, atol=1e-6)
            assert "units" not in bounds.attrs
    assert [str(one) for one in zstore.validate(made).findings if one.severity == "error"] == []


def test_around_a_pole_places_need_not_lie_densely() -> None:
    affine = Affine(25000, 0, -3800000, 0, -25000, 3200000)
    matrix = load_tile_matrix_set("WebMercatorQuad")["6"]
    transform = GridTransform(Crs.from_user(3413), affine, (300, 300), Crs.from_user(3857), matrix.affine, 0)
    transformed = 0

    class Counting(GridTransform):
        def to_target(self, columns: Any, rows: Any) -> Any:
            nonlocal transformed
            transformed += columns.size
            return super().to_target(columns, rows)

    tiles = cover(Counting(**vars(transform)), matrix)
    assert transformed < 300_000
    # Each tile on its own: those under which any cell of the source lies are there.
    every = np.stack(np.meshgrid(np.arange(64), np.arange(64), indexing="ij"), axis=-1).reshape(-1, 2)
    inside = []
    for row, column in every.tolist():
        grid_ = np.meshgrid(column * 256 + np.arange(8) * 32 + 16.0, row * 256 + np.arange(8) * 32 + 16.0)
        columns, rows = transform.to_source(grid_[0], grid_[1])
        if ((columns >= 0) & (columns < 300) & (rows >= 0) & (rows < 300)).any():
            inside.append((row, column))
    assert set(inside) <= set(map(tuple, tiles.tolist()))
    assert len(tiles) < 1.3 * len(inside) + 20


def test_levels_finer_than_any_raster_cost_what_the_data_cost(tmp_path: Path) -> None:
    affine = Affine(0.01, 0, 600000, 0, -0.01, 5300000)
    group = build(tmp_path, scene((200, 200)), affine, 32632, method="average")
    finest = group.attrs["multiscales"]["layout"][0]["asset"]
    assert finest == "23" and group["23/b"].shape == (2**31, 2**31)
    limits = group.attrs["multiscales"]["tile_matrix_limits"]["23"]
    tiles = [
        group.tile(23, x, y)
        for x in range(limits["minTileCol"], limits["maxTileCol"] + 1)
        for y in range(limits["minTileRow"], limits["maxTileRow"] + 1)
    ]
    assert sum(int((tile > 0).sum()) for tile in tiles) > 10_000


@pytest.mark.parametrize("method", ["average", "nearest", "gauss", "bilinear", "lanczos"])
@pytest.mark.parametrize("kind", methods.GRIDS)
def test_what_shows_where_is_found_at_the_ends_alone(method: str, kind: str) -> None:
    for size, factor in ((1, 2), (7, 2), (100, 3), (333, 7), (40, 64), (97, 16)):
        span = methods.Span(size, factor, kind, 0, 0)
        span = span._replace(end=span.result_size)
        gauss = methods.gauss_size(span.ratio)
        sources = [
            methods.source_slice(span._replace(begin=n, end=n + 1), method, gauss)
            for n in range(span.result_size)
        ]
        for begin in range(0, size, 3):
            for end in (begin + 1, min(size, begin + 11), size):
                found = [n for n, side in enumerate(sources) if side.start < end and side.stop > begin]
                want = slice(found[0], found[-1] + 1) if found else slice(0, 0)
                assert methods.result_slice(span, method, gauss, begin, end) == want


# Small rasters beside lines that no tile crosses: Greenwich and the equator, the antimeridian.
PLACES = [
    ("average", Affine(1e-5, 0, -6e-4, 0, -1e-5, 5e-4), DEGREES),
    ("max", Affine(1e-5, 0, 179.9994, 0, -1e-5, 5e-4), DEGREES),
    ("mode", Affine(1e-5, 0, 179.9994, 0, -1e-5, -45.0), DEGREES),
    ("bilinear", Affine(0.5, 0, 499970, 0, -0.5, 25), 32631),
]


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Pyramids of a small raster at each of those places, and how much memory (MiB) they took."""
    place = tmp_path_factory.mktemp("spread")
    script = """
        import resource, sys
        from pathlib import Path
        from tests.pyramid.test_tile_edges import PLACES, build, scene
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, (method, affine, crs) in enumerate(PLACES):
            build(Path(sys.argv[1]) / str(number), scene((100, 120)), affine, crs, method=method)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(place)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    return place, int(done.stdout)


def test_a_coarse_tile_costs_what_its_data_cost(spread: tuple[Path, int]) -> None:
    # The window of the coarsest level's one tile is 32 GiB; two threads read 64 MiB each at a time.
    assert spread[1] < 600


def stored_cells(group: zstore.Group, level: str) -> dict[tuple[int, int], int]:
    """The cells of the stored tiles of a level that hold anything, by row and column."""
    array, found = group[f"{level}/b"], {}
    for key in array.store.list(array.path):
        parts = key.removeprefix(array.path).split("/")[-2:]
        if all(part.isdecimal() for part in parts):
            row, column = (int(part) * 256 for part in parts)
            tile = array[row : row + 256, column : column + 256]
            for y, x in np.argwhere(tile).tolist():
                found[row + y, column + x] = int(tile[y, x])
    return found


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_every_level_is_made_of_the_cells_that_there_are(spread: tuple[Path, int], number: int) -> None:
    group = zstore.open_group(spread[0] / str(number) / "made", mode="r")
    method, affine, crs = PLACES[number]
    finest, *coarser = [entry["asset"] for entry in group.attrs["multiscales"]["layout"]]
    cells, world, width = stored_cells(group, finest), 20037508.342789244, 2 ** (8 + int(finest))
    # Where PROJ has the raster's middle; rows and columns of the set are counted from its top left.
    x, y = pyproj.Transformer.from_crs(crs, 3857, always_xy=True).transform(*affine.at(60.0, 50.0))
    row, column = (world - y) * width / world / 2, (x + world) * width / world / 2
    far = [
        max(abs(r - row), min((c - column) % width, (column - c) % width)) for r, c in np.array(list(cells))
    ]
    assert len(cells) > 5000 and max(far) < 130
    assert coarser[-1] == "0"
    for level in coarser:
        times = 2 ** (int(finest) - int(level))
        inside: dict[tuple[int, int], list[int]] = {}
        for (r, c), value in cells.items():
            inside.setdefault((r // times, c // times), []).append(value)
        found = stored_cells(group, level)
        if method == "bilinear":
            # Its windows are wider than a cell of the level.
            reached = {(r + y, c + x) for r, c in inside for y in (-1, 0, 1) for x in (-1, 0, 1)}
            assert set(found) <= reached and found
            continue
        assert set(found) == set(inside)
        if method == "max":
            assert found == {place: max(values) for place, values in inside.items()}
        elif method == "average" and times <= 1024:
            assert found == {place: int(np.mean(values) + 0.5) for place, values in inside.items()}


def test_what_little_lies_in_the_set_is_found(tmp_path: Path) -> None:
    """Of a raster around the pole, WebMercator has the four corners."""
    group = build(tmp_path, scene((100, 120)), Affine(10000, 0, -600000, 0, -10000, 500000), 3413)
    cells, _, north = finest_cells(group)
    assert (cells > 0).any() and north[cells > 0].min() > 82


# Pictures of levels that span the world


def test_a_picture_shows_the_data_and_not_the_world(tmp_path: Path) -> None:
    data = np.full((400, 500), 9, "u2")
    data[:200] = 5000
    group = build(tmp_path, data, UTM, 32632, max_zoom=12)
    for size in (1000, 300, 100):
        image = quicklook(group, size=size)
        # The finest level is about 640 cells wide where there are data.
        assert min(size, 600) / 2.3 <= max(image.shape[:2]) <= size
        assert (image[..., -1] == 255).mean() > 0.85 and image.shape[2] == 2
        # Bright above, dark below.
        middle = image.shape[1] // 2
        assert image[image.shape[0] // 5, middle, 0] > 200 > 50 > image[-image.shape[0] // 5, middle, 0]
    assert (preview(group, size=64)[..., 3] == 255).mean() > 0.5


@pytest.mark.parametrize("west", [0, 10, 170, -180.5])
@pytest.mark.parametrize("columns", [30, 360])
def test_an_average_beside_where_the_globe_is_cut_is_of_cells_nearby(
    tmp_path: Path, west: float, columns: int
) -> None:
    data = np.broadcast_to(np.arange(1, columns + 1, dtype="u2") * 100, (40, columns))
    affine = Affine(1, 0, west, 0, -1, 20)
    made = {}
    for sampling in ("average", "nearest"):
        group = build(tmp_path / sampling, data, affine, sampling=sampling, max_zoom=2, min_zoom=2)
        made[sampling] = group["2/b"][...].astype(int)
    has_both = (made["average"] > 0) & (made["nearest"] > 0)
    assert has_both.sum() >= 0.99 * (made["nearest"] > 0).sum()
    off = np.abs(made["average"] - made["nearest"])[has_both]
    # A cell of the level is narrower than one of the raster; beside the cut, the next one may be the last.
    assert np.minimum(off, columns * 100 - off).max() <= 100
