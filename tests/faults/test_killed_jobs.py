"""Every kind of long job killed at random moments, on a directory and a bucket: the same bytes, read once."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

import zstore
from zstore.engine.intents import JOB
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.jobs import runner
from zstore.jobs.source import MADE
from zstore.storage.url import use_storage_options

from ..storage.bucket_server import BucketServer

ROOT = Path(__file__).parents[2]
PLACE = re.compile(rb'"(source|build)": "[^"]*"')
SIDE, CHUNK = 1024, 128
KILLS = 20
# As if each job took long: units are a few chunks, and the journal is written after each of them.
SMALL: dict[str, dict[str, Any]] = {
    "zstore.jobs.journal": {"WAITING_SECONDS": -1, "PAUSE": -1},
    "zstore.jobs.upkeep.copy": {"UNIT_COUNT": 2},
    "zstore.jobs.upkeep.windows": {"WINDOW_COUNT": 2},
    "zstore.jobs.upkeep.rechunk": {
        **dict.fromkeys(("FILE", "STRETCH", "UNIT", "REQUEST"), 10.0),
        "WINDOWS_SIZE": 0,
        "COPY_COUNT": 2,
    },
    "zstore.jobs.reduction.plan": {"UNIT_SIZE": 1 << 15, "BOX_SIZE": 1 << 13, "PATCH_SIZE": 1 << 11},
    "zstore.base.boxes": {"BLOCK_SIZE": 1 << 16},
    "zstore.geo.rasters.files": {"WINDOW_SIZE": 1 << 16},
}


def cells(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 60000, shape).astype("u2")


def scene(place: Path, zarr_format: int = 3) -> None:
    """An array on a grid."""
    geo = GeoModel(
        Crs.from_user("EPSG:32622"),
        Affine(30.0, 0.0, 612840.0, 0.0, -30.0, 6852690.0),
        (SIDE, SIDE),
        variables={"a": Variable(np.dtype("u2"), nodata=0)},
    )
    group = zstore.create_group(place, zarr_format=zarr_format)
    for path, document in render_geo(geo, zarr_format)[0].items():
        if path == "":
            group.attrs.update(document["attributes"])
            continue
        options = {name: document[name] for name in ("attributes", "dimension_names", "fill_value")}
        options |= (
            {"data": cells((SIDE, SIDE)), "chunks": CHUNK} if path == "a" else {"data": document["data"]}
        )
        group.create_array(path, **options)


def maps(place: Path) -> None:
    data = cells((64, CHUNK, CHUNK))
    zstore.create_array(
        place, data=data, chunks=(1, CHUNK, CHUNK), compressors="gzip", dimension_names=[*"tyx"]
    )


def series(place: Path) -> None:
    """Maps of which a reduction makes several patches, each of several units."""
    data = cells((512, 48, 48))
    zstore.create_array(place, data=data, chunks=(8, 16, 16), compressors="gzip", dimension_names=[*"tyx"])


def days(place: Path) -> None:
    """Two arrays of a group along days, which are reduced by months to several patches each."""
    group = zstore.create_group(place)
    units = {"units": "days since 2001-01-01", "calendar": "360_day"}
    group.create_array("time", data=np.arange(512), attributes=units, dimension_names=["time"])
    for seed, name in enumerate("ab"):
        options = {"chunks": (8, 16, 16), "compressors": "gzip", "dimension_names": ["time", "y", "x"]}
        group.create_array(name, data=cells((512, 32, 32), seed), **options)


def raster(place: Path, data: np.ndarray | None = None, corner: int = 0) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasters need rasterio (extra 'raster')")
    data = cells((SIDE, SIDE)) if data is None else data
    options = {
        "height": data.shape[0],
        "width": data.shape[1],
        "tiled": True,
        "blockxsize": 64,
        "blockysize": 64,
    }
    transform = rasterio.Affine(10, 0, 600_000 + 10 * corner, 0, -10, 5_000_000)
    with rasterio.open(
        place,
        "w",
        "GTiff",
        count=1,
        dtype="uint16",
        nodata=0,
        crs="EPSG:32631",
        transform=transform,
        **options,
    ) as file:
        file.write(data, 1)


def rasters(place: Path) -> None:
    """Some days, and within each of them next to nothing in places."""
    place.mkdir()
    for day in range(1, 15):
        data = cells((256, 256), day)
        data[:128, :128] = 0
        raster(place / f"s_202001{day:02}.tif", data)


def netcdf(place: Path) -> None:
    library = pytest.importorskip("h5netcdf.legacyapi", reason="NetCDF-4 needs h5netcdf (extra 'netcdf')")
    with library.Dataset(place, "w") as made:
        for name, length in (("time", 16), ("y", 256), ("x", 256)):
            made.createDimension(name, length)
        for name in ("t", "u"):
            variable = made.createVariable(name, "i2", ("time", "y", "x"), chunksizes=(1, CHUNK, CHUNK))
            variable[:] = cells((16, 256, 256)).view("i2")


def scenes(place: Path) -> None:
    """Arrays in two zones, which overlap on some days."""
    group = zstore.create_group(place)
    for number, (zone, east) in enumerate(((32, 700000), (33, 254000), (32, 702000)) * 2):
        said = {"proj:code": f"EPSG:326{zone}", "spatial:dimensions": ["y", "x"], "_FillValue": 0}
        said["spatial:transform"] = [10, 0, east, 0, -10, 5300000]
        data = cells((400, 400), number)
        data[: 50 * number] = 0
        options = {"chunks": CHUNK, "compressors": "gzip", "dimension_names": ["y", "x"]}
        group.create_array(f"{number}", data=data, attributes=said, **options)


class Job(NamedTuple):
    """What is made before at the source, what is done with (source, target), and whether `resume` goes on.

    is_file     whether the source is a file of this machine
    is_inside   whether the source is made at the target, and changed there
    """

    prepare: Callable[[Path], None]
    run: Callable[..., Any]
    takes_resume: bool = True
    is_file: bool = False
    is_inside: bool = False


def pyramid(source: str, target: str, **options: Any) -> None:
    zstore.build_pyramid(source, target, levels=3, chunks=CHUNK, memory=1_000_000, **options)


def tiles(source: str, target: str, **options: Any) -> None:
    zstore.build_tile_pyramid(source, target, min_zoom=10, **options)


def changed(place: Path) -> None:
    """A pyramid whose finest level has changed since."""
    scene(place / "0")
    zstore.build_pyramid(place / "0", place, levels=3, chunks=CHUNK)
    zstore.open_array(place / "0" / "a", mode="r+")[...] = cells((SIDE, SIDE), seed=1)


def update(source: str, target: str, **options: Any) -> None:
    zstore.update_pyramid(target, {"y": slice(0, SIDE)}, memory=1_000_000, **options)


def copy(source: str, target: str, **options: Any) -> None:
    zstore.copy(source, target, request_count=2, **options)


def convert(source: str, target: str, **options: Any) -> None:
    """Documents only: chunks keep their bytes."""
    zstore.convert(source, target, **options)


def recode(source: str, target: str, **options: Any) -> None:
    zstore.convert(
        source, target, path="a", shards=(256, 256), chunks=(128, 128), memory=2_000_000, **options
    )


def rechunk(source: str, target: str, **options: Any) -> None:
    zstore.convert(source, target, chunks=(64, 16, 16), memory=1 << 20, **options)


def in_between(source: str, target: str, **options: Any) -> None:
    """By way of an array in between."""
    zstore.convert(source, target, chunks=(64, 8, 8), memory=400_000, **options)


def reduce(source: str, target: str, **options: Any) -> None:
    zstore.reduce(source, "std", 0, out=target, **options)


def by_months(source: str, target: str, **options: Any) -> None:
    zstore.reduce(source, "mean", every="month", out=target, **options)


def verify(source: str, target: str, *, journal: str, **options: Any) -> None:
    assert zstore.verify(source, journal=journal, **options).is_sound


def from_raster(source: str, target: str, **options: Any) -> None:
    from zstore.geo.rasters import raster_to_zarr

    raster_to_zarr(source, target, chunks=CHUNK, **options)


def from_stack(source: str, target: str, **options: Any) -> None:
    from zstore.geo.rasters import rasters_to_zarr

    rasters_to_zarr(sorted(Path(source).glob("*.tif")), target, stack="time", chunks=64, **options)


def from_netcdf(source: str, target: str, **options: Any) -> None:
    from zstore.geo.rasters import netcdf_to_zarr

    netcdf_to_zarr(source, target, chunks=(1, CHUNK, CHUNK), **options)


def mosaic(source: str, target: str, **options: Any) -> None:
    grid = zstore.GeoGrid("EPSG:32632", (10.0, 0.0, 699000.0, 0.0, -10.0, 5301000.0), (640, 1024))
    group = zstore.open_group(source, mode="r")
    made = zstore.mosaic([group[f"{number}"] for number in range(6)], grid, resampling="bilinear")
    # Of a bucket, a unit reads chunks of the scenes whole.
    memory = 3_200_000 if source.startswith("s3:") else 1_600_000
    zstore.convert(made, target, chunks=CHUNK, memory=memory, **options)


JOBS = {
    "pyramid": Job(scene, pyramid),
    "tile pyramid": Job(scene, tiles),
    "update": Job(changed, update, is_inside=True),
    "copy": Job(scene, copy),
    "convert": Job(lambda place: scene(place, 2), convert),
    "recode": Job(scene, recode),
    "rechunk": Job(maps, rechunk),
    "rechunk by way of scratch": Job(maps, in_between),
    "reduce": Job(series, reduce),
    "reduce by months": Job(days, by_months),
    "verify": Job(maps, verify, takes_resume=False),
    "raster": Job(raster, from_raster, is_file=True),
    "stack": Job(rasters, from_stack, is_file=True),
    "NetCDF": Job(netcdf, from_netcdf, is_file=True),
    "mosaic": Job(scenes, mosaic),
}


@contextmanager
def small() -> Iterator[None]:
    with ExitStack() as patches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, values in SMALL.items():
            patches.enter_context(mock.patch.multiple(module, **values))
        yield


# A unit: the number of its plan among those that make any, and what the plan calls it.
Made = tuple[int, Any]


def carry_out(
    name: str, said: Mapping[str, Any], *, resume: bool = False, read_size: Callable[[], int] | None = None
) -> tuple[dict[Made, int], int]:
    """Do a job; the units that were made with what each has read, and how many are under way at a time.

    A file names the units that are done, and another tells how much of the job is, also of who is killed.

    read_size  what was read up to now; units are made one after the other then. None: not to be counted
    """
    job, lock = JOBS[name], threading.Lock() if read_size else nullcontext()
    more: dict[str, Any] = {"resume": True} if resume and job.takes_resume else {}
    if name == "verify":
        more["journal"] = said["journal"]
    made, plans, most, make = dict[Made, int](), dict[str, int](), list[int](), runner._make
    count = read_size or (lambda: 0)
    with ExitStack() as stack:
        told = stack.enter_context(Path(said["told"]).open("wb", buffering=0))
        done = stack.enter_context(Path(said["done"]).open("ab", buffering=0))

        # Numbers of the same length, so that a file that is written over is whole at any moment.
        def progress(part: int, total: int) -> None:
            os.pwrite(told.fileno(), b"%12d %12d" % (part, total), 0)

        def note(sent: Any, unit: Any) -> Any:
            number = plans.setdefault(sent.run, len(plans))
            with lock:
                before = count()
                result = make(sent, unit)
                made[number, unit] = count() - before
            done.write(f"{(number, unit)!r}\n".encode())
            return result

        stack.enter_context(small())
        stack.enter_context(use_storage_options(said["options"]))
        stack.enter_context(mock.patch.object(runner, "_make", note))
        enter = lambda self: most.append(self._ahead) or self  # noqa: E731
        stack.enter_context(mock.patch.object(runner.Runner, "__enter__", enter))
        job.run(said["source"], said["target"], progress=progress, **more)
    return made, max(most, default=0)


def serve() -> None:
    """Do each job that a line names in a process of its own; its number, and how it ended, are printed."""
    for line in sys.stdin:
        said = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                # Until it is known which process this is.
                while not Path(said["go"]).exists():
                    time.sleep(0.001)
                carry_out(said["name"], said)
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
                os._exit(3)
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


class Killing(BucketServer):
    """Counts the bytes of the values below a prefix that are read; kills a process at its n-th request."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.counted, self.read_size, self.count = 0, "/from/", 0, 0
        self.end: Callable[[], None] = bool
        # Who is killed says no good-bye.
        self.httpd.handle_error = lambda *_: None  # type: ignore[method-assign]

    def answer(self, request: Any, path: str, *others: Any) -> tuple[int, dict[str, str], bytes]:
        self.count += 1
        self.left -= 1
        if self.left == 0:
            self.end()
        status, headers, data = super().answer(request, path, *others)
        if request.command == "GET" and path.startswith(self.counted):
            self.read_size += len(data)
        return status, headers, data


