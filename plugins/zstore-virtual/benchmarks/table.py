"""The table of docs/virtual.md: archives read in place by zstore and its peers, each in a process of its own.

    python plugins/zstore-virtual/benchmarks/table.py DIRECTORY [ROW ...] [--server URL] [--rounds 3]

It makes its files in DIRECTORY once. The row "far" needs a server that takes PUT and GET of ranges: URL is
that of a directory or bucket there. A peer that is not installed is left out, and said so.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COUNT, DAYS, MANY = 1024, 1000, 1_000_000
Run = Callable[[Path, str], Any]
ROWS: dict[str, dict[str, Run]] = {}


def row(name: str, engine: str) -> Callable[[Run], Run]:
    """Have a function be the engine's of a row; what it gives back is the same for all engines of the row."""

    def keep(function: Run) -> Run:
        ROWS.setdefault(name, {})[engine] = function
        return function

    return keep


# The files


def make(place: Path, server: str, rows: set[str]) -> None:
    """All that the rows read."""
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name, files in FILES.items():
        if any(row.partition(",")[0] == name for row in rows):
            files(place, rng)
    if "far" in rows:
        from zstore_virtual.scan.virtualize import virtualize

        request = urllib.request.Request(f"{server}/a.h5", (place / "a.h5").read_bytes(), method="PUT")
        urllib.request.urlopen(request).close()
        virtualize(f"{server}/a.h5", place / "far.json")


def make_hdf5(place: Path, rng: np.random.Generator) -> None:
    """An array of 1,024 chunks, and references to them."""
    from zstore_virtual.scan.virtualize import virtualize

    if not (place / "a.h5").exists():
        import h5py

        items = (np.add.outer(np.arange(4096), np.arange(4096)) + rng.integers(0, 50, (4096, 4096))).astype(
            "i4"
        )
        with h5py.File(place / "a.h5", "w") as file:
            options = {"chunks": (128, 128), "compression": "gzip", "compression_opts": 4, "shuffle": True}
            file.create_dataset("a", data=items, **options)
        virtualize(place / "a.h5", place / "a.json")
        (place / "k.json").write_text(json.dumps(kerchunk_of(str(place / "a.h5"))))


def make_cog(place: Path, rng: np.random.Generator) -> None:
    """A raster of 10,240 rows, compressed in tiles."""
    from zstore_virtual.scan.virtualize import virtualize

    if not (place / "a.tif").exists():
        import rasterio

        y, x = np.mgrid[:10240, :10240]
        items = (3000 * (2 + np.sin(x / 300) + np.cos(y / 200)) + rng.integers(0, 200, y.shape)).astype("u2")
        told = {"count": 1, "height": 10240, "width": 10240, "dtype": "uint16", "crs": "EPSG:32633"}
        coding = {"blocksize": 512, "compress": "deflate", "predictor": 2}
        transform = rasterio.Affine(10, 0, 500000, 0, -10, 3000000)
        with rasterio.open(place / "a.tif", "w", "COG", **told, transform=transform, **coding) as raster:
            raster.write(items[None])
        virtualize(place / "a.tif", place / "tif.json")


