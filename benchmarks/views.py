"""What do views cost beside reading the arrays behind them one by one?

A hundred arrays of 512 × 512 int16, in chunks of 128 × 128 in a directory, once uncompressed and once with
zstd, are read as one by `concat` and `stack`, whole and in part; GDAL reads GeoTIFF of the same tiles and
codec by a VRT of one band, or of a band for each, with little room for decoded blocks. Times are processor
time, the median and the best of rounds in which all accesses take turns; each library has a process of its
own, as they do not share an environment. zstore's arrays are also read into memory that is there, one by one
and as a view, so that taking the memory has no part in the comparison.

    python -m benchmarks.views make DIRECTORY
    python -m benchmarks.views zstore|tensorstore|xarray|gdal DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

COUNT, SHAPE, CHUNKS = 100, (512, 512), (128, 128)
CODECS = ("none", "zstd")
ROUNDS = 25


def make(place: Path) -> None:
    """Store the arrays."""
    import zstore

    for codec in CODECS:
        for number in range(COUNT):
            steps = np.random.default_rng(number).integers(-3, 4, SHAPE)
            data = np.cumsum(steps, 1).astype("i2")
            compressors = None if codec == "none" else codec
            zstore.create_array(
                place / codec / str(number), data=data, chunks=CHUNKS, compressors=compressors
            )
            for name, row in (("concat", number * SHAPE[0]), ("stack", 0)):
                make_raster(place / codec / f"{name}{number:02}.tif", data, codec, row)
        for name, words in (("concat", ()), ("stack", ("-separate",))):
            rasters = map(str, sorted((place / codec).glob(f"{name}*.tif")))
            target = str(place / codec / f"{name}.vrt")
            subprocess.run(["gdalbuildvrt", "-q", *words, target, *rasters], check=True)


def make_raster(path: Path, data: np.ndarray[Any, Any], codec: str, row: int) -> None:
    """Store an array as a GeoTIFF in tiles, whose first row is that one of a grid."""
    import rasterio

    (height, width), (rows, columns) = SHAPE, CHUNKS
    with rasterio.open(
        path, "w", "GTiff", width, height, 1, "EPSG:32632", rasterio.Affine(2, 0, 0, 0, -2, -2 * row),
        "int16", tiled=True, blockxsize=columns, blockysize=rows, compress=codec,
    ) as raster:  # fmt: skip
        raster.write(data, 1)


def by_zstore(place: Path) -> dict[str, Callable[[], Any]]:
    """The accesses by name; those that are compared with are of single arrays."""
    import zstore

    arrays = [zstore.open_array(place / str(number), mode="r") for number in range(COUNT)]
    stack, joined = zstore.stack(arrays), zstore.concat(arrays)
    window, row = np.s_[100:400, ::-1], 3
    whole, windows, rows, turned = (
        np.empty(view.shape, view.dtype) for view in (stack, stack[:, 100:400], stack[:, row], stack.T)
    )

    def each_into(selection: Any, memory: np.ndarray[Any, Any]) -> None:
        for array, out in zip(arrays, memory, strict=True):
            array.read(selection, out=out)

    return {
        "each, into": lambda: each_into(..., whole),
        "stack, into": lambda: stack.read(out=whole),
        "concat, into": lambda: joined.read(out=whole.reshape(joined.shape)),
        "each, reversed window, into": lambda: each_into(window, windows),
        "stack, reversed window, into": lambda: stack[(slice(None), *window)].read(out=windows),
        "each, transposed, into": lambda: each_into(..., turned.T),
        "stack, transposed, into": lambda: stack.T.read(out=turned),
        "each, a row, into": lambda: each_into(row, rows),
        "stack, a row, into": lambda: stack[:, row].read(out=rows),
        "each": lambda: [array[...] for array in arrays],
        "stack": lambda: stack.read(),
        "concat": lambda: joined.read(),
        "each, reversed window": lambda: [array[100:400, ::-1] for array in arrays],
        "stack, reversed window": lambda: stack[:, 100:400, ::-1].read(),
        "stack, transposed": lambda: stack.T.read(),
        "each, a row": lambda: [array[3] for array in arrays],
        "stack, a row": lambda: stack[:, 3].read(),
        "ratio": lambda: ((stack - 1) / (stack + 2000)).read(),
    }


def by_tensorstore(place: Path) -> dict[str, Callable[[], Any]]:
    import tensorstore as ts

    arrays = [
        ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(place / str(number))}}).result()
        for number in range(COUNT)
    ]
    stack, joined = ts.stack(arrays), ts.concat(arrays, axis=0)
    return {
        "each": lambda: [array.read().result() for array in arrays],
        "stack": lambda: stack.read().result(),
        "concat": lambda: joined.read().result(),
        "each, reversed window": lambda: [array[100:400, ::-1].read().result() for array in arrays],
        "stack, reversed window": lambda: stack[:, 100:400, ::-1].read().result(),
        "stack, transposed": lambda: stack.T.read().result(),
        "each, a row": lambda: [array[3].read().result() for array in arrays],
        "stack, a row": lambda: stack[:, 3].read().result(),
    }


def by_xarray(place: Path) -> dict[str, Callable[[], Any]]:
    import dask.array
    import xarray
    import zarr

    arrays = [
        xarray.DataArray(
            dask.array.from_array(zarr.open_array(str(place / str(number)), mode="r")), dims=("y", "x")
        )
        for number in range(COUNT)
    ]
    stack, joined = xarray.concat(arrays, "time"), xarray.concat(arrays, "y")
    return {
        "stack": lambda: stack.values,
        "concat": lambda: joined.values,
        "stack, reversed window": lambda: stack[:, 100:400, ::-1].values,
        "stack, transposed": lambda: stack.T.values,
        "stack, a row": lambda: stack[:, 3].values,
        "ratio": lambda: ((stack - 1) / (stack + 2000)).values,
    }


def by_gdal(place: Path) -> dict[str, Callable[[], Any]]:
    import rasterio

    rasterio.env.set_gdal_config("GDAL_CACHEMAX", 4 << 20)
    joined, stack = (rasterio.open(place / f"{name}.vrt") for name in ("concat", "stack"))
    return {
        "stack": lambda: stack.read(),
        "concat": lambda: joined.read(1),
        "stack, a row": lambda: stack.read(window=((3, 4), (0, SHAPE[1]))),
    }


def measure(acts: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """The processor time of calls in milliseconds: the median and the best of rounds after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(1 + rounds):
        for name, act in acts.items():
            begin = time.process_time()
            act()
            times[name].append(time.process_time() - begin)
    return {name: (median(taken[1:]) * 1e3, min(taken[1:]) * 1e3) for name, taken in times.items()}


def main() -> None:
    """Make the arrays, or print the times of a library."""
    library, place = sys.argv[1], Path(sys.argv[2])
    if library == "make":
        make(place)
        return
    accesses = {
        "zstore": by_zstore, "tensorstore": by_tensorstore, "xarray": by_xarray, "gdal": by_gdal
    }[library]  # fmt: skip
    for codec in CODECS:
        found = measure(accesses(place / codec), 3 if library == "xarray" else ROUNDS)
        for name, (middle, best) in found.items():
            print(f"{library:12} {codec:5} {name:30} {middle:9.2f} ms, at best {best:9.2f}", flush=True)


if __name__ == "__main__":
    main()
