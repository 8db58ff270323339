"""Exported tiles beside those that are served, read back by others; interrupted exports; what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if not entry_points(group="zstore", name="serve"):
    pytest.skip("zstore-serve is not installed, so it has no entry point", allow_module_level=True)
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

from PIL import Image
from zstore_serve import pictures, router
from zstore_serve.export import export, export_site

import zstore
from zstore.errors import CodecError, MetadataError, StoreError, ZstoreError
from zstore.geo.conventions.base import Affine
from zstore.testing.commands import CommandContract
from zstore.testing.jobs import JobContract

from .applications import get, write

WORDS = "bands=1&rescale=0,250&colormap=viridis"
SHAPE = (300, 400)


class TestExport(CommandContract):
    name = "export"


class TestExportJob(JobContract):
    name = "export"

    def arguments(self, place: Path) -> dict[str, Any]:
        values = np.random.default_rng(1).integers(1, 250, (300, 400)).astype("u1")
        write(place / "utm.zarr", values, "EPSG:32632", Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0))
        return {"source": str(place / "utm.zarr"), "target": str(place / "map.mbtiles")}

    def outcome(self, place: Path) -> Any:
        with closing(sqlite3.connect(place / "map.mbtiles")) as archive:
            return archive.execute("SELECT * FROM tiles ORDER BY 1, 2, 3").fetchall()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("export")
    values = np.random.default_rng(1).integers(1, 250, SHAPE).astype("u1")
    write(place / "utm.zarr", values, "EPSG:32632", Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0))
    return place / "utm.zarr"


def served(store: Path, z: int, x: int, y: int, words: str = WORDS) -> bytes:
    return get(
        router(store), f"/collections/{store.name}/tiles/WebMercatorQuad/{z}/{x}/{y}.png?{words}"
    ).content


def is_empty(tile: bytes) -> bool:
    return not np.asarray(Image.open(io.BytesIO(tile)).convert("RGBA"))[..., 3].any()


def test_an_archive_is_read_by_its_own_package(store: Path, tmp_path: Path) -> None:
    from pmtiles.reader import MmapSource, Reader, all_tiles

    seen: list[tuple[int, int]] = []
    count = export(store, tmp_path / "m.pmtiles", query=WORDS, progress=lambda *done: seen.append(done))
    assert seen[-1][0] == seen[-1][1]
    with (tmp_path / "m.pmtiles").open("rb") as file:
        reader = Reader(MmapSource(file))
        header, found = reader.header(), dict(all_tiles(MmapSource(file)))
        assert len(found) == count and reader.metadata()["name"] == "utm.zarr"
        zooms = sorted({z for z, _, _ in found})
        assert zooms == list(range(header["min_zoom"], header["max_zoom"] + 1)) and len(zooms) > 1
        assert 8.7e7 < header["min_lon_e7"] < 8.75e7 < header["max_lon_e7"] < 8.95e7
        for (z, x, y), tile in found.items():
            assert tile == served(store, z, x, y)
            for column, row in ((x - 1, y), (x, y + 1)):
                assert (z, column, row) in found or is_empty(served(store, z, column, row))
    assert [path.name for path in tmp_path.iterdir()] == ["m.pmtiles"]


def test_a_database_is_read_by_gdal(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "m.mbtiles"
    export(store, place, query=WORDS)
    with closing(sqlite3.connect(place)) as base:
        said = dict(base.execute("select name, value from metadata"))
        z, x, south = next(
            base.execute(
                "select zoom_level, tile_column, tile_row from tiles order by 1 desc, 2, 3 limit 1 offset 4"
            )
        )
        (tile,) = next(
            base.execute(
                "select tile_data from tiles where (zoom_level, tile_column, tile_row) = (?, ?, ?)",
                (z, x, south),
            )
        )
    y = (1 << z) - 1 - south
    assert tile == served(store, z, x, y) and int(said["maxzoom"]) == z
    rasterio = pytest.importorskip(
        "rasterio", reason="GDAL's warp is asked through rasterio (extra 'raster')"
    )
    from zstore.geo.conventions.tilesets.registry import load_tile_matrix_set

    matrix = load_tile_matrix_set("WebMercatorQuad")[str(z)]
    west, north = matrix.affine.at(x * 256.0, y * 256.0)
    with rasterio.open(place) as raster:
        assert raster.crs == "EPSG:3857"
        theirs, corner = np.moveaxis(raster.read(), 0, -1), raster.transform
    # GDAL cuts the tiles to the bounds that the database states.
    row, column = round((north - corner.f) / corner.e), round((west - corner.c) / corner.a)
    theirs = theirs[max(0, row) : row + 256, max(0, column) : column + 256]
    ours = np.asarray(Image.open(io.BytesIO(tile)).convert("RGBA"))
    ours = ours[max(0, -row) :, max(0, -column) :][: theirs.shape[0], : theirs.shape[1]]
    kept = ours[..., 3] > 0
    assert kept.sum() > 1000
    assert np.array_equal(theirs[kept][:, :3], ours[kept][:, :3])


def test_a_folder_holds_other_sets_too(store: Path, tmp_path: Path) -> None:
    count = export(store, tmp_path / "tiles", tiles="WorldCRS84Quad", zooms=(9, 11), format="webp")
    found = sorted(tmp_path.glob("tiles/*/*/*.webp"))
    assert len(found) == count and {path.parts[-3] for path in found} == {"9", "10", "11"}
    assert json.loads((tmp_path / "tiles/tilejson.json").read_text("utf-8"))["tiles"] == ["{z}/{x}/{y}.webp"]
    # The limits were settled once, for all tiles.
    with pytest.raises(StoreError, match="overwrite"):
        export(store, tmp_path / "tiles")
    assert export(store, tmp_path / "tiles", zooms=(9, 9), overwrite=True) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiles"]


def test_an_interrupted_export_shows_nothing_and_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = export(store, tmp_path / "whole.pmtiles", query=WORDS)
    drawn: list[int] = []
    draw = pictures.PictureMaker.make

    async def break_down(self: Any, *args: Any) -> Any:
        drawn.append(1)
        if len(drawn) > whole // 2:
            raise OSError("the disk is full")
        return await draw(self, *args)

    monkeypatch.setattr(pictures.PictureMaker, "make", break_down)
    for name in ("m.pmtiles", "folder"):
        drawn.clear()
        with pytest.raises(OSError, match="disk is full"):
            export(store, tmp_path / name, query=WORDS)
        assert not (tmp_path / name).exists()
        with pytest.raises(StoreError, match="unfinished"):
            export(store, tmp_path / name, query=WORDS)
        with pytest.raises(MetadataError, match="other arguments"):
            export(store, tmp_path / name, query="bands=1&rescale=0,10", resume=True)
        drawn.clear()
        monkeypatch.setattr(pictures.PictureMaker, "make", lambda *args: (drawn.append(1), draw(*args))[1])
        assert export(store, tmp_path / name, query=WORDS, resume=True) == whole
        assert 0 < len(drawn) < whole
        monkeypatch.setattr(pictures.PictureMaker, "make", break_down)
    assert (tmp_path / "m.pmtiles").read_bytes() == (tmp_path / "whole.pmtiles").read_bytes()
    kept = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert kept == {"m.pmtiles", "folder", "whole.pmtiles"}
    # The fingerprint is all that stays beside an export that went on: it tells that nothing has changed.
    drawn.clear()
    assert export(store, tmp_path / "m.pmtiles", query=WORDS, resume=True) == whole and not drawn


def test_what_makes_no_tiles_is_refused(store: Path, tmp_path: Path) -> None:
    for words, said in (
        ({"query": "band=1"}, "no parameter 'band'"),
        ({"zooms": (3, 40)}, "zooms are 3 to 40"),
        ({"tiles": "none"}, "no tile matrix set"),
        ({"collection": "other"}, "collection is 'other'"),
        ({"format": "npy"}, "format is 'npy'"),
    ):
        with pytest.raises(MetadataError, match=said):
            export(store, tmp_path / "x", **words)
    with pytest.raises(MetadataError, match="holds those of WebMercatorQuad"):
        export(store, tmp_path / "x.pmtiles", tiles="WorldCRS84Quad")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="no export made"):
        export(store, tmp_path / "mine", overwrite=True)
    with pytest.raises(StoreError, match="there is a file"):
        export(store, tmp_path / "mine" / "letter.txt", overwrite=True)
    for place in ("s3://b/map.pmtiles", "s3://b/tiles"):
        with pytest.raises(StoreError, match="expected a path on a disk, not a URL"):
            export(store, place)
        with pytest.raises(StoreError, match="expected a path on a disk, not a URL"):
            export_site([store], place)
    for name in ("map.pmtile", "map.zip", "map.tif"):
        with pytest.raises(StoreError, match=r"pmtiles"):
            export(store, tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "letter.txt"]


def test_a_globe_is_exported_once_around(tmp_path: Path) -> None:
    values = np.tile(np.arange(1, 181, dtype="u1"), (90, 1))
    source = tmp_path / "globe.zarr"
    write(source, values, "OGC:CRS84", Affine(2.0, 0, 0.0, 0, -2.0, 90.0))
    assert export(source, tmp_path / "g.mbtiles", zooms=(0, 2), query="rescale=0,200") == 1 + 4 + 16


def test_a_site_has_all_scenes(store: Path, tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "plain.zarr", data=np.ones((300, 500), "u1"), chunks=100)
    count = export_site([store, tmp_path / "plain.zarr"], tmp_path / "site")
    listed = json.loads((tmp_path / "site" / "tilejson.json").read_text("utf-8"))
    assert [(one["id"], one["set"]) for one in listed] == [
        ("utm.zarr", "WebMercatorQuad"), ("plain.zarr", "pixels"),
    ]  # fmt: skip
    assert len(list((tmp_path / "site").glob("*/*/*/*.png"))) == count
    assert b"<html" in (tmp_path / "site" / "index.html").read_bytes()


def test_a_scene_takes_the_name_of_no_file_of_the_site(tmp_path: Path) -> None:
    names = ["tilejson.json", "index.html", "ol.js", "ol.css"]
    for name in names:
        (tmp_path / name).mkdir()
        zstore.create_array(tmp_path / name, data=np.ones((8, 8), "u1"))
    assert export_site([tmp_path / name for name in names], tmp_path / "site") == 4
    listed = json.loads((tmp_path / "site" / "tilejson.json").read_text("utf-8"))
    assert [one["name"] for one in listed] == names
    assert all((tmp_path / "site" / one["tiles"][0].format(z=0, x=0, y=0)).is_file() for one in listed)


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize("name", ["tiles", "map.mbtiles"])
def test_tiles_of_a_damaged_chunk_are_left_out(store: Path, tmp_path: Path, name: str) -> None:
    """All others are as they are without the damage, and the error comes at the end."""
    shutil.copytree(store, tmp_path / "damaged.zarr")
    [chunk] = sorted((tmp_path / "damaged.zarr").rglob("c/1/0"))
    whole = chunk.read_bytes()
    chunk.write_bytes(b"no frame")
    damaged, words = tmp_path / "damaged.zarr", {"query": WORDS, "zooms": (10, 13)}
    export(store, tmp_path / "whole", **words)
    for _ in range(2):
        with pytest.raises(CodecError, match=r"c/1/0"):
            export(damaged, tmp_path / name, resume=True, overwrite=True, **words)
        found, expected = tiles_in(tmp_path / name), tiles_in(tmp_path / "whole")
        assert 0 < len(found) < len(expected) and found.items() <= expected.items()
    chunk.write_bytes(whole)
    export(damaged, tmp_path / name, resume=True, overwrite=True, **words)
    assert tiles_in(tmp_path / name) == expected


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize("damage", ["codec", "chunk"])
def test_a_band_that_cannot_be_read_gives_way_to_others(tmp_path: Path, damage: str) -> None:
    group, values = zstore.create_group(tmp_path / "a"), np.arange(64 * 64, dtype="u2").reshape(64, 64)
    for name in ("bad", "good"):
        group.create_array(name, data=values, chunks=32, dimension_names=["y", "x"])
    document = tmp_path / "a" / "bad" / "zarr.json"
    if damage == "codec":
        document.write_text(document.read_text().replace('"zstd"', '"nobodys_codec"'))
    else:
        (tmp_path / "a" / "bad" / "c" / "0" / "1").write_bytes(b"no frame")
    with pytest.raises(ZstoreError, match="nobodys_codec" if damage == "codec" else "bad/c/0/1"):
        export(tmp_path / "a", tmp_path / "tiles")
    export(tmp_path / "a" / "good", tmp_path / "alone")
    assert tiles_in(tmp_path / "tiles") == tiles_in(tmp_path / "alone")


def tiles_in(place: Path) -> dict[Any, bytes]:
    """The tiles of a folder or of a database by zoom, column and row from the south."""
    if place.is_dir():
        tiles = {tuple(map(int, path.with_suffix("").parts[-3:])): path for path in place.rglob("*.png")}
        return {(z, x, (1 << z) - 1 - y): path.read_bytes() for (z, x, y), path in tiles.items()}
    with closing(sqlite3.connect(place)) as base:
        return {tuple(row[:3]): row[3] for row in base.execute("select * from tiles")}


def test_exports_in_notebooks(tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "a", data=np.ones((8, 8), "u1"))

    async def cell() -> int:
        return export(tmp_path / "a", tmp_path / "tiles")

    assert asyncio.run(cell()) == 1


def test_processes_that_stay_read_what_is_there_now(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        for size in (300, 100):
            data = np.arange(size * size, dtype="u2").reshape(size, size)
            zstore.create_array(tmp_path / "a", data=data, chunks=64, overwrite=True)
            for name, executor in (("own", None), ("others", processes)):
                export(tmp_path / "a", tmp_path / name, overwrite=True, executor=executor)
            own, others = (
                {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.png")}
                for folder in (tmp_path / "own", tmp_path / "others")
            )
            assert own == others


def test_the_command_says_how_to_go_on(store: Path, tmp_path: Path) -> None:
    done = CommandContract.run("export", str(store), str(tmp_path / "m.pmtiles"), "--zooms", "9-10", "--json")
    assert done.returncode == 0, done.stderr
    expected = export(store, tmp_path / "same.pmtiles", zooms=(9, 10))
    assert json.loads(done.stdout)["tiles"] == expected > 1
    again = CommandContract.run("export", str(store), str(tmp_path / "m.pmtiles"))
    assert again.returncode == 1 and "overwrite" in again.stderr and "Traceback" not in again.stderr
    assert CommandContract.run("serve", str(store), "--resume").returncode == 2


@pytest.mark.parametrize(
    ("dtype", "nodata", "others"),
    [("i2", -1, (-2, -3)), ("f4", 1e20, (-5.0,)), ("u1", 255, (254,))],
)
def test_several_values_of_nodata_are_as_one(tmp_path: Path, dtype: str, nodata: Any, others: Any) -> None:
    """Pictures, values and exported tiles are those of a store with one nodata in the place of all."""
    random = np.random.default_rng(3)
    values = random.integers(0, 100, (90, 120)).astype(dtype)
    values[20:50, 30:70] = others[-1]
    for hole in (nodata, *others):
        values[random.random(values.shape) < 0.1] = hole
    if dtype == "f4":
        values[60:64] = np.nan
    is_hole = np.isin(values, np.array([nodata, *others], dtype)) | (values != values)
    alone = np.where(is_hole, nodata, values).astype(dtype)
    place = "EPSG:32632", Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0)
    made = []
    for name, cells, more in (("several", values, others), ("one", alone, ())):
        write(tmp_path / name / "a.zarr", cells, *place, nodata=nodata, other_nodata=more)
        application = router(tmp_path / name / "a.zarr")
        queries = ("", "?resampling=bilinear", "?resampling=cubic&colormap=viridis", "?expression=b1*2")
        pictures = [get(application, f"/collections/a.zarr/preview.png{query}").picture for query in queries]
        assert (pictures[0][..., 3] == 0).any() and (pictures[0][..., 3] == 255).any()
        export(tmp_path / name / "a.zarr", tmp_path / name / "tiles")
        tiles = {
            str(path.relative_to(tmp_path / name)): np.asarray(Image.open(path).convert("RGBA"))
            for path in sorted((tmp_path / name).glob("tiles/*/*/*.png"))
        }
        made.append([*pictures, *tiles.values()])
    assert len(made[0]) == len(made[1]) > len(queries)
    for found, expected in zip(*made, strict=True):
        np.testing.assert_array_equal(found, expected)