def make_days(place: Path, rng: np.random.Generator) -> None:
    """1,000 files of a day each, and references to them as each engine makes them."""
    days = place / "days"
    if not days.exists():
        import netCDF4

        days.mkdir()
        items = rng.random((1, 90, 180)).astype("f4")
        for day in range(DAYS):
            with netCDF4.Dataset(days / f"{day:04}.nc", "w") as file:
                for name, length in (("time", None), ("lat", 90), ("lon", 180)):
                    file.createDimension(name, length)
                time_ = file.createVariable("time", "f8", ("time",))
                time_.units, time_[:] = "days since 2000-01-01", [day]
                file.createVariable("lat", "f4", ("lat",))[:] = np.linspace(-89, 89, 90)
                file.createVariable("lon", "f4", ("lon",))[:] = np.arange(0, 360, 2)
                told = {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": (1, 45, 90)}
                file.createVariable("t2m", "f4", ("time", "lat", "lon"), **told)[:] = np.round(items + day, 2)
    for engine, name in (("zstore", "made"), ("kerchunk", "kdays"), ("VirtualiZarr", "vdays")):
        if not (place / f"{name}.json").exists():
            ROWS["days, made"][engine](place, "")


def make_many(place: Path, rng: np.random.Generator) -> None:
    """References to a million single bytes, in JSON and in Parquet."""
    if not (place / "many.parq").exists():
        document = {"zarr_format": 2, "shape": [1000, 1000], "chunks": [1, 1], "dtype": "|u1", "order": "C",
                    "compressor": None, "filters": None, "fill_value": 0}  # fmt: skip
        (place / "many.bin").write_bytes(rng.bytes(MANY))
        address = str(place / "many.bin")
        refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(document)}
        refs["a/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["y", "x"]}'
        refs |= {f"a/{n // 1000}.{n % 1000}": [address, n, 1] for n in range(MANY)}
        (place / "many.json").write_text(json.dumps({"version": 1, "refs": refs}))
        from zstore_virtual.forms import open_manifest, write_manifest

        write_manifest(open_manifest(place / "many.json"), place / "many.parq")


FILES = {"hdf5": make_hdf5, "far": make_hdf5, "cog": make_cog, "days": make_days, "many": make_many}


# The rows


def kerchunk_of(path: str) -> Any:
    from kerchunk.hdf import SingleHdf5ToZarr

    return SingleHdf5ToZarr(path, inline_threshold=0).translate()


def zarr_group(references: Any, protocol: str = "file") -> Any:
    """zarr-python's group of fsspec's references."""
    import fsspec
    import zarr
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    options = {"asynchronous": True} if protocol == "http" else {}
    remote = fsspec.filesystem(protocol, **options)
    if not remote.async_impl:
        remote = AsyncFileSystemWrapper(remote, asynchronous=True)
    files = fsspec.filesystem(
        "reference", fo=references, fs=remote, remote_protocol=protocol, asynchronous=True
    )
    return zarr.open_group(zarr.storage.FsspecStore(files, read_only=True, path=""), mode="r")


def manifest_store(url: str, parser: Any = None) -> Any:
    """VirtualiZarr's store of an HDF5 file."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore, LocalStore
    from virtualizarr.parsers import HDFParser

    if url.startswith("http"):
        top = "/".join(url.split("/")[:3])
        registry = ObjectStoreRegistry({top: HTTPStore(top, client_options={"allow_http": True})})
    else:
        registry, url = ObjectStoreRegistry({"file://": LocalStore()}), f"file://{url}"
    return HDFParser()(url=url, registry=registry)


def kerchunk_store(path: Path) -> Any:
    """VirtualiZarr's store of kerchunk's references."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import parsers

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parser = parsers.KerchunkJSONParser if path.suffix == ".json" else parsers.KerchunkParquetParser
    return parser()(url=f"file://{path}", registry=registry)


def total(items: Any) -> int:
    return int(np.asarray(items).sum(dtype="i8"))


@row("hdf5", "h5py")
def _(place: Path, server: str) -> Any:
    import h5py

    with h5py.File(place / "a.h5") as file:
        return total(file["a"][...])


@row("hdf5", "zstore")
def _(place: Path, server: str) -> Any:
    import zstore

    return total(zstore.open(place / "a.json")["a"][...])


@row("hdf5", "zarr-python, kerchunk")
def _(place: Path, server: str) -> Any:
    return total(zarr_group(json.loads((place / "k.json").read_text()))["a"][...])


@row("hdf5", "zarr-python, VirtualiZarr (scanning too)")
def _(place: Path, server: str) -> Any:
    import zarr

    return total(zarr.open_group(manifest_store(str(place / "a.h5")), mode="r")["a"][...])


@row("hdf5", "zstore (scanning too)")
def _(place: Path, server: str) -> Any:
    from zstore_virtual.scan.virtualize import virtualize
    from zstore_virtual.store import VirtualStore

    import zstore

    store = VirtualStore(virtualize(place / "a.h5"), allow=[place])
    return total(zstore.open_array(store, "a")[...])


@row("far", "h5py, fsspec")
def _(place: Path, server: str) -> Any:
    import fsspec
    import h5py

    with fsspec.open(f"{server}/a.h5") as raw, h5py.File(raw) as file:
        return total(file["a"][...])


@row("far", "zstore")
def _(place: Path, server: str) -> Any:
    import zstore

    told = {"allow": [server]}
    return total(zstore.open(f"virtual://{place}/far.json", storage_options=told)["a"][...])


@row("far", "zstore (scanning too)")
def _(place: Path, server: str) -> Any:
    from zstore_virtual.scan.virtualize import virtualize
    from zstore_virtual.store import VirtualStore

    import zstore

    store = VirtualStore(virtualize(f"{server}/a.h5"), allow=[server])
    return total(zstore.open_array(store, "a")[...])


@row("far", "zarr-python, kerchunk")
def _(place: Path, server: str) -> Any:
    refs = json.loads((place / "k.json").read_text().replace(str(place / "a.h5"), f"{server}/a.h5"))
    return total(zarr_group(refs, "http")["a"][...])


@row("far", "zarr-python, VirtualiZarr (scanning too)")
def _(place: Path, server: str) -> Any:
    import zarr

    return total(zarr.open_group(manifest_store(f"{server}/a.h5"), mode="r")["a"][...])


@row("cog", "rasterio")
def _(place: Path, server: str) -> Any:
    import rasterio

    with rasterio.open(place / "a.tif") as raster:
        return total(raster.read(1))


@row("cog", "rasterio, 2 threads")
def _(place: Path, server: str) -> Any:
    import rasterio

    with rasterio.open(place / "a.tif", num_threads=2) as raster:
        return total(raster.read(1))


@row("cog", "tifffile, 2 threads")
def _(place: Path, server: str) -> Any:
    import tifffile

    return total(tifffile.imread(place / "a.tif", key=0, maxworkers=2))


@row("cog", "zstore")
def _(place: Path, server: str) -> Any:
    import zstore

    return total(zstore.open(place / "tif.json")["0/band_1"][...])


@row("cog", "zarr-python, kerchunk")
def _(place: Path, server: str) -> Any:
    import imagecodecs.numcodecs
    from kerchunk.tiff import tiff_to_zarr

    imagecodecs.numcodecs.register_codecs(verbose=False)
    refs = tiff_to_zarr(str(place / "a.tif"))
    found = zarr_group({"version": 1, "refs": refs})
    return total(found["0"][...])


@row("days, made", "zstore")
def _(place: Path, server: str) -> Any:
    from zstore_virtual.scan.virtualize import virtualize

    return virtualize(place / "days" / "*.nc", place / "made.json", concat="time").chunks["t2m"].grid[0]


@row("days, made", "zstore, 2 processes")
def _(place: Path, server: str) -> Any:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from zstore_virtual.scan.virtualize import virtualize

    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        made = virtualize(place / "days" / "*.nc", place / "made.json", concat="time", executor=pool)
    return made.chunks["t2m"].grid[0]


@row("days, made", "kerchunk")
def _(place: Path, server: str) -> Any:
    from kerchunk.combine import MultiZarrToZarr

    parts = [kerchunk_of(str(path)) for path in sorted((place / "days").glob("*.nc"))]
    told = {"concat_dims": ["time"], "identical_dims": ["lat", "lon"], "coo_map": {"time": "data:time"}}
    made = MultiZarrToZarr(parts, **told).translate()
    (place / "kdays.json").write_text(json.dumps(made))
    return json.loads(made["refs"]["t2m/.zarray"])["shape"][0]


@row("days, made", "VirtualiZarr")
def _(place: Path, server: str) -> Any:
    import xarray
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry, parser = ObjectStoreRegistry({"file://": LocalStore()}), HDFParser()
    paths = sorted((place / "days").glob("*.nc"))
    told = {"registry": registry, "parser": parser, "loadable_variables": ["time", "lat", "lon"]}
    parts = [open_virtual_dataset(f"file://{path}", **told) for path in paths]
    made = xarray.concat(parts, "time", coords="minimal", compat="override", join="override")
    made.vz.to_kerchunk(str(place / "vdays.json"), format="json")
    return made.sizes["time"]


def series(data: Any) -> int:
    """All days at a point, and all points of a day."""
    return round(float(data["t2m"][:, 30, 60].sum())) + round(float(data["t2m"][500].sum()))


@row("days, read", "zstore")
def _(place: Path, server: str) -> Any:
    import xarray

    return series(xarray.open_dataset(place / "made.json", engine="zstore"))


@row("days, read", "zstore, no xarray")
def _(place: Path, server: str) -> Any:
    import zstore

    return series(zstore.open(place / "made.json"))


@row("days, read", "VirtualiZarr's references, by kerchunk's engine")
def _(place: Path, server: str) -> Any:
    import xarray

    return series(xarray.open_dataset(str(place / "vdays.json"), engine="kerchunk"))


@row("days, read", "netCDF4, file by file")
def _(place: Path, server: str) -> Any:
    import netCDF4

    points, day = [], None
    for number, path in enumerate(sorted((place / "days").glob("*.nc"))):
        with netCDF4.Dataset(path) as file:
            file.set_auto_mask(False)
            points.append(file["t2m"][:, 30, 60])
            day = file["t2m"][0] if number == 500 else day
    assert day is not None
    return round(float(np.concatenate(points).sum())) + round(float(day.sum()))


@row("days, read", "zarr-python, kerchunk")
def _(place: Path, server: str) -> Any:
    import xarray

    group = zarr_group(json.loads((place / "kdays.json").read_text()))
    return series(xarray.open_dataset(group.store, engine="zarr", consolidated=False))


@row("days, read", "xarray, all files opened")
def _(place: Path, server: str) -> Any:
    import xarray

    paths = sorted((place / "days").glob("*.nc"))
    told = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "override"}
    return series(xarray.open_mfdataset(paths, combine="nested", concat_dim="time", engine="netcdf4", **told))


