"""A zonal mean and the skill of forecasts in SQL, beside xarray-sql and xarray.

Prints seconds of processor, medians of interleaved runs. `python benchmarks/sql.py [MILLIONS OF CELLS]` needs
duckdb, datafusion, xarray-sql and zarr.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.errors import ReadingWarning

REPEATS = 5
ZONAL = "SELECT lat, avg(t2m) AS mean FROM obs GROUP BY lat ORDER BY lat"
SKILL = """
SELECT f.lead, sqrt(avg((f.t2m - o.t2m) * (f.t2m - o.t2m))) AS rmse
FROM forecast f JOIN obs o ON o.time = f.init + f.lead AND o.lat = f.lat AND o.lon = f.lon
GROUP BY f.lead ORDER BY f.lead
"""
PART = "SELECT avg(t2m) AS mean FROM obs WHERE time >= 20 AND time < 24 AND lat > 60"


ALIGNED = "SELECT lead, sqrt(avg(t2m)) AS rmse FROM squares GROUP BY lead ORDER BY lead"


def make(folder: Path, millions: float) -> None:
    """Observations (time, lat, lon), and forecasts (init, lead, lat, lon) for half of the times."""
    height, width = 180, 360
    count = max(48, round(millions * 1e6 / height / width))
    rng = np.random.default_rng(0)
    lat, lon = 89.5 - np.arange(height), np.arange(width, dtype="f8")
    warm = (
        288 + 30 * np.cos(np.radians(lat))[:, None] + rng.normal(0, 1, (count, height, width)).cumsum(2) / 9
    )
    truth = warm.astype("f4")
    obs = zstore.create_group(folder / "obs.zarr")
    obs.create_array("t2m", data=truth, chunks=(1, height, width), dimension_names=["time", "lat", "lon"])
    leads, inits = np.arange(0, 24, 2), np.arange(0, count - 24, 48)
    at = inits[:, None] + leads
    error = rng.normal(0, 1, (*at.shape, height, width)) * (1 + leads[:, None, None])
    forecast = zstore.create_group(folder / "forecast.zarr")
    dims = ["init", "lead", "lat", "lon"]
    forecast.create_array(
        "t2m", data=(truth[at] + error).astype("f4"), chunks=(1, 1, height, width), dimension_names=dims
    )
    for group, sides in ((obs, {"time": np.arange(count)}), (forecast, {"init": inits, "lead": leads})):
        for name, values in {**sides, "lat": lat, "lon": lon}.items():
            group.create_array(name, data=values, dimension_names=[name])
        group.consolidate()


def ways(folder: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed, by query and by way; each gives the numbers of its result."""
    import datafusion
    import duckdb
    import xarray as xr
    import xarray_sql as xql
    from zstore_arrow import open_table

    names = ("obs", "forecast")

    def duck(query: str, add: Callable[[Any, str], Any]) -> Any:
        connection = duckdb.connect()
        for name in names:
            add(connection, name)
        return connection.execute(query).fetchnumpy()

    def fusion(query: str) -> Any:
        context = datafusion.SessionContext()
        for name in names:
            context.register_dataset(name, open_table(folder / f"{name}.zarr"))
        return context.sql(query).to_pydict()

    def theirs(query: str, engine: str) -> Any:
        context = xql.Context()
        for name in names:
            context.from_dataset(name, opened(name, engine))
        return context.sql(query).to_pandas()

    def opened(name: str, engine: str) -> Any:
        return xr.open_dataset(folder / f"{name}.zarr", engine=engine, chunks=None)

    def aligned() -> Any:
        """The skill without a join: the squares of errors are a view, whose cells are the rows."""
        obs, forecast = (zstore.open_group(folder / f"{name}.zarr", mode="r") for name in names)
        valid = forecast["init"][...][:, None] + forecast["lead"][...]
        at = np.searchsorted(obs["time"][...], valid)
        context = datafusion.SessionContext()
        squares = (zstore.view(forecast["t2m"]) - zstore.view(obs["t2m"])[at]) ** 2
        context.register_dataset("squares", open_table(squares))
        return context.sql(ALIGNED).to_pydict()

    def skill(engine: str) -> Any:
        with opened("forecast", engine) as forecast, opened("obs", engine) as obs:
            valid = forecast.init + forecast.lead
            return np.sqrt(
                ((forecast.t2m - obs.t2m.sel(time=valid)) ** 2).mean(["init", "lat", "lon"])
            ).values

    def both(query: str, plain: Callable[[str], Any]) -> dict[str, Callable[[], Any]]:
        return {
            "zstore-arrow, DuckDB": lambda: duck(
                query, lambda to, name: to.register(name, open_table(folder / f"{name}.zarr"))
            ),
            "zstore-arrow, DataFusion": lambda: fusion(query),
            "xarray-sql, DuckDB": lambda: duck(
                query, lambda to, name: xql.register(to, name, opened(name, "zarr"))
            ),
            "xarray-sql, DataFusion": lambda: theirs(query, "zarr"),
            "xarray-sql, DataFusion, engine zstore": lambda: theirs(query, "zstore"),
            "xarray": lambda: plain("zarr"),
            "xarray, engine zstore": lambda: plain("zstore"),
        }

    return {
        "zonal mean": both(
            ZONAL, lambda engine: opened("obs", engine).t2m.mean(["time", "lon"]).values[::-1]
        ),
        "forecast skill": {"zstore-arrow, DataFusion, a view": aligned, **both(SKILL, skill)},
        "part": both(
            PART,
            lambda engine: opened("obs", engine).t2m.sel(time=slice(20, 23), lat=slice(90, 60)).mean().values,
        ),
    }


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def numbers(result: Any) -> Any:
    last = result if isinstance(result, np.ndarray) else [*dict(result).values()][-1]
    return np.asarray(last, "f8").reshape(-1)


def main(millions: float) -> None:
    warnings.simplefilter("ignore", ReadingWarning)  # the fields have no CRS
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, millions)
        for title, rows in ways(folder).items():
            seconds: dict[str, list[float]] = {name: [] for name in rows}
            expected = None
            for _ in range(REPEATS):
                for name, way in rows.items():
                    begin = processor()
                    got = numbers(way())
                    seconds[name].append(processor() - begin)
                    expected = got if expected is None else expected
                    assert np.allclose(got, expected, rtol=1e-4), (title, name)
            for name, taken in seconds.items():
                print(
                    f"{title:15} {name:40} {statistics.median(taken):7.2f} s ({min(taken):.2f})", flush=True
                )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
