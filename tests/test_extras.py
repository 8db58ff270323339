"""Each extra alone, in an environment with nothing else but what it asks for: what it is for works there."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# For those who work on the project.
OURS = {"all", "test", "readers", "writers", "bench", "fuzz", "lint", "docs", "dev"}

ARRAY = """
    place = {"spatial:dimensions": ["y", "x"], "spatial:transform": [30, 0, 0, 0, -30, 9]}
    cells = np.arange(64.0).reshape(8, 8)
    group = zstore.create_group("a.zarr", attributes={"proj:code": "EPSG:32633", **place})
    group.create_array("b", data=cells, dimension_names=["y", "x"])
"""
RUN = """
    def run(*words, code=0):
        done = subprocess.run([sys.executable, "-m", "zstore", *words], capture_output=True, text=True)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr
"""
PROOFS = {
    "": (
        ARRAY,
        RUN,
        """
        for codec in ("blosc", "gzip", "numcodecs.bz2"):
            zstore.create_array("c.zarr", data=cells, compressors=codec, overwrite=True)
            assert np.array_equal(zstore.open("c.zarr")[...], cells)
        assert zstore.convert("a.zarr", "memory://b")["b"].shape == (8, 8)
        assert "pip install zstore[cli]" in run("info", "a.zarr", code=1)
        for call, extra in (
            (lambda: zstore.build_pyramid("a.zarr", "p.zarr"), "geo"),
            (lambda: zstore.create_array("d.zarr", data=cells, compressors="numcodecs.blosc2"), "blosc2"),
        ):
            try:
                call()
            except zstore.errors.UnsupportedError as error:
                assert f"pip install 'zstore[{extra}]'" in str(error), error
            else:
                raise AssertionError(extra)
    """,
    ),
    "telemetry": (
        ARRAY,
        """
        from opentelemetry.trace import get_tracer
        with zstore.trace(tracer=get_tracer("zstore")) as trace:
            group["b"][0]
        assert trace.totals["read"].count == 1
    """,
    ),
    "geo": (
        ARRAY,
        """
        from zstore.geo.conventions.read import read_geo
        assert read_geo(group)[0].crs.code == "EPSG:32633"
        assert zstore.build_pyramid("a.zarr", "p.zarr", levels=1)["1/b"].shape == (4, 4)
    """,
    ),
    "raster": (
        """
        import rasterio
        from zstore.geo.rasters import raster_to_zarr, zarr_to_raster
        with rasterio.open("a.tif", "w", "GTiff", 8, 8, 1, dtype="uint8", crs="EPSG:32633",
                           transform=rasterio.Affine(1, 0, 0, 0, -1, 9)) as raster:
            raster.write(np.ones((1, 8, 8), "u1"))
        raster_to_zarr("a.tif", "a.zarr")
        assert zarr_to_raster("a.zarr", "b.tif").exists()
    """,
    ),
    "cli": (
        ARRAY,
        RUN,
        """
        for words in (("info", "a.zarr"), ("tree", "a.zarr"), ("validate", "a.zarr"), ("verify", "a.zarr"),
                      ("quicklook", "a.zarr", "-o", "a.png"), ("convert", "a.zarr", "b.zarr"), ("doctor",),
                      ("pyramid", "a.zarr", "p.zarr"), ("fix", "a.zarr"), ("plugins",)):
            run(*words)
        assert "EPSG:32633" in run("info", "p.zarr")
        Path("a.tif").write_bytes(b"II*\\0")
        assert "zstore[raster]" in run("convert", "a.tif", "c.zarr", code=1)
        assert "zstore[cloud]" in run("info", "s3://bucket/a", code=1)
    """,
    ),
    "zarr": (
        ARRAY,
        """
        import zarr
        import zstore.guests.zarr_python
        zarr.config.set({"codec_pipeline.path": "zstore.guests.zarr_python.ZstoreCodecPipeline"})
        assert zarr.open("a.zarr")["b"][1, 1] == 9
    """,
    ),
    "http": (
        ARRAY,
        """
        from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
        from threading import Thread
        server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a.zarr/b"
        assert zstore.open(url, mode="r")[1, 1] == 9
    """,
    ),
    "cloud": (
        """
        zstore.create_array("obstore+memory://a", "b", data=np.arange(9))
        array = zstore.create_array(f"obstore+file://{Path.cwd()}/a.zarr", "b", data=np.arange(9))
        assert array[3] == 3
    """,
    ),
    "xarray": (
        ARRAY,
        """
        import xarray
        assert xarray.open_dataset("a.zarr", engine="zstore", chunks=None)["b"][1, 1] == 9
    """,
    ),
    "dask": (
        ARRAY,
        """
        assert zstore.to_dask(group["b"])[1, 1].compute() == 9
    """,
    ),
    "netcdf": (
        """
        import h5netcdf
        from zstore.geo.rasters import netcdf_to_zarr
        with h5netcdf.File("a.nc", "w") as file:
            file.dimensions = {"x": 4}
            file.create_variable("v", ("x",), "f4")[:] = 3
        assert netcdf_to_zarr("a.nc", "a.zarr")["v"][1] == 3
    """,
    ),
    "ml-dtypes": (
        """
        assert float(zstore.create_array("memory://a", data=np.ones(3), dtype="bfloat16")[1]) == 1
    """,
    ),
    "msgpack": (
        """
        things = np.array(["a", {"b": 1}], object)
        array = zstore.create_array("memory://a", data=things, filters="msgpack2", zarr_format=2)
        assert list(array[...]) == list(things)
    """,
    ),
    "time": (
        """
        from zstore.geo.conventions.content import TimeAxis
        import cftime
    """,
    ),
    "blosc2": (
        """
        array = zstore.create_array("a.zarr", data=np.arange(900), compressors="numcodecs.blosc2")
        assert array[899] == 899 and array.nbytes_stored() < 7200
    """,
    ),
    "pcodec": (
        """
        array = zstore.array(np.arange(900), serializer="numcodecs.pcodec", compressors=None)
        assert array[899] == 899
    """,
    ),
    "zfpy": (
        """
        array = zstore.array(np.ones((8, 8)), serializer="numcodecs.zfpy", compressors=None)
        assert array[1, 1] == 1
   """,
    ),
}


def requirements(extra: str) -> Iterator[str]:
    """What an extra asks for, with what the extras that it names ask for."""
    for line in EXTRAS[extra] if extra else PROJECT["dependencies"]:
        named = re.fullmatch(r"zstore\[(.+)\]", line)
        if named is None:
            yield line
        else:
            for other in named[1].split(","):
                yield from requirements(other)


def test_every_extra_for_users_is_tried_and_is_part_of_all():
    assert set(PROOFS) - {""} == set(EXTRAS) - OURS
    assert set(requirements("all")) == {
        line for extra in set(EXTRAS) - OURS - {"zarr"} for line in requirements(extra)
    }


def test_what_the_base_asks_for_is_what_it_imports():
    asked = {re.match(r"[\w-]+", line)[0] for line in requirements("")}
    assert asked == {"numpy", "numcodecs", "fsspec", "pluggy"}
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    for name in asked:
        assert any(
            re.search(rf"^\s*(import|from) {name}\b|import_module\(\"{name}", t, re.M) for t in texts
        ), name


@pytest.mark.install
@pytest.mark.parametrize("extra", PROOFS)
def test_an_extra_works_alone(extra, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    wanted = [*requirements(""), *(requirements(extra) if extra else ())]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "zstore.pth").write_text(str(ROOT / "src"))
    # What xarray and zarr-python look zstore up by.
    points = PROJECT["entry-points"]
    lines = [f"[{kind}]\n" + "".join(f"{k} = {v}\n" for k, v in points[kind].items()) for kind in points]
    installed = packages / "zstore-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: zstore\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("".join(lines))
    program = "import subprocess, sys\nfrom pathlib import Path\nimport numpy as np\nimport zstore\n"
    program += "".join(map(textwrap.dedent, PROOFS[extra]))
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([python, "-W", "ignore", "-c", program], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
