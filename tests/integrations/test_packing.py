"""Packing as codecs: floats for every reader, the same integers in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zstore
from zstore.errors import MetadataError
from zstore.geo.conventions.base import Variable
from zstore.geo.conventions.read import read_geo
from zstore.geo.validation.run import validate
from zstore.model.codec_packing import pack_by_codecs
from zstore.storage.memory import MemoryStore

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
NODATA = -32768


def stored(array: Any) -> np.ndarray:
    """The integers that an array's chunks hold."""
    (cast,) = [codec for codec in array.model.codecs if codec.name == "cast_value"]
    document = {
        "shape": array.shape,
        "dtype": cast.configuration["data_type"],
        "chunks": array.chunks,
        "fill_value": 0,
    }
    store = MemoryStore()
    zstore.create_array(store, "packed", compressors=None, **document)
    bare = [codec for codec in array.model.codecs if codec.name not in ("scale_offset", "cast_value")]
    assert [codec.name for codec in bare][:1] == ["bytes"]
    plain = zstore.create_array(
        store, "packed", compressors=[_stated(codec) for codec in bare[1:]], overwrite=True, **document
    )
    for key in array.store.list(array.path):
        if "/c/" in f"/{key}":
            store.put(f"packed/{key.removeprefix(array.path).strip('/')}", bytes(array.store.get(key)))
    return plain[...]


def _stated(codec: Any) -> dict[str, Any]:
    return {"name": codec.name, "configuration": dict(codec.configuration)}


@settings(max_examples=50)
@given(
    st.sampled_from(["i1", "u1", "i2", "u2", "i4"]),
    st.floats(1e-6, 1e3),
    st.floats(-1e5, 1e5),
    st.booleans(),
    st.data(),
)
def test_every_integer_comes_back(
    dtype: str, scale: float, offset: float, has_nodata: bool, data: Any
) -> None:
    limits = np.iinfo(dtype)
    numbers = data.draw(st.lists(st.integers(limits.min, limits.max), min_size=1, max_size=20))
    values = np.array([*numbers, limits.min, limits.max], dtype)
    nodata = limits.min if has_nodata else None
    variable = Variable(np.dtype(dtype), scale_factor=scale, add_offset=offset, nodata=nodata)
    try:
        packed = pack_by_codecs(variable)
    except MetadataError:
        return
    assert packed is not None
    array = zstore.create_array(
        MemoryStore(),
        data=packed.unpack(values),
        filters=packed.filters,
        fill_value=packed.fill_value,
        chunks=-1,
    )
    np.testing.assert_array_equal(stored(array), values)
    want = values * np.float64(scale) + offset
    want = np.where(values == limits.min, np.nan, want) if has_nodata else want
    np.testing.assert_allclose(array[...], want, rtol=1e-5, atol=abs(scale) / 4)


def test_what_no_float_tells_apart_is_refused() -> None:
    with pytest.raises(MetadataError, match="no float"):
        pack_by_codecs(Variable(np.dtype("i8"), scale_factor=0.1))
    assert pack_by_codecs(Variable(np.dtype("f4"), scale_factor=0.1)) is None
    assert pack_by_codecs(Variable(np.dtype("i2"))) is None


@pytest.fixture
def raster(tmp_path: Path) -> Path:
    rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    path = tmp_path / "sst.tif"
    place = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 300000, 0, -10, 5000040)}
    with rasterio.open(path, "w", "GTiff", 80, 60, 1, dtype="int16", nodata=NODATA, **place) as made:
        values = np.random.default_rng(5).integers(-2000, 3000, (60, 80)).astype("i2")
        values[:7, :9] = NODATA
        made.write(values, 1)
        made.scales, made.offsets = (0.01,), (273.15,)
    return path


def test_a_raster_is_packed_by_codecs(raster: Path, tmp_path: Path) -> None:
    from zstore.geo.rasters import raster_to_zarr

    by_words = raster_to_zarr(raster, tmp_path / "words.zarr", chunks=32)["band_1"]
    group = raster_to_zarr(raster, tmp_path / "codecs.zarr", chunks=32, levels=2, packing="codecs")
    array = group["0/band_1"]
    assert not {"scale_factor", "add_offset"} & set(array.attrs) and array.dtype == np.float32
    np.testing.assert_array_equal(stored(array), by_words[...])
    want = np.where(by_words[...] == NODATA, np.nan, by_words[...] * 0.01 + 273.15)
    np.testing.assert_allclose(array[...], want, rtol=1e-6)
    coarse = group["1/band_1"]
    assert [codec.name for codec in coarse.model.codecs][:2] == ["scale_offset", "cast_value"]
    expected = zstore.downsample(want, (2, 2), "average", nodata=np.nan)
    np.testing.assert_allclose(coarse[...], expected, atol=0.006)
    geo, _ = read_geo(group)
    assert np.isnan(geo.variables["band_1"].nodata) and geo.variables["band_1"].scale_factor is None
    assert validate(tmp_path / "codecs.zarr", deep=True).count("error") == 0
    with pytest.raises(MetadataError, match="Zarr v3"):
        raster_to_zarr(raster, tmp_path / "v2.zarr", zarr_format=2, packing="codecs")
    assert not (tmp_path / "v2.zarr").exists()


@pytest.mark.parametrize("is_decoded", [True, False])
def test_a_dataset_is_packed_by_codecs(raster: Path, tmp_path: Path, is_decoded: bool) -> None:
    xr = pytest.importorskip("xarray", reason="xarray has the dataset")
    from zstore.geo.rasters import raster_to_zarr
    from zstore.guests.xarray import to_geozarr

    words = raster_to_zarr(raster, tmp_path / "words.zarr", chunks=32)
    with xr.open_zarr(tmp_path / "words.zarr", mask_and_scale=is_decoded, consolidated=False) as dataset:
        group = to_geozarr(dataset.load(), tmp_path / "codecs.zarr", packing="codecs")
    np.testing.assert_array_equal(stored(group["band_1"]), words["band_1"][...])
    assert not {"scale_factor", "add_offset"} & set(group["band_1"].attrs)
    assert read_geo(group)[0].affine == read_geo(words)[0].affine
    with pytest.raises(MetadataError, match="packing"):
        to_geozarr(dataset, tmp_path / "other.zarr", packing="bits")


def test_the_command_takes_the_packing(raster: Path, tmp_path: Path) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line is made with click")
    pytest.importorskip("rich", reason="the command line draws with rich")
    from zstore.cli.root import zstore as command

    target = tmp_path / "codecs.zarr"
    result = testing.CliRunner().invoke(command, ["convert", str(raster), str(target), "--packing", "codecs"])
    assert result.exit_code == 0, result.output
    codecs = zstore.open_array(target, "band_1", mode="r").model.codecs
    assert [codec.name for codec in codecs][:2] == ["scale_offset", "cast_value"]
