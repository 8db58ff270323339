"""What is typed wrongly, at the prompt and in Python: each says what was expected, or what to type."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest

import zstore
from zstore.codecs.forms import read_codecs

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.options import CODECS, codec_of  # noqa: E402
from zstore.cli.root import zstore as command  # noqa: E402
from zstore.extensions.builtin import COMMANDS  # noqa: E402

from ..nodes.test_opening import urls_of_nothing  # noqa: E402

PLACE = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 0, 0, -30, 9],
}


def type_line(line: str) -> tuple[int, str, str]:
    result = testing.CliRunner().invoke(command, line.split())
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("made")
    group = zstore.create_group(place / "a.zarr", attributes=PLACE)
    group.create_array("b", data=np.arange(64.0).reshape(8, 8), dimension_names=["y", "x"])
    zstore.create_array(place / "plain.zarr", data=np.arange(64.0).reshape(8, 8))
    zstore.build_pyramid(place / "a.zarr", place / "p.zarr", levels=1)
    files = {"x.tif": b"II*\0", "x.png": b"\x89PNG", "x.nc": b"CDF\1", "x.txt": b"hello"}
    for name, begin in {**files, "x.nc.gz": b"\x1f\x8b"}.items():
        (place / name).write_bytes(begin)
    item = {"type": "Feature", "properties": {"datetime": "2020-01-01"}, "assets": {"b": {"href": "a.zarr"}}}
    (place / "items.json").write_text(json.dumps(item))
    (place / "z.geojson").write_text('{"type": "Feature", "geometry": null}')
    (place / "files").mkdir()
    for name in ("0.nc", "1.nc"):
        (place / "files" / name).write_bytes(b"CDF\1")
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Four bytes of a TIFF.
DAMAGED = "not a raster that GDAL can open"
TYPED = {
    "inof a.zarr": "No such command 'inof'. Did you mean 'info'?",
    "valdate a.zarr": "Did you mean 'validate'?",
    "invent": "No such command 'invent'",
    "rechunk a.zarr b.zarr": "type `zstore convert SOURCE TARGET --chunks N`",
    "info": "Missing argument 'PATH'",
    "info a.zarr --jsn": "No such option",
    "info a.zrr": "near it: 'a.zarr'",
    "info missing.nc": "there are: 'a.zarr', 'p.zarr', 'plain.zarr'",
    "info a.zarr/nothing": "there are: 'b'",
    "info a.zarr/c": "no array or group there",
    "quicklook a.zarr": "Missing argument 'TARGET'; expected NAME.png",
    "quicklook a.zarr q.gif": "for TARGET: 'q.gif'; pictures are PNG, expected NAME.png",
    "convert a.zarr c.zarr --compressor zstd": "Did you mean '--codec'?",
    "convert a.zarr c.zarr --chunk-size 8": "Did you mean '--chunks'?",
    "convert a.zarr c.zarr --variables b": "Did you mean '--bands'?",
    "reduce a.zarr/b --dim y": "Did you mean '--axis'?",
    "convert a.zarr c.zarr --chunks lat=ten": "'lat=ten' is no length, like time=240, y=auto or x=all",
    "convert a.zarr c.zarr --chunks lat=10": "no dimension 'lat' to cut; expected one of y, x",
    "convert a.zarr c.zarr --select time=2020": "no dimension 'time'; there are y, x",
    "convert a.zarr c.zarr --select time": "'time' is no selection, like time=2020-06,level=700",
    "convert a.zarr c.zarr --bbox 1,2": "'1,2' is no box, like",
    "convert a.zarr c.zarr --bbox 900,900,901,901": "there is no cell; there are 0, -231, 240, 9",
    "convert a.zarr c.h5": "HDF5 is written as NetCDF-4: `zstore convert SOURCE NAME.nc`",
    "convert a.zarr c.nc --codec zstd": "expected deflate",
    "convert a.zarr c.nc --resume": "a file appears whole or not at all",
    "convert a.zarr c.tiff5": "is nearly '.tiff'",
    "convert a.zarr s3:/b/c.zarr": "did you mean 's3://b/c.zarr'?",
    "convert a.zarr s4://b/c.zarr": "did you mean 's3' or 'gs'?",
    "copy a.zarr c.nc": "`zstore convert SOURCE c.nc`, or zstore.zarr_to_netcdf, makes one",
    "info a.zarr/b/c": "is an array, which has no nodes below it",
    "info x.tif": DAMAGED,
    "tree x.tif": DAMAGED,
    "validate x.tif": DAMAGED,
    "verify x.tif": DAMAGED,
    "fix x.tif": DAMAGED,
    "reduce x.tif": DAMAGED,
    "consolidate x.tif": DAMAGED,
    "pyramid x.tif p2.zarr": DAMAGED,
    "quicklook x.tif -o q.png": DAMAGED,
    "info x.png": "not a raster that GDAL can open",
    "info x.nc": "file of 4 bytes is cut short",
    "info x.txt": "pandas.read_csv('{here}/x.txt').to_xarray().zstore.to_zarr('NAME.zarr')",
    "info x.nc.gz": "found an archive at '{here}/x.nc.gz': unpack it first, as `gunzip -k '{here}/x.nc.gz'`",
    "verify x.txt": "expected a directory, found a table or text at '{here}/x.txt'",
    r"info C:\data\x.zarr": "did you mean '/mnt/c/data/x.zarr'?",
    "convert a.zarr D:/y.zarr": "did you mean '/mnt/d/y.zarr'?",
    "verify s3//b/a.zarr": "did you mean 's3://b/a.zarr'?",
    "info --tree a.zarr": "No such option '--tree'; type `zstore tree PATH`.",
    "info -stats a.zarr": "type `zstore reduce PATH --method mean`",
    "stats a.zarr": "type `zstore reduce PATH --method mean`",
    "tree a.zarr --depth 2": "Did you mean '--level'?",
    "tree a.zarr --level two": "'two' is not a valid integer; expected a whole number, 0 or more",
    "serve a.zarr --port abc": "'abc' is not a valid integer; expected a whole number from 0 to 65535",
    "convert a.zarr c.tif -co COMPRESS=DEFLATE": "Did you mean '--codec'?",
    "convert -of COG a.zarr c.tif": "type the ending of TARGET, as in NAME.tif",
    "convert a.zarr c.zarr --a_srs EPSG:4326": "type `zstore mosaic SOURCE TARGET --crs CODE`",
    "mosaic a.zarr m.zarr --t_srs EPSG:3857": "Did you mean '--crs'?",
    "pyramid a.zarr p2.zarr --resampling average": "Did you mean '--method'?",
    "rm a.zarr": "type `rm -r PATH`, or in Python `del group[NAME]`",
    "mv a.zarr b.zarr": "`zstore copy SOURCE TARGET` and `rm -r SOURCE`",
    "sync a.zarr b.zarr": "type `zstore copy SOURCE TARGET --if-exists changed`",
    "quicklook a.zarr q.png -o r.png": "TARGET is 'q.png', and --output 'r.png'; expected one of them",
    "convert a.zarr s3://b/q.png": "'s3://b/q.png'; expected a path on a disk, not a URL",
    "convert a.zarr s3://b/c.tif": "expected a path on a disk, not a URL (at 's3://b/c.tif')",
    "convert a.zarr c.zarr --plan s3://b/p.json": "'s3://b/p.json'; expected a path on a disk, not a URL",
    "manifest a.zarr -o s3://b/m.sha256": "'s3://b/m.sha256'; expected a path on a disk, not a URL",
    "copy a.zarr s3://b/c.zip": "or another name; a zip file elsewhere is only read (at 's3://b/c.zip')",
    "quicklook a.zarr -o q.jpg": "pictures are PNG, expected NAME.png",
    "pyramid a.zarr p2.zarr --preview q.jpg": "pictures are PNG, expected NAME.png",
    "quicklook p.zarr -o q.png --level 7": "no level 7; there are 2",
    "quicklook a.zarr -o q.png --bands red": "no band 'red'; there are b",
    "convert a.zarr p.zarr": "pass --overwrite to replace it",
    "reduce a.zarr/b p.zarr": "pass --overwrite to replace it",
    "pyramid a.zarr p.zarr": "expected none, or --overwrite",
    "convert a.zarr c.zarr --codec zsdt": "did you mean 'zstd'?",
    "convert a.zrr c.zarr": "no raster there, and no Zarr or NetCDF",
    "convert x.txt c.zarr": "a Zarr, NetCDF or HDF5; pandas reads a table: pandas.read_csv(",
    "convert a.zarr c.zarr --codec zstd:fast": "has the level 'fast'",
    "run-units x.txt --part 1/2": "expected the file that --plan or zstore.plan_units wrote",
    "help": "Did you mean '--help'?",
    "info https://": "expected https://HOST/PATH",
    "convert a.zarr c.zarr --codec zstd:99": "level 99, expected an integer from",
    "convert a.zarr c.zarr --format 4": "'4' is not one of '1', '2', '3'",
    "convert a.zarr c.zarr --chunks big": "'big' are no lengths, like 256 or 256,512 or 1,256,512",
    "pyramid a.zarr p2.zarr --factors big": "'big' is no factor, like 2 or 1,2,2 or z=2",
    "reduce plain.zarr --axis y": "axis 'y', expected a number: the array's dimensions have no names",
    "convert a.zarr a.zarr": "into itself; expected a target elsewhere",
    "convert a.zarr --metadata-only --overwrite": "--overwrite does not go with --metadata-only",
    "convert a.zarr c.tif --chunks 8": "--chunks does not go with a GeoTIFF made of a Zarr",
    "convert a.zarr c.tif --levels 1": "--levels does not go with a GeoTIFF made of a Zarr",
    "convert a.zarr c.tif --profile gdal": "--profile does not go with a GeoTIFF made of a Zarr",
    "convert a.zarr c.tif --resume": "a file appears whole or not at all",
    "convert a.zarr c.zarr --if-exists skip": "overwrite replaces what is there",
    "pyramid a.zarr p2.zarr --sampling cubic": "--sampling does not go with a pyramid on the data's own grid",
    "pyramid a.zarr --update grown --chunks 8": "--chunks does not go with --update",
    "pyramid a.zarr --update grown --overwrite": "it changes the levels that are there",
    "reduce a.zarr/b --durable": "--durable takes a TARGET",
    "convert x.tif c.zarr --check": "--check does not go with a Zarr made of a raster",
    "convert x.tif c.zarr --format 1": "--format 1 does not go with a Zarr made of a raster",
    "convert x.tif c.zarr --chunks 1,2,3": "expected one length or two, Y,X",
    "pyramid a.zarr p2.zarr --method avarage": "did you mean 'average'?",
    "pyramid a.zarr p2.zarr --tms WebMercatorQud": "did you mean 'WebMercatorQuad'?",
    "pyramid a.zarr p2.zarr --memory lots": "'lots' is no size, like 512M, 1.5G or 2GiB",
    "reduce a.zarr/b --dtype flaot32": "'flaot32' is no data type; did you mean 'float32'?",
    "stac a.zarr": "nothing says when the data are of; expected --datetime DATE",
    "calc b a.zarr c.zarr --dtype flaot32": "'flaot32' is no data type; did you mean 'float32'?",
    "fix a.zarr --fill-value x": "'x' is no number",
    "mosaic a.zarr c.zarr --crs EPSG:3857 --nodata x": "'x' is no number",
    "info plain.zarr --explain x": "for --explain: 'x' is no part of a selection, like 0:10, 5, : or ...",
    "reduce a.zarr/b --axis z": "expected one of the dimensions ('y', 'x')",
    "reduce a.zarr/b --method meen": "'meen' is not one of",
    "reduce a.zarr": "a group is there, expected a target for the new group, or an array, such as 'b' in it",
    "consolidate a.zarr/b": "an array is there, expected a group",
    "validate a.zarr --profile geo": "'geo' is not one of 'geozarr-draft'",
    "validate a.zarr --class cor": "expected of core, time",
    "fix a.zarr --crs EPSG:999999": "CRS 'EPSG:999999' is not one that PROJ",
    "fix a.zarr --restore x --write": "--restore goes with no other option",
    "verify a.zarr --array q": "no array or group there",
    "plugins new X --kind codec": "expected small letters and digits",
    "--conventions foo info a.zarr": "unknown convention 'foo'; offered: bands, cf",
    "info ftpp://x": "did you mean 'ftp'",
    "info a.zarr --storage-option region": "expected NAME=VALUE",
    "info http://127.0.0.1:{port}/a": "no server answers there; expected one that runs",
    "info s3://b/a {anonymous}": "no server answers there",
    "convert plain.zarr c.zarr --shards 7": "expected ones such as (8, 8), or other chunks",
    "convert plain.zarr http://127.0.0.1:{port}/c.zarr": "expected a directory, or a bucket as s3://BUCKET/NAME",
    "convert a.zarr c.zarr --plan p.json --bbox 0,0,9,9": "expected --processes, or a copy of the part",
    "convert a.zarr none.zarr c.zarr": "there is no 'none.zarr'; expected files, Zarrs or rasters",
    "convert x.tif a.zarr c.zarr": "there are rasters, and 'a.zarr' is none",
    "convert x.nc files/0.nc files/1.nc": "expected a TARGET behind all sources",
    "convert y*.nc c.zarr": "no name matches 'y*.nc' in '{here}'; there are 'a.zarr', 'files', ",
    "convert x.txt d.zarr": "expected a raster, a Zarr, NetCDF or HDF5",
    "info files": "there are files below it; '{here}/files/*.nc' opens them as one",
    "info x.nc files/0.nc": 'a pattern in quotes, as "*.nc", is one source',
    "fix a.zarr --apply": "Did you mean '--write'?",
}


@pytest.mark.parametrize("line", TYPED)
def test_a_wrong_line_says_what_to_type(line, here):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        anonymous = f"--storage-option anon=true --storage-option endpoint_url=http://127.0.0.1:{port}"
        code, _, said = type_line(line.format(port=port, anonymous=anonymous))
    assert code in (1, 2), said
    assert TYPED[line].format(here=here) in " ".join(said.split())
    assert "Traceback" not in said and not re.search(r"\b(overwrite|resume|anon)=True", said)
    assert "did not foresee" not in said
    assert len([text for text in said.splitlines() if text and not text.startswith("notice:")]) <= 3
    assert not (here / "s3:").exists()


CALLS = {
    "zstore.zeros(3, dtype='flaot32')": "did you mean 'float32'?",
    "zstore.create_array('n.zarr', shape=(3,))": "expected both, or data",
    "zstore.create_array('a.zarr', shape=(3,), dtype='f4')": "pass overwrite=True",
    "zstore.array([1], compressors='zsdt')": "did you mean 'zstd'?",
    "zstore.array([1], compressors={'name': 'zstd', 'configuration': {'levle': 3}})": "did you mean 'level'?",
    "zstore.open('a.zarr', mode='w-')": "pass mode='w' to replace it",
    "zstore.open_array('a.zarr', 'b', mode='w-', shape=3, dtype='f4')": "pass mode='w' to replace it",
    "zstore.open_group('a.zarr', mode='w-')": "pass mode='w' to replace it",
    "zstore.tune": "use zstore_tune.tune of the package zstore-tune",
    "zstore.open('plain.zarr', mode='r').__setitem__(0, 1)": "only; expected it opened with mode='r+'",
    "zstore.open('a.zarr', mode='read')": "expected one of r, r+, a, w, w-",
    "zstore.open_array('a.zarr')": "a group is there, expected an array",
    "zstore.open('a.zarr')['c']": "group has no array and no group 'c'; there are: 'b'",
    "zstore.open('a.zarr')['B']": "no group 'B'; there are: 'b'",
    "zstore.open('a.zarr').b": "Group has no attribute 'b'; use group['b']",
    "zstore.create_array('n.zarr', (3, 4), dtype='f4')": "path is (3, 4); expected a text",
    "zstore.create_array('n.zarr', shape=3, dtype='f4', compression='gzip')": "='gzip'; use compressors",
    "zstore.open_dataset": "use xarray.open_dataset(path, engine='zstore')",
    "zstore.rechunk": "use zstore.convert(source, target, chunks=...)",
    "zstore.open('plain.zarr').append([[1, 2]])": "along axis 0; expected (n, ",
    "zstore.concat(zstore.open('a.zarr/b'), zstore.open('a.zarr/b'))": "and several sources in one list",
    "zstore.batches(zstore.open('plain.zarr'), crop=(2, 2))": "names no dimensions; expected a mapping",
    "zstore.open('a.zarr', mode='r').create_group('c')": "read",
    "zstore.open('a.zarr/b')[9]": "out of bounds",
    "zstore.open('a.zarr/b').sel(y=3)": "use zstore.select(array, {dimension: value})",
    "zstore.select('a.zarr', {'time': 1})": "no dimension 'time'; there are y, x",
    "zstore.reproject('a.zarr', 'EPSG:3857')": "zstore.GeoGrid.around([source], crs='EPSG:3857')",
    "zstore.open(['a.zarr', 'p.zarr'])": "expected the same arrays in all members (at 'p.zarr')",
    "zstore.open('y*.nc')": "no name matches 'y*.nc'",
    "zstore.open('a.zarr/b').compresor": "has no attribute 'compresor'",
    "zstore.open('a.zarr/b').compressor": "use array.compressors",
    "zstore.copy_store": "use zstore.copy(source, target)",
    "zstore.zeros(3, compressor=None)": "takes no compressor=None; use compressors",
    "zstore.create_array('n.zarr', shape=3, dtype='f4', config={})": "no config={}; use nothing in its place",
    "zstore.open('a.zarr', read_only=True)": "use mode='r'",
    "zstore.open_array('n.zarr', mode='a', shape=3, write_empty_chunks=True)": "never stored",
    "zstore.open_group('a.zarr', use_consolidated=False)": "use zstore.open_consolidated",
    "zstore.create_group('n.zarr', zarr_version=2)": "use zarr_format",
    "zstore.open_group('a.zarr').create_array('c', shape=3, dtype='f4', codecs=[])": "filters, serializer",
    "zstore.create_array({}, shape=3, dtype='f4')": "got {}; 'memory://name' is a store in memory",
    "zstore.array([1.0], compressors='zsdt')": "did you mean 'zstd'?",
    "zstore.array([1.0], compressors='zstd:fast')": "level 'fast'; expected an integer, as in 'zstd:5'",
    "zstore.open('a.zarr')[3]": "member name 3 is no text",
    "zstore.set_threads('many')": "thread count 'many', expected 1 or more",
    "zstore.from_dask(5, 'n.zarr')": "data is 5; expected a dask array",
    "zstore.storage.ZipStore('a.zip')": "use a path or a URL",
    "zstore.codecs.BloscCodec()": "use a codec by name",
    "zstore.open('a.zarr/b')['2020']": "zstore.select(array, {dimension: value}) selects by coordinates",
    "zstore.concat('a.zarr/b', 'a.zarr/b')": "such as zstore.open('a.zarr/b')",
    "zstore.reduce('plain.zarr', 'sum', over='y')": "'over'; expected reduce(source, method, ",
    "zstore.reduce('plain.zarr', 'sum', dim='y')": "'dim'; use axis",
    "zstore.reduce('plain.zarr', 'sum', skipna=True)": "'skipna'; use nodata",
    "zstore.convert('plain.zarr', 'y.zarr', compressor='zstd')": "'compressor'; use compressors",
    "zstore.convert('plain.zarr', 'y.zarr', zarr_version=2)": "'zarr_version'; use zarr_format",
    "zstore.open('plain.zarr').mean('y')": "use array.reduce('mean', axis)",
    "zstore.open('plain.zarr').to_numpy()": "use array[...]",
    "zstore.open('a.zarr').isel(y=0)": "use group[name][5, :, 3:7], or zstore.select(",
    "zstore.open('s3:bucket/a.zarr')": "did you mean 's3://bucket/a.zarr'?",
    "zstore.convert('x.txt', 'y.zarr')": "pandas reads a table: pandas.read_csv(",
    "zstore.verify('x.txt')": "pandas reads a table: pandas.read_csv(",
    "zstore.create_array('C:/data/x.zarr', data=[1])": "did you mean '/mnt/c/data/x.zarr'?",
    "zstore.open('a.zarr').shape": "use group[name].shape",
    "zstore.open('a.zarr').coords": "use xarray.open_dataset(path, engine='zstore')",
    "zstore.open('a.zarr/b').plot": "use xarray.open_dataset(path, engine='zstore')[name]",
    "zstore.open('plain.zarr').resize(4, 4)": "use array.resize((4, 4))",
    "zstore.validate('a.zarr', strict=True)": "use validate(path).is_valid(strict=True)",
    "zstore.open_mfdataset": "or zstore.open('*.nc')",
    "zstore.to_zarr": "dataset.zstore.to_zarr(path)",
    "zstore.DirectoryStore": "use a path or a URL in its place",
    "zstore.open_group('plain.zarr')": "zstore.open_array opens it",
    "zstore.manifest('a.zar')": "near it: 'a.zarr'",
    "zstore.manifest('a.zarr', file='s3://b/m')": "expected a path on a disk, not a URL (at 's3://b/m')",
    "zstore.plan_units('s3://b/p', zstore.copy, 'a.zarr', 'c.zarr')": "a disk, not a URL (at 's3://b/p')",
    "zstore.concat([zstore.open('a.zarr/b')], axis='t')": "expected one of the dimensions",
    "zstore.view(zstore.open('plain.zarr')).mean('y')": "View has no attribute 'mean'; use view.reduce(",
    "zstore.open('plain.zarr').T": "use zstore.view(array).T",
    "zstore.calculate(zstore.open('plain.zarr'), 'b - 1')": "expected a text first, like 'b5 - b4'",
    "zstore.set_cache_size('1GB')": "cache size '1GB', expected 0 or more bytes",
    "zstore.to_dask(zstore.open('a.zarr'))": "a node is where its `store` and its `path` say",
    "zstore.reduce('plain.zarr', 'sum', axis=[0.5])": "axis is [0.5]; expected a whole number",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_call_says_what_to_type(call, here):
    with pytest.raises(Exception, match=re.escape(CALLS[call])):
        eval(call, {"zstore": zstore})


def test_there_are_wrong_usages_enough():
    assert len(TYPED) + len(CALLS) >= 60


JSON = {
    "cache kept": "stored_size",
    "calc b+1 a.zarr k.zarr": "dtype",
    "consolidate a.zarr": "nodes",
    "convert a.zarr c.zarr --chunks 5": "nodes",
    "convert a.zarr c.zarr --dry-run": "arrays",
    "convert a.zarr --metadata-only": "nodes",
    "copy p.zarr c.zarr": "key_count",
    "cube items.json u.zarr --bands b": "dtype",
    "doctor": "kernels",
    "fix a.zarr": "keys_changed",
    "info p.zarr": "arrays",
    "manifest p.zarr": "root",
    "mosaic a.zarr m.zarr": "dtype",
    "plugins": "offers",
    "pyramid a.zarr q.zarr": "nodes",
    "quicklook a.zarr -o q.png": "rows",
    "reduce a.zarr/b --axis y": "items",
    "reduce a.zarr/b m.zarr": "dtype",
    "reduce a.zarr/b --dry-run": "read_size",
    "run-units plan.json --part 1/1": "left_count",
    "stac p.zarr --datetime 2020-01-01": "assets",
    "tree p.zarr": "nodes",
    "validate p.zarr": "findings",
    "verify p.zarr": "is_sound",
    "zonal a.zarr z.geojson": "rows",
}


@pytest.mark.parametrize("line", JSON)
def test_what_is_said_is_said_as_json(line, here):
    if line.startswith("run-units"):
        assert type_line("copy p.zarr c.zarr --plan plan.json")[0] == 0
    if line.startswith("cache"):
        zstore.CachedStore("memory://kept", "kept").get("a")
    code, said, trouble = type_line(f"{line} --json")
    assert code == 0 or line.startswith("fix"), trouble
    assert JSON[line] in json.loads(said)


def test_every_command_has_json_and_help(here):
    assert {line.split()[0] for line in JSON} == {offer.name for offer in COMMANDS}
    for name in (offer.name for offer in COMMANDS):
        assert type_line(f"{name} --help")[0] == 0
    nodes = json.loads(type_line("tree p.zarr --level 1 --json")[1])["nodes"]
    assert {"0", "1"} <= {node["path"] for node in nodes} and "0/b" not in {node["path"] for node in nodes}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("codec", [*CODECS, "zstd:9", "lz4:2", "none"])
def test_codecs_of_the_help_are_taken(codec, zarr_format, here):
    assert codec in type_line("convert --help")[1] + "lz4:2"
    assert len(read_codecs(codec_of(codec), zarr_format)) == (codec != "none")
    assert type_line(f"convert a.zarr c.zarr --codec {codec} --format {zarr_format}")[0] == 0
    array = zstore.open_array("c.zarr", "b", mode="r")
    assert [c.name.removeprefix("numcodecs.") for c in array.compressors] == [codec.partition(":")[0]][
        : codec != "none"
    ]


def test_the_doctor_finds_credentials_and_shows_none(tmp_path, monkeypatch):
    secret = "a-very-secret-word"
    (tmp_path / "keys").write_text(f"[default]\naws_secret_access_key = {secret}\n")
    for name, value in {
        "AWS_ACCESS_KEY_ID": secret,
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
        "AZURE_STORAGE_ACCOUNT_KEY": secret,
        "GOOGLE_SERVICE_ACCOUNT_KEY": "",
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none"),
        "ZSTORE_THREADS": "2",
    }.items():
        monkeypatch.setitem(os.environ, name, value)
    for line in ("doctor", "doctor --json"):
        code, said, _ = type_line(line)
        assert code == 0 and secret not in said
    found = json.loads(said)
    assert "AWS_ACCESS_KEY_ID is set" in found["credentials"]["s3"] and "keys" in found["credentials"]["s3"]
    assert found["credentials"]["gs"] == "none found" and "AZURE" in found["credentials"]["az"]
    assert "ZSTORE_THREADS" in found["threads"]
    modules = walk_packages(zstore._ext.__path__, "zstore._ext.")
    names = [module.name.removeprefix("zstore._ext.") for module in modules if not module.ispkg]
    assert found["zstore"] == zstore.__version__ and found["kernels"] == dict.fromkeys(names, "ok")


def test_the_doctor_advises_a_checksum_where_there_is_none(tmp_path):
    group = zstore.create_group(tmp_path / "g.zarr")
    group.create_array("bare", data=np.arange(9), compressors="blosc")
    group.create_array("sums/good", data=np.arange(9))
    code, said, _ = type_line(f"doctor --json {tmp_path}/g.zarr")
    (line,) = json.loads(said)["advice"]
    assert code == 0 and f"{tmp_path}/g.zarr/bare: bytes, blosc: no checksum" in line
    assert type_line(f"convert {tmp_path}/g.zarr {tmp_path}/h.zarr --checksum")[0] == 0
    assert json.loads(type_line(f"doctor --json {tmp_path}/h.zarr")[1])["advice"] == []
    assert type_line(f"doctor {tmp_path}/nothing.zarr")[0] == 1


def test_what_a_read_takes_is_said_at_the_prompt(tmp_path):
    zstore.create_array(tmp_path / "a.zarr", data=np.ones((100, 64), "f4"), chunks=(10, 64))
    code, said, _ = type_line(f"info --json --explain 5:15,-1 {tmp_path}/a.zarr")
    assert code == 0
    found = json.loads(said)
    assert (found["chunk_count"], found["selected_size"], found["keys"]) == (2, 40, ["c/0/0", "c/1/0"])
    assert "fetched   from 10 stored values" in type_line(f"info --explain ...,0 {tmp_path}/a.zarr")[1]
    for wrong, expected in (
        ("a:b", "'a:b' is no part"),
        ("1,,2", "'' is no part"),
        ("100", "100"),
        ("1,2,3", "3"),
    ):
        code, _, error = type_line(f"info --explain {wrong} {tmp_path}/a.zarr")
        assert code and expected in error and len(error.splitlines()) <= 5


def test_a_band_opened_by_itself_has_no_fault_of_its_group(here):
    for place in ("p.zarr/0/b", f"obstore+file://{here}/p.zarr/0/b"):
        code, said, _ = type_line(f"info {place}")
        assert code == 0 and "GZ-15" not in said, said


def test_asking_for_what_is_not_there_makes_no_file_and_no_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    for url in urls_of_nothing(tmp_path):
        status, _, said = type_line(f"info {url}")
        assert status != 0 and said.startswith("error: "), url
    assert [*(tmp_path / "sub").iterdir()] == []