def read_by_system() -> int:
    """Bytes that this process has read of files."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]


def files_of(place: Path) -> dict[str, bytes]:
    files = (f for f in sorted(place.rglob("*")) if f.is_file() and MADE not in f.parts)
    return {str(f.relative_to(place)): f.read_bytes() for f in files}


class Site:
    """Where a job is done: source and target in directories, or in a bucket; what is read is counted."""

    def __init__(self, name: str, place: Path, server: Killing | None) -> None:
        self.job, self.server, self.place = JOBS[name], server, place
        self.job.prepare(place / "from")
        is_here = server is None or self.job.is_file
        self.is_counted_here = is_here
        if server is not None:
            if self.job.is_inside:
                server.counted = "/to/t/0/a/c/"
            for key, value in files_of(place / "from").items() if not self.job.is_file else ():
                server.values[f"/from/s/{key}"] = value
        self.said = {
            "name": name,
            "source": str(place / "from") if is_here else "s3://from/s",
            "target": str(place / "to") if server is None else "s3://to/t",
            "journal": str(place / "journal") if server is None else "s3://to/journal",
            "options": {} if server is None else server.options(),
            "told": str(place / "told"),
            "done": str(place / "done"),
            "go": str(place / "go"),
        }

    def clear(self) -> None:
        """Have the target as it was before the job."""
        for name in ("go", "told", "done"):
            (self.place / name).unlink(missing_ok=True)
        before = files_of(self.place / "from") if self.job.is_inside else {}
        if self.server is None:
            for name in ("to", "journal"):
                shutil.rmtree(self.place / name, ignore_errors=True)
            if before:
                shutil.copytree(self.place / "from", self.place / "to")
            return
        with self.server.lock:
            for key in [key for key in self.server.values if key.startswith("/to/")]:
                del self.server.values[key]
            self.server.tags.clear()
            self.server.values.update({f"/to/t/{key}": value for key, value in before.items()})

    def made(self) -> dict[str, bytes]:
        """All that is at the target and the journal, but for names that are another each time."""
        if self.server is None:
            found = {f"{n}/{k}": v for n in ("to", "journal") for k, v in files_of(self.place / n).items()}
        else:
            with self.server.lock:
                found = {key: value for key, value in self.server.values.items() if key.startswith("/to/")}
        # What who is killed has not removed: a file on its way, a look at which conditions a bucket keeps.
        # The fingerprint is kept by who resumes, and by nobody else.
        rest = (".zstore-tmp", ".zstore-conditions", MADE)
        found = {key: value for key, value in found.items() if not any(word in key for word in rest)}
        return {key: PLACE.sub(b"", value) for key, value in found.items()}

    def read_size(self) -> int:
        """What was read of the source up to now."""
        if self.is_counted_here:
            return read_by_system()
        assert self.server is not None
        return self.server.read_size

    def kept_size(self) -> int:
        """What the journal holds that counts as read, when it is read: results of units that are done."""
        if self.server is not None:
            return 0
        return sum(len(v) for key, v in self.made().items() if JOB in key and "/scratch/" not in key)

    def told(self) -> tuple[int, int]:
        """How much is done, of how much; (0, 0) where nothing was said."""
        file = self.place / "told"
        words = file.read_bytes().split() if file.exists() else []
        return (int(words[0]), int(words[1])) if words else (0, 0)

    def share(self) -> float:
        """How much is done of all."""
        done, total = self.told()
        return done / total if total else 0.0

    def done(self) -> set[Made]:
        """The units that are done."""
        file = self.place / "done"
        return {*map(literal_eval, file.read_text().splitlines())} if file.exists() else set()


@pytest.fixture(scope="module")
def nursery() -> Iterator[subprocess.Popen[str]]:
    """What begins processes that have all imported."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]\n"
        "from tests.faults import test_killed_jobs as mine\n"
        "import zstore.geo.rasters.stack, zstore.geo.pyramid.build, zstore.jobs.upkeep.verify\n"
        "mine.serve()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def run_killed(nursery: Any, site: Site, moment: float) -> bool:
    """Do the job in a process that is killed; whether it was.

    moment  of a bucket, the request at which it is; of a directory, the part of the job that is done then
    """
    site.clear()
    nursery.stdin.write(f"{json.dumps(site.said)}\n")
    nursery.stdin.flush()
    # It waits, so that this is that process; a number may soon be another's.
    child = os.pidfd_open(int(nursery.stdout.readline()))

    def end() -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)

    if site.server is not None:
        site.server.left, site.server.end = max(1, round(moment)), end
    Path(site.said["go"]).touch()
    if site.server is None:
        # Before the first part is done, and after the last: some time later.
        until = time.monotonic() + (0.3 * -moment if moment < 0 else 60)
        while time.monotonic() < until and site.share() < min(moment, 1) + (moment < 0):
            time.sleep(0.0005)
        time.sleep(max(0, moment - 1) * 0.3)
        end()
    status = int(nursery.stdout.readline())
    os.close(child)
    if site.server is not None:
        site.server.end = bool
        time.sleep(0.05)  # what it asked last is answered
    assert status in (0, signal.SIGKILL), status
    return status != 0


