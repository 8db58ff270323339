"""Pyramids on tile matrix sets after their source has changed: the same as built anew, the rest untouched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import MetadataError, SelectionError, StoreError
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.tile_grid import rectangles

pytest.importorskip("pyproj")

UTM = Affine(30, 0, 600000, 0, -30, 5300000)
# Grids that the globe, the sampling and the tiles treat in different ways.
PLACES: dict[str, tuple[Affine, Any, int]] = {
    "utm": (UTM, 32632, 12),
    "turned": (Affine(24, 18, 600000, 18, -24, 5300000), 32632, 12),
    "south-up": (UTM._replace(e=30, f=5290000), 32632, 12),
    "antimeridian": (Affine(0.05, 0, 172, 0, -0.05, 5), "OGC:CRS84", 5),
    "globe": (Affine(1.2, 0, 0, 0, -1, 90), "OGC:CRS84", 2),
    "pole": (Affine(25000, 0, -3800000, 0, -25000, 3200000), 3413, 3),
}


def put_raster(
    place: Any, data: dict[str, np.ndarray], affine: Affine, crs: Any, **said: Any
) -> zstore.Group:
    first = next(iter(data.values()))
    names = ("time", "y", "x")[-first.ndim :]
    variables = {
        name: Variable(**{"dtype": cells.dtype, "nodata": 0, "dimensions": names, **said.get(name, {})})
        for name, cells in data.items()
    }
    geo = GeoModel(Crs.from_user(crs), affine, first.shape[-2:], variables=variables)
    group = zstore.create_group(place)
    for path, document in render_geo(geo, 3)[0].items():
        if path == "":
            group.attrs.update(document["attributes"])
            continue
        options = {"attributes": document["attributes"], "dimension_names": document["dimension_names"]}
        cells = document.get("data", data.get(path))
        chunks = (1, 64, 64)[-cells.ndim :] if path in data else "auto"
        group.create_array(path, data=cells, chunks=chunks, fill_value=document["fill_value"], **options)
    if first.ndim == 3:
        steps, said = np.arange(first.shape[0]), {"standard_name": "forecast_period"}
        group.create_array("time", data=steps, dimension_names=("time",), attributes=said)
    return group


def scene(shape: tuple[int, ...] = (300, 300), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5000, shape).astype("u2")


def chunks_of(path: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if "c" in f.parts and f.is_file()
    }


def marks_of(path: Path) -> dict[str, tuple[int, int]]:
    """What changes when a chunk is written again, though it comes out the same."""
    return {name: ((path / name).stat().st_ino, (path / name).stat().st_mtime_ns) for name in chunks_of(path)}


# The same as built anew


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from(sorted(PLACES)),
    sampling=st.sampled_from(["nearest", "bilinear", "cubic", "average"]),
    method=st.sampled_from(["average", "max", "cubic", "mode"]),
    shards=st.sampled_from([None, 2]),
    box=st.tuples(*[st.tuples(st.integers(0, 299), st.integers(1, 90))] * 2),
    value=st.sampled_from([0, 7]),
    seed=st.integers(0, 3),
)
def test_an_update_is_a_build(
    tmp_path: Path, place: str, sampling: str, method: str, shards: Any, box: Any, value: int, seed: int
) -> None:
    affine, crs, zoom = PLACES[place]
    for name in ("source", "made", "anew"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    source = put_raster(tmp_path / "source", {"b": scene(seed=seed)}, affine, crs)
    options: dict[str, Any] = {
        "sampling": sampling,
        "method": method,
        "tiles_per_shard": shards,
        "max_zoom": zoom,
        "min_zoom": max(0, zoom - 4),
        "tolerance": 0.125 if seed % 2 else 0,
    }
    zstore.build_tile_pyramid(source, tmp_path / "made", **options)
    before, marks = chunks_of(tmp_path / "made"), marks_of(tmp_path / "made")
    region = {name: slice(first, first + count) for name, (first, count) in zip("yx", box, strict=True)}
    source["b"][region["y"], region["x"]] = value
    zstore.update_pyramid(tmp_path / "made", region, source=tmp_path / "source")
    zstore.build_tile_pyramid(source, tmp_path / "anew", **options)
    after, again = chunks_of(tmp_path / "made"), chunks_of(tmp_path / "anew")
    assert after == again
    assert (tmp_path / "made/zarr.json").read_bytes().count(b'"state"') == 0
    # What was written again is what the region shows in, never more than the tiles around what has changed.
    written = {name for name, mark in marks_of(tmp_path / "made").items() if marks.get(name) != mark}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed <= written | (before.keys() - after.keys())
    if place in ("utm", "south-up", "turned") and shards is None:
        for level in {name.split("/")[0] for name in written}:
            spots = [tuple(map(int, n.split("/")[-2:])) for n in changed if n.startswith(f"{level}/")]
            for name in written:
                if name.startswith(f"{level}/") and spots:
                    row, column = map(int, name.split("/")[-2:])
                    assert min(max(abs(row - r), abs(column - c)) for r, c in spots) <= 1


def test_chunks_elsewhere_are_left_alone(tmp_path: Path) -> None:
    source = put_raster(tmp_path / "source", {"b": scene((900, 900))}, UTM, 32632)
    zstore.build_tile_pyramid(source, tmp_path / "made", method="average", sampling="bilinear", min_zoom=9)
    marks = marks_of(tmp_path / "made")
    source["b"][300:303, 500:503] = 9
    seen: list[tuple[int, int]] = []
    zstore.update_pyramid(
        tmp_path / "made",
        {"y": slice(300, 303), "x": slice(500, 503)},
        source=source,
        progress=lambda *n: seen.append(n),
    )
    written = sorted(n for n, mark in marks_of(tmp_path / "made").items() if marks[n] != mark)
    # One tile of every level holds the nine cells, and all that is made of them.
    assert [name.split("/")[0] for name in written] == ["10", "11", "12", "9"]
    assert seen == [(256 * 256, 256 * 256)]
    anew = zstore.build_tile_pyramid(source, tmp_path / "anew", sampling="bilinear", min_zoom=9)
    assert chunks_of(tmp_path / "made") == chunks_of(tmp_path / "anew")
    assert anew.attrs["multiscales"] == zstore.open(tmp_path / "made").attrs["multiscales"]


def test_time_steps_more_fewer_and_written_anew(tmp_path: Path) -> None:
    data = scene((3, 200, 220))
    source = put_raster(tmp_path / "source", {"b": data, "u": data // 2}, UTM, 32632)
    options: dict[str, Any] = {"min_zoom": 10, "method": {"u": "max"}, "sampling": {"u": "nearest"}}
    zstore.build_tile_pyramid(source, tmp_path / "made", **options)
    marks = marks_of(tmp_path / "made")

    def check(expected: set[tuple[str, str]], *arguments: Any, **more: Any) -> None:
        """(array, time) of the chunks written, after an update that comes out as a build."""
        nonlocal marks
        made = zstore.update_pyramid(tmp_path / "made", *arguments, source=source, **more)
        now = marks_of(tmp_path / "made")
        written = {name for name, mark in now.items() if marks.get(name) != mark and "/time/" not in name}
        assert {(name.split("/")[1], name.split("/")[3]) for name in written} == expected
        marks = now
        anew = zstore.build_tile_pyramid(source, tmp_path / "anew", overwrite=True, **options)
        assert chunks_of(tmp_path / "made") == chunks_of(tmp_path / "anew")
        assert made["10/b"].shape == anew["10/b"].shape and made["11/time"].shape == source["time"].shape

    source["b"][1] = 5
    check({("b", "1")}, {"time": 1}, arrays=["b"])
    for name in ("b", "u"):
        source[name].append(scene((1, 200, 220), seed=5))
    source["time"].append([3])
    check({("b", "3"), ("u", "3")})
    for name in ("b", "u"):
        source[name].resize((2, 200, 220))
    source["time"].resize((2,))
    # The step that is the last one now may have been cut through.
    check({("b", "1"), ("u", "1")})


@pytest.mark.parametrize("shape", [(340, 520), (180, 330), (220, 500)])
def test_another_extent_makes_all_tiles_again(tmp_path: Path, shape: tuple[int, int]) -> None:
    first, later = scene((260, 400)), scene(shape, seed=4)
    options: dict[str, Any] = {"min_zoom": 9, "max_zoom": 13, "tolerance": 0}
    source = put_raster(tmp_path / "source", {"b": first}, UTM, 32632)
    zstore.build_tile_pyramid(source, tmp_path / "made", **options)
    shutil.rmtree(tmp_path / "source")
    # It has grown, or shrunk, to the north and the west too.
    moved = UTM._replace(c=UTM.c - 30 * 40, f=UTM.f + 30 * 60)
    source = put_raster(tmp_path / "source", {"b": later}, moved, 32632)
    made = zstore.update_pyramid(tmp_path / "made", source=tmp_path / "source")
    anew = zstore.build_tile_pyramid(source, tmp_path / "anew", **options)
    assert chunks_of(tmp_path / "made") == chunks_of(tmp_path / "anew")
    assert made.attrs["multiscales"] == anew.attrs["multiscales"]
    records = [group.attrs["zstore"]["pyramid"] for group in (made, anew)]
    assert [{**record, "build": ""} for record in records] == [{**records[0], "build": ""}] * 2


# Interrupted


def test_the_levels_tell_of_an_update_and_the_next_one_makes_up_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = put_raster(tmp_path / "source", {"b": scene()}, UTM, 32632)
    zstore.build_tile_pyramid(source, tmp_path / "made", min_zoom=9)

    def fail(*args: object, **options: object) -> None:
        raise StoreError("the disk is full")

    def interrupt(region: Any) -> None:
        with monkeypatch.context() as patched, pytest.raises(StoreError, match="the disk is full"):
            patched.setattr("zstore.geo.pyramid.build.run_step", fail)
            zstore.update_pyramid(tmp_path / "made", region, source=tmp_path / "source")

    def check(region: Any) -> None:
        levels = ("9", "10", "11", "12")
        halfway = zstore.open_group(tmp_path / "made", mode="r")
        assert {halfway[level].attrs["zstore"]["state"] for level in levels} == {"updating"}
        updated = zstore.update_pyramid(tmp_path / "made", region, source=tmp_path / "source")
        record = updated.attrs["zstore"]["pyramid"]
        assert {updated[level].attrs["zstore"]["build"] for level in levels} == {record["build"]}
        assert not {"state", "pending", "grids"} & record.keys()
        zstore.build_tile_pyramid(source, tmp_path / "anew", overwrite=True, min_zoom=9, max_zoom=12)
        assert chunks_of(tmp_path / "made") == chunks_of(tmp_path / "anew")

    source["b"][:50, :40] = 3
    interrupt((slice(0, 50), slice(0, 40)))
    source["b"][250:, 250:] = 4
    check((slice(250, None), slice(250, None)))
    # A source that has grown is back at its size before the update ever ended.
    data = source["b"][...]
    for shape in ((600, 600), (300, 300)):
        shutil.rmtree(tmp_path / "source")
        grown = np.full(shape, 8, "u2")
        grown[:300, :300] = data
        source = put_raster(tmp_path / "source", {"b": grown}, UTM, 32632)
        if shape == (600, 600):
            with monkeypatch.context() as patched, pytest.raises(StoreError, match="the disk is full"):
                patched.setattr("zstore.geo.pyramid.build.mark_levels", _failing_at_the_end())
                zstore.update_pyramid(tmp_path / "made", source=tmp_path / "source")
    check(None)


def _failing_at_the_end() -> Any:
    from zstore.geo.pyramid.dataset import mark_levels

    def mark(group: Any, names: Any, build: str, state: str | None) -> None:
        if state is None:
            raise StoreError("the disk is full")
        mark_levels(group, names, build, state)

    return mark


def test_refusals_change_nothing(tmp_path: Path) -> None:
    source = put_raster(tmp_path / "source", {"b": scene((90, 90))}, UTM, 32632)
    zstore.build_tile_pyramid(source, tmp_path / "made")
    before = {f: f.read_bytes() for f in (tmp_path / "made").rglob("*") if f.is_file()}
    for region, options, error, words in (
        ({"z": 1}, {}, SelectionError, "region names z"),
        ({"y": 90}, {}, SelectionError, "90 for 'y'"),
        ((slice(0, 5),), {}, SelectionError, "1 slices"),
        (None, {"arrays": ["c"]}, MetadataError, "arrays c"),
        (None, {"memory": 1000}, MetadataError, "memory is 1000 bytes"),
    ):
        with pytest.raises(error, match=words):
            zstore.update_pyramid(tmp_path / "made", region, source=tmp_path / "source", **options)
    shutil.rmtree(tmp_path / "source")
    far = UTM._replace(c=UTM.c + 3e8)
    put_raster(tmp_path / "source", {"b": scene((90, 90))}, far, 32632)
    with pytest.raises(MetadataError, match="outside"):
        zstore.update_pyramid(tmp_path / "made", source=tmp_path / "source")
    assert before == {f: f.read_bytes() for f in (tmp_path / "made").rglob("*") if f.is_file()}


def test_an_empty_region_makes_no_tile(tmp_path: Path) -> None:
    source = put_raster(tmp_path / "source", {"b": scene((90, 90))}, UTM, 32632)
    zstore.build_tile_pyramid(source, tmp_path / "made")
    marks = marks_of(tmp_path / "made")
    zstore.update_pyramid(tmp_path / "made", {"y": slice(5, 5)}, source=source)
    assert marks_of(tmp_path / "made") == marks


@settings(max_examples=60)
@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_rectangles_come_to_just_the_tiles(tiles: set[tuple[int, int]]) -> None:
    found = [
        (row, column)
        for top, bottom, left, right in rectangles(np.array(sorted(tiles), np.int64).reshape(-1, 2))
        for row in range(top, bottom + 1)
        for column in range(left, right + 1)
    ]
    assert len(found) == len(set(found)) and set(found) == tiles