def opened(array: Any) -> int:
    """That an array is there."""
    return int(array.shape[0])


def thousand(array: Any) -> int:
    """The sum of a thousand chunks."""
    return int(np.asarray(array[700]).sum(dtype="i8"))


for form, file in (("json", "many.json"), ("parquet", "many.parq")):
    for what, use in (("opened", opened), ("1,000 read", thousand)):

        @row(f"many, {form}, {what}", "zstore")
        def _(place: Path, server: str, file: str = file, use: Any = use) -> Any:
            import zstore

            return use(zstore.open(place / file)["a"])

        @row(f"many, {form}, {what}", "zarr-python, fsspec")
        def _(place: Path, server: str, file: str = file, use: Any = use) -> Any:
            refs = json.loads((place / file).read_text()) if file.endswith("json") else str(place / file)
            return use(zarr_group(refs)["a"])

        @row(f"many, {form}, {what}", "zarr-python, VirtualiZarr")
        def _(place: Path, server: str, file: str = file, use: Any = use) -> Any:
            import zarr

            return use(zarr.open_group(kerchunk_store(place / file), mode="r")["a"])


for what in ("opened", "1,000 read"):

    @row(f"many, parquet, {what}", "GDAL's Zarr driver")
    def _(place: Path, server: str, what: str = what) -> Any:
        import rasterio

        with rasterio.open(f'ZARR:"{place / "many.parq"}":/a') as raster:
            if what == "opened":
                return raster.height
            return total(raster.read(1, window=((700, 701), (0, 1000))))


