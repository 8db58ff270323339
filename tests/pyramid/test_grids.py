"""Groups whose arrays lie on several grids: each is a grid everywhere, or is asked about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import UnsupportedError
from zstore.geo.pyramid.dataset import open_levels, other_grids
from zstore.storage.memory import MemoryStore


@pytest.fixture
def scene() -> zstore.Group:
    """Bands of 10 m and of 20 m beside each other, as Sentinel-2 has them."""
    group = zstore.create_group(MemoryStore(), attributes={"proj:code": "EPSG:32633"})
    for size, count in ((10, 40), (20, 20)):
        steps = size / 2 + size * np.arange(count)
        for name, values in ((f"y{size}", 3000000 - steps), (f"x{size}", 500000 + steps)):
            said = {"standard_name": f"projection_{name[0]}_coordinate", "units": "m"}
            group.create_array(name, data=values, dimension_names=[name], attributes=said)
        for band in range(2):
            data = np.arange(count**2).reshape(count, count).astype("u2") + band
            group.create_array(f"b{size}_{band}", data=data, dimension_names=[f"y{size}", f"x{size}"])
    return group


def test_each_grid_is_one(scene: zstore.Group) -> None:
    fine = open_levels(scene)[0]
    [coarse] = other_grids(scene, fine)
    assert (list(fine.arrays), fine.geo.shape) == (["b10_0", "b10_1"], (40, 40))
    assert (list(coarse.arrays), coarse.geo.shape) == (["b20_0", "b20_1"], (20, 20))
    assert coarse.geo.affine is not None and coarse.geo.affine[:6] == (20, 0, 500000, 0, -20, 3000000)
    assert list(open_levels(scene, arrays=["b20_1"])[0].arrays) == list(coarse.arrays)
    assert [grid.shape for grid in zstore.describe(scene).grids] == [(40, 40), (20, 20)]


def test_a_geotiff_asks_for_the_grid(scene: zstore.Group, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="GeoTIFFs are written with rasterio")
    said = (
        r"2 grids: b10_0, b10_1 \(40 × 40\); b20_0, b20_1 \(20 × 20\); expected `arrays` \(--bands\) of one"
    )
    with pytest.raises(UnsupportedError, match=said):
        zstore.zarr_to_raster(scene, tmp_path / "a.tif")
    for names, size in ((["b10_1"], 40), (["b20_0", "b20_1"], 20)):
        with rasterio.open(zstore.zarr_to_raster(scene, tmp_path / f"{size}.tif", arrays=names)) as raster:
            assert raster.descriptions == tuple(names) and raster.crs.to_epsg() == 32633
            assert raster.transform.a == 400 / size
            for number, name in enumerate(names, 1):
                np.testing.assert_array_equal(raster.read(number), scene[name][...])


def test_pictures_and_parts_are_of_the_grid_with_the_band(scene: zstore.Group) -> None:
    assert zstore.quicklook(scene).shape[:2] == (40, 40)
    assert zstore.quicklook(scene, bands=["b20_1"]).shape[:2] == (20, 20)
    part = zstore.select(scene, bbox=(500100, 2999800, 500200, 2999900), arrays=["b20_0"])
    np.testing.assert_array_equal(part["b20_0"][...], scene["b20_0"][5:10, 5:10])
    both = zstore.select(scene, bbox=(500100, 2999800, 500200, 2999900))
    assert both["b10_0"].shape == (10, 10) and both["b20_0"].shape == (5, 5)
