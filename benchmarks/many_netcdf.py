"""`xr.open_mfdataset` of 1,000 daily NetCDF-4 files: what netCDF4 and zstore add to xarray's own part.

`python -m benchmarks.many_netcdf [FOLDER]` makes the files (eight variables, of which three are coordinates
and one is bounds), opens them by both engines and by one that reads nothing, in turn, and prints a table in
Markdown: milliseconds of processor a file, medians of some rounds, and the peak of memory. With FOLDER, files
stay there.

The engine that reads nothing has what netCDF4's gives of all files in memory beforehand; xarray decodes and
joins that as it does all others'. What an engine takes beyond it is its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

COUNT, ROUNDS = 1_000, 5
ENGINES = ("none", "netcdf4", "zstore")
SIDES = ("time", "lat", "lon")


def make(folder: Path, count: int = COUNT) -> None:
    """The files of some days: four fields of 24 hours, one of them packed."""
    import xarray as xr

    rng = np.random.default_rng(0)
    names = {
        "t2m": "2 metre temperature",
        "u10": "wind to the east",
        "msl": "pressure",
        "tp": "rain",
    }
    for number in range(count):
        hours = number * 24.0 + np.arange(24)
        fields = {
            name: (SIDES, rng.normal(280, 9, (24, 19, 36)).astype("f4"), {"long_name": said, "units": "1"})
            for name, said in names.items()
        }
        dataset = xr.Dataset(
            {**fields, "time_bnds": (("time", "nv"), np.stack([hours, hours + 1], 1))},
            {
                "time": ("time", hours, {"units": "hours since 1990-01-01", "bounds": "time_bnds"}),
                "lat": ("lat", np.linspace(90, -90, 19), {"units": "degrees_north", "axis": "Y"}),
                "lon": ("lon", np.arange(0, 360, 10.0), {"units": "degrees_east", "axis": "X"}),
            },
            {"Conventions": "CF-1.8", "history": f"made for day {number}", "title": "days"},
        )
        packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32767}
        encoding = {name: {"zlib": True, "chunksizes": (24, 19, 36)} for name in names}
        encoding["t2m"] |= packing
        dataset.to_netcdf(folder / f"{number:04}.nc", encoding=encoding, unlimited_dims=["time"])


def add_engine_of_none(paths: list[str]) -> None:
    """Add xarray's engine "none", which has the variables in memory, but fields, which it never reads."""
    import xarray as xr
    from xarray.backends import (
        AbstractDataStore,
        BackendArray,
        BackendEntrypoint,
        NetCDF4DataStore,
        StoreBackendEntrypoint,
    )
    from xarray.core import indexing

    class Unread(BackendArray):
        def __init__(self, variable: Any) -> None:
            self.shape, self.dtype = variable.shape, variable.dtype

        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("a field was read")

    class Held(AbstractDataStore):
        def __init__(self, variables: dict[str, Any], attributes: dict[str, Any]) -> None:
            self.held, self.attributes = variables, attributes

        def get_variables(self) -> dict[str, Any]:
            return {
                name: xr.Variable(dims, indexing.LazilyIndexedArray(data), dict(attributes), dict(encoding))
                for name, (dims, data, attributes, encoding) in self.held.items()
            }

        def get_attrs(self) -> dict[str, Any]:
            return dict(self.attributes)

        def close(self) -> None:
            pass

    stores = dict[str, Held]()
    for path in paths:
        file = NetCDF4DataStore.open(path)
        told = {
            name: (one.dims, Unread(one) if one.ndim == 3 else one.values, one.attrs, one.encoding)
            for name, one in file.get_variables().items()
        }
        stores[path] = Held(told, dict(file.get_attrs()))
        file.close()

    class Nothing(BackendEntrypoint):
        open_dataset_parameters = ()

        def open_dataset(self, filename_or_obj: Any, **decoding: Any) -> Any:
            return StoreBackendEntrypoint().open_dataset(stores[os.fspath(filename_or_obj)], **decoding)

    xr.backends.list_engines()["none"] = Nothing()


@contextmanager
def _opened(paths: list[str], engine: str) -> Iterator[Any]:
    import xarray as xr

    how: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    with xr.open_mfdataset(paths, engine=engine, **how) as data:
        yield data


def work(name: str, folder: Path) -> None:
    """Open the files, as if it were not the first of the process, and print (ms of processor a file, MiB)."""
    warnings.simplefilter("ignore")
    paths = sorted(map(str, folder.glob("*.nc")))
    if name == "none":
        add_engine_of_none(paths)
    with _opened(paths[:3], name):
        pass
    begin = time.process_time()
    with _opened(paths, name):
        spent = time.process_time() - begin
    # Not what getrusage says, which begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps([spent * 1000 / len(paths), peak]))


def main(folder: Path) -> None:
    import xarray as xr

    paths = sorted(map(str, folder.glob("*.nc")))
    with _opened(paths, "netcdf4") as expected, _opened(paths, "zstore") as found:
        part = {"time": slice(None, None, 97)}
        xr.testing.assert_identical(found.isel(part).load(), expected.isel(part).load())
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ENGINES}
    for _ in range(ROUNDS):
        for name in ENGINES:
            line = [sys.executable, "-m", "benchmarks.many_netcdf", name, os.fspath(folder)]
            runs[name].append(json.loads(subprocess.check_output(line)))
    spent = {name: statistics.median(one for one, _ in told) for name, told in runs.items()}
    beyond = {name: one - spent["none"] for name, one in spent.items()}
    print("| engine | ms a file | beyond xarray's own | of netCDF4's | MiB |\n|---|--:|--:|--:|--:|")
    for name, told in runs.items():
        share = beyond[name] / beyond["netcdf4"]
        peak = max(one for _, one in told)
        print(f"| {name} | {spent[name]:.2f} | {beyond[name]:.2f} | {share:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ENGINES:
        work(sys.argv[1], Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as made:
            place = Path(sys.argv[1] if sys.argv[1:] else made)
            place.mkdir(exist_ok=True)
            if not any(place.glob("*.nc")):
                make(place)
            main(place)