@pytest.mark.slow
@pytest.mark.parametrize("where", ["directory", "bucket"])
@pytest.mark.parametrize("name", JOBS)
def test_a_killed_job_comes_out_the_same_and_reads_what_was_left(
    name: str, where: str, tmp_path: Path, nursery: subprocess.Popen[str]
) -> None:
    chance = random.Random(f"{name} {where}")
    with ExitStack() as stack:
        server = stack.enter_context(Killing()) if where == "bucket" else None
        site = Site(name, tmp_path, server)
        for _ in range(2):  # the first time imports modules
            site.clear()
            before, asked = site.read_size(), 0 if server is None else server.count
            units, most = carry_out(name, site.said, read_size=site.read_size)
        whole_size, expected = site.read_size() - before, site.made()
        moments = (-0.1, 1.1) if server is None else (1, server.count - asked)
        assert units and (expected or name == "verify") and not [key for key in expected if JOB in key]
        left, kept, read, again = list[float](), list[float](), list[float](), list[int]()
        while len(read) < KILLS:
            if not run_killed(nursery, site, chance.uniform(*moments)):
                continue
            done = site.done()
            assert done <= set(units)
            if len(done) == len(units) and not [key for key in site.made() if JOB in key]:
                continue  # who came to the end was not killed, and the next call is another job
            # What the units that are left read, and what was read beside units: to plan them.
            left.append((whole_size - sum(units[unit] for unit in done)) / whole_size)
            kept.append(site.kept_size() / whole_size)
            before = site.read_size()
            made, _ = carry_out(name, site.said, resume=True)
            read.append((site.read_size() - before) / whole_size)
            again.append(len(made) - (len(units) - len(done)))
            assert site.made() == expected, (len(read), left[-1])
        print(
            f"\n| {name} | {where} | {KILLS} | {whole_size / 1e6:.2f} | {len(units)} | "
            f"{100 * np.mean(left):.0f} % | {100 * np.mean(read):.0f} % | {max(again)} |"
        )
        # Those that were done, and not noted yet as others were waited for; and tiles beside the source.
        assert max(again) <= most + sum(size < 1000 for (plan, _), size in units.items() if plan == 0)
        largest = max(units.values()) / whole_size
        for share, results, size, count in zip(left, kept, read, again, strict=True):
            # Who goes on reads the documents, of source and target, too, and what the calling thread was at;
            # and each thread opens a file anew.
            most_size = 1.1 * (share + results) + (1 + max(0, count)) * largest + 0.02
            assert size <= most_size, (share, results, size, count)