def child(name: str, engine: str, place: Path, server: str) -> None:
    """One engine's figures, as JSON: of all of the process, and of the work done once more."""
    warnings.simplefilter("ignore")
    begun = time.perf_counter()
    found = ROWS[name][engine](place, server)
    took, first = time.perf_counter() - begun, used()
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    assert ROWS[name][engine](place, server) == found
    print(json.dumps([found, first, used() - first, took, int(peak.split()[1]) / 1024]))


def used() -> float:
    """Seconds of processor, of children that have ended too."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    """Print the table."""
    words = sys.argv[1:]
    told = {"--server": "", "--rounds": "3"}
    for option in told:
        if option in words:
            at = words.index(option)
            told[option] = words[at + 1]
            del words[at : at + 2]
    place, server = Path(words[0]).absolute(), told["--server"].rstrip("/")
    if "--child" in words:
        child(*words[words.index("--child") + 1 :][:2], place, server)
        return
    wanted = [name for name in ROWS if (not words[1:] or name in words[1:]) and (server or name != "far")]
    make(place, server, {*wanted})
    command = [sys.executable, __file__, str(place)]
    print("| | processor, s | once more | clock, s | peak, MiB |\n|---|--:|--:|--:|--:|", flush=True)
    for name in wanted:
        answers = set()
        for engine in ROWS[name]:
            best = None
            for _ in range(int(told["--rounds"])):
                asked = [*command, "--child", name, engine, "--server", server]
                done = subprocess.run(asked, capture_output=True, text=True, check=False, env=os.environ)
                if done.returncode:
                    best = None
                    said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
                    print(f"| {name}: {engine} | {said[-1][:150]} |", flush=True)
                    break
                found, *figures = json.loads(done.stdout.splitlines()[-1])
                answers.add(found)
                best = figures if best is None else [*map(min, best, figures)]
            if best is not None:
                print(
                    f"| {name}: {engine} | {best[0]:.2f} | {best[1]:.2f} | {best[2]:.2f} | {best[3]:.0f} |",
                    flush=True,
                )
        if len(answers) > 1:
            print(f"| {name}: answers differ: {answers} |")


if __name__ == "__main__":
    main()
