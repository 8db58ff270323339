"""The command line: what it prints, what it makes, and how it says no."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import textwrap
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.read import read_geo
from zstore.storage.local import LocalStore

testing = pytest.importorskip("click.testing", reason="the command line is made with click")
pytest.importorskip("rich", reason="the command line draws with rich")
from zstore.cli.root import zstore as command  # noqa: E402

RASTER = Path(__file__).parents[2] / "examples" / "data" / "LC80030172015001LGN00_B5.tiff"


def run(*words: object, code: int = 0):
    """The result of `zstore WORDS`, which must give that exit code."""
    result = testing.CliRunner().invoke(command, [str(word) for word in words])
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output}") from result.exception
    return result


@pytest.fixture
def pyramid(tmp_path: Path) -> Path:
    pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    run("convert", RASTER, tmp_path / "p.zarr", "--pyramid", "--shards", 512)
    return tmp_path / "p.zarr"


def test_convert_there_and_back(pyramid: Path, tmp_path: Path) -> None:
    import rasterio

    assert read_geo(zstore.open_group(pyramid, mode="r"))[0].levels[3].shape == (137, 164)
    band = zstore.open_array(pyramid, "0/band_1", mode="r")
    assert (band.zarr_format, band.chunks, band.shards) == (3, (256, 256), (512, 512))
    run("convert", pyramid, tmp_path / "back.tif")
    run("convert", pyramid, tmp_path / "level.tif", "--level", 2, "--cog")
    with rasterio.open(RASTER) as source, rasterio.open(tmp_path / "back.tif") as back:
        np.testing.assert_array_equal(source.read(), back.read())
    with rasterio.open(tmp_path / "level.tif") as level:
        assert (level.shape, level.transform.a) == ((274, 328), 120.0)


def test_convert_with_every_option(tmp_path: Path) -> None:
    pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    words = ["--format", 2, "--chunks", "128,64", "--codec", "gzip", "--levels", 1, "--method", "nearest"]
    run("convert", RASTER, tmp_path / "z", *words, "--bands", 1)
    run("convert", RASTER, tmp_path / "z", code=1)
    run("convert", RASTER, tmp_path / "z", *words, "--overwrite")
    made = zstore.open_group(tmp_path / "z", mode="r")
    fine, coarse = made["0/band_1"], made["1/band_1"]
    assert (made.zarr_format, coarse.chunks) == (2, (128, 64))
    assert coarse.model.codecs == fine.model.codecs and coarse.model.codecs[-1].name == "numcodecs.gzip"
    np.testing.assert_array_equal(coarse[...], fine[::2, ::2])


def test_pyramid(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 9, (200, 300)).astype("u1")
    zstore.create_array(tmp_path / "a", data=data, dimension_names=("y", "x"), chunks=64)
    run("pyramid", tmp_path / "a", tmp_path / "p", "--levels", 2, "--method", "mode", "--nodata", 0)
    result = run("pyramid", tmp_path / "p", "--levels", 1, "--method", "a=nearest", "--overwrite")
    assert "├── 0" in result.output and "└── 1" in result.output
    made = zstore.open_group(tmp_path / "p", mode="r")
    np.testing.assert_array_equal(made["0/a"][...], data)
    np.testing.assert_array_equal(made["1/a"][...], data[::2, ::2])
    assert made["1/a"].attrs["_FillValue"] == 0


def test_info_says_what_there_is_to_know(pyramid: Path) -> None:
    said = run("info", pyramid).output
    for fact in (
        "group, Zarr v3",
        "EPSG:32622",
        "612825 6819885 652125 6852675",
        "30 × 30",
        "1093 rows × 1310 columns (y, x)",
        "240 × 240",
        "uint16",
        "512 × 512",
        "sharding_indexed, bytes, zstd",
        "MiB",
        "average",
    ):
        assert fact in said
    assert "error" not in said and "warning" not in said
    assert "MiB" not in run("info", pyramid, "--no-sizes").output


def test_info_tells_nodata_and_findings(tmp_path: Path) -> None:
    attributes = {"_FillValue": -9999, "spatial:transform": [1, 2, 3]}
    zstore.create_array(
        tmp_path / "a", data=np.zeros((5, 6), "i2"), dimension_names=("y", "x"), attributes=attributes
    )
    said = run("info", tmp_path / "a").output
    assert "array, Zarr v3" in said and "-9999" in said
    assert "error: ZC-05: spatial:transform" in said


def test_tree_and_consolidate(pyramid: Path) -> None:
    said = run("tree", pyramid).output
    assert "│   ├── band_1 (1093, 1310) uint16" in said
    assert "band_1" not in run("tree", pyramid, "--level", 1).output
    document = pyramid / "zarr.json"
    assert "consolidated_metadata" in json.loads(document.read_text())
    zstore.open_group(pyramid)["1"].attrs["note"] = "changed"
    assert "consolidated_metadata" not in json.loads(document.read_text())
    assert "20 nodes" in run("consolidate", pyramid).output
    assert "consolidated_metadata" in json.loads(document.read_text())


def test_quicklook(pyramid: Path, tmp_path: Path) -> None:
    import rasterio

    said = run("quicklook", pyramid, "-o", tmp_path / "a.png", "--size", 400).output
    assert "a.png: 328 × 274" in said
    with (
        pytest.warns(rasterio.errors.NotGeoreferencedWarning),
        rasterio.open(tmp_path / "a.png") as picture,
    ):
        assert (picture.shape, picture.count) == ((274, 328), 1)
    assert "164 × 137" in run("quicklook", pyramid, "-o", tmp_path / "b.png", "--level", 3).output
    said = run("quicklook", pyramid, "-o", tmp_path / "none" / "c.png", code=1).stderr
    assert "c.png" in said and "No such file" in said


def test_conventions_are_chosen(tmp_path: Path) -> None:
    attributes = {
        "proj:code": "EPSG:32633",
        "spatial:dimensions": ["y", "x"],
        "spatial:transform": [1, 0, 0, 0, -1, 9],
    }
    group = zstore.create_group(tmp_path / "z", attributes=attributes)
    group.create_array("b", shape=(4, 4), dtype="u1", dimension_names=["y", "x"])
    assert "EPSG:32633" in run("info", tmp_path / "z").output
    assert "EPSG:32633" in run("--conventions", "cf, ...", "info", tmp_path / "z").output
    assert "EPSG:32633" not in run("--conventions", "cf", "info", tmp_path / "z").output
    assert "unknown convention 'acne'" in run("--conventions", "acne", "info", tmp_path / "z", code=1).output


def test_plugins_and_version() -> None:
    said = run("plugins").output
    assert "sharding_indexed" in said and "average" in said and "geozarr" in said
    assert run("--version").output.startswith(f"zstore, version {zstore.__version__} (")


def test_an_error_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = run("info", tmp_path / "none", code=1)
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: no array or group there; looked for zarr.json")
    assert f"{tmp_path}/none" in result.stderr
    result = testing.CliRunner().invoke(command, ["--traceback", "info", str(tmp_path / "none")])
    assert isinstance(result.exception, zstore.errors.NotFoundError)


def test_bad_input(pyramid: Path, tmp_path: Path) -> None:
    pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    (tmp_path / "text.tif").write_text("no raster")
    for words, message in (
        (("convert", tmp_path / "none.tif", tmp_path / "z"), "no raster there"),
        (("convert", tmp_path / "text.tif", tmp_path / "z"), "not a raster that GDAL can open"),
        (("convert", RASTER, tmp_path / "z", "--codec", "zsdt"), "unknown codec 'zsdt'"),
        (("pyramid", pyramid), "levels 1, 2, 3 are there already"),
        (("pyramid", pyramid, tmp_path / "q", "--method", "avarage"), "unknown resampler 'avarage'"),
        (("convert", pyramid, tmp_path / "z.tif", "--level", 9), "no level 9; there are 4"),
        (
            ("quicklook", pyramid, "-o", tmp_path / "a.png", "--bands", "red"),
            "no band 'red'; there are band_1",
        ),
        (("consolidate", pyramid / "0" / "x"), "an array is there, expected a group"),
    ):
        assert message in run(*words, code=1).stderr
    for words, message in (
        (("info",), "Missing argument"),
        (("convert", RASTER, tmp_path / "z", "--chunks", "big"), "'big' are no lengths, like 256"),
        (("convert", RASTER, tmp_path / "z", "--bands", "red"), "expected numbers of bands"),
        (("convert", pyramid, tmp_path / "z", "--pyramid"), "--pyramid does not go with a Zarr"),
        (("invent",), "No such command"),
    ):
        assert message in run(*words, code=2).stderr
    assert not (tmp_path / "z").exists()


def test_malformed_metadata(pyramid: Path) -> None:
    (pyramid / "0" / "band_1" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "arr')
    said = run("info", pyramid / "0" / "band_1", code=1).stderr
    assert "metadata document is not valid" in said and "band_1" in said
    (pyramid / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "array"}))
    assert "shape" in run("info", pyramid, code=1).stderr


def test_unknown_codec_in_a_store(pyramid: Path, tmp_path: Path) -> None:
    path = tmp_path / "a"
    zstore.create_array(path, data=np.ones((4, 4), "u1"), dimension_names=("y", "x"))
    document = json.loads((path / "zarr.json").read_text())
    document["codecs"].append({"name": "acme.squeeze", "configuration": {}})
    (path / "zarr.json").write_text(json.dumps(document))
    assert "cannot be read: unknown codec 'acme.squeeze' " in run("info", path, code=1).output
    assert "unknown codec 'acme.squeeze'" in run("quicklook", path, "-o", tmp_path / "a.png", code=1).stderr


def test_damaged_chunk(pyramid: Path, tmp_path: Path) -> None:
    shard = pyramid / "0" / "band_1" / "c" / "1" / "1"
    content = bytearray(shard.read_bytes())
    content[:8] = bytes(8)
    shard.write_bytes(content)
    said = run("convert", pyramid, tmp_path / "a.tif", code=1).stderr
    assert "c/1/1" in said and "band_1" in said and said.count("\n") == 1
    assert not (tmp_path / "a.tif").exists()


def test_a_raster_without_crs_gives_a_notice(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasters are written with rasterio")
    shape = {"driver": "GTiff", "width": 9, "height": 9, "count": 1, "dtype": "uint8"}
    with rasterio.open(
        tmp_path / "a.tif", "w", transform=rasterio.Affine(2, 0, 5, 0, -2, 9), **shape
    ) as raster:
        raster.write(np.ones((1, 9, 9), "u1"))
    result = run("convert", tmp_path / "a.tif", tmp_path / "z")
    assert result.stderr.startswith("notice: raster ") and "has no CRS" in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_click_there_is_a_message() -> None:
    script = """
        import sys
        sys.modules["click"] = None
        from zstore.cli.main import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "needs click" in done.stderr and "zstore[cli]" in done.stderr


def test_python_dash_m(tmp_path) -> None:
    def said(command: str, place: Path) -> tuple[int, str, str]:
        words = [sys.executable, "-m", "zstore", command, str(place)]
        poor = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(words, capture_output=True, text=True, env=poor)
        return done.returncode, done.stdout, done.stderr

    status, shown, error = said("tree", Path("/nowhere"))
    assert (status, shown) == (1, "") and error.startswith("error: no array or group there")
    # Where an output's encoding lacks a character, what is told says which.
    zstore.create_group(tmp_path / "a.zarr").create_array("h\u00f6he", shape=4, dtype="i4")
    status, shown, error = said("info", tmp_path / "a.zarr")
    assert (status, error) == (0, "") and "h\\xf6he" in shown


def test_what_zarr_has_of_a_file_is_converted_by_name(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="HDF5 is written with h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["b"] = np.arange(4.0), np.arange(3)
        file.create_dataset("references", (2,), dtype=h5py.ref_dtype)
    said = run("convert", tmp_path / "a.h5", tmp_path / "a.zarr", code=1).stderr
    assert "'/references' has the type object, which Zarr does not have" in said
    assert not (tmp_path / "a.zarr").exists()
    run("convert", tmp_path / "a.h5", tmp_path / "a.zarr", "--bands", "a", code=1)  # one more was left out
    made = zstore.open_group(tmp_path / "a.zarr", mode="r")
    assert [*made] == ["a"] and made["a"][...].tolist() == [0, 1, 2, 3]


def test_what_is_reduced_is_said(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "a.zarr").create_group("b")
    for unit in ("ns", "D"):
        days = np.array(["2020-02-29", "2019-01-01", "NaT"], f"M8[{unit}]")
        group.create_array(unit, data=days)
        said = json.loads(run("reduce", tmp_path / "a.zarr" / "b" / unit, "--method", "max", "--json").stdout)
        assert said["items"] == str(days[0])
    said = run("reduce", tmp_path / "a.zarr", tmp_path / "c.zarr", code=1).stderr
    assert "holds no arrays of data to reduce; expected a group that does, such as 'b' in it" in said


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("words", [["--help"], ["tree", "a.zarr"]])
def test_a_full_disk_at_standard_output_is_said(tmp_path: Path, words: list[str]) -> None:
    zstore.create_group(tmp_path / "a.zarr")
    with FULL.open("w") as full:
        line = [sys.executable, "-m", "zstore", *words]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    said = f"error: cannot write to standard output: {os.strerror(ENOSPC)}\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_closed_standard_streams_are_no_files_of_a_store(tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "a.zarr", data=np.arange(4.0), chunks=2)
    # Whatever a library prints goes to these numbers.
    script = """
        import os, sys
        from zstore.cli.main import main
        place, file = sys.argv[1:]
        sys.argv[1:] = ["manifest", place]
        try:
            main()
        except SystemExit as end:
            status = end.code
        with open(file, "wb") as made:
            made.write(b"of the file")
            made.flush()
            os.write(1, b"of stdout")
            os.write(2, b"of stderr")
        sys.exit(status)
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "a.zarr"), str(tmp_path / "x")]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words])
    assert done.returncode == 0
    assert (tmp_path / "x").read_bytes() == b"of the file"


def test_info_names_levels_dialects_and_readers(pyramid: Path) -> None:
    said = run("info", pyramid).output
    for fact in ("4: 0, 1, 2, 3", "GeoZarr tile matrix set", "OpenLayers 10.11", "no: there is no `ome`"):
        assert fact in said


def test_profiles(tmp_path: Path) -> None:
    pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    from zstore.geo.conventions.write import PROFILES

    shown = re.sub(r"\s", "", run("convert", "--help").output)
    assert f"[{'|'.join(PROFILES)}]" in shown
    run("convert", RASTER, tmp_path / "p", "--levels", 1, "--profile", "ome")
    assert "ome" in zstore.open_group(tmp_path / "p").attrs
    run("pyramid", tmp_path / "p", tmp_path / "q", "--levels", 1, "--profile", "multiscale-arrays")
    assert isinstance(zstore.open_group(tmp_path / "q").attrs["multiscales"], list)
    assert "Invalid value for '--profile'" in run("pyramid", tmp_path / "p", "--profile", "x", code=2).output


def test_info_names_what_cannot_be_read_beside_the_rest(tmp_path: Path) -> None:
    group = zstore.create_group(tmp_path / "g")
    for path in ("good", "bad", "below/worse"):
        group.create_array(path, data=np.ones((3, 4)))
    (tmp_path / "g" / "bad" / "zarr.json").write_text('{"zarr_format": 3,')
    document = tmp_path / "g" / "below" / "worse" / "zarr.json"
    document.write_text(document.read_text().replace("float64", "float65"))
    rows = run("info", tmp_path / "g", code=1).output.splitlines()
    for path, said in (
        ("good", "3 × 4"),
        ("bad", "cannot be read: metadata document is not valid"),
        ("below/worse", "cannot be read: data type 'float65'"),
    ):
        assert [row for row in rows if path in row and said in row], path


def test_durable_reaches_whatever_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, levels = (tmp_path / name for name in ("source", "target", "levels"))
    group = zstore.create_group(source)
    group.create_array("a", data=np.ones((64, 64), "f4"), chunks=32, dimension_names=("y", "x"))
    seen, put = set(), LocalStore.put

    def noted(self: LocalStore, *given: Any) -> None:
        seen.add(self.durable)
        put(self, *given)

    monkeypatch.setattr(LocalStore, "put", noted)
    for option in ([], ["--durable"]):
        for words in (
            ("convert", source, target, "--format", 2),
            ("consolidate", target),
            ("pyramid", source, levels, "--levels", 1),
            ("pyramid", source, levels, "--update", "y=0:10"),
        ):
            seen.clear()
            run(*option, *words)
            assert seen == {bool(option)}, words
        shutil.rmtree(target)
        shutil.rmtree(levels)


def test_work_begun_in_python_is_told_by_the_call_that_goes_on(tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "a", data=np.arange(100), chunks=(10,))
    with pytest.raises(ZeroDivisionError):
        zstore.convert(tmp_path / "a", tmp_path / "b", chunks=7, progress=lambda done, _: done and 1 / 0)
    said = run("convert", tmp_path / "a", tmp_path / "b", "--chunks", 7, code=1).output
    call = said.partition("go on with: ")[2].partition(";")[0].replace("progress=...", "progress=None")
    assert exec(call, {"zstore": zstore}) is None, "as Python, not as options"
    np.testing.assert_array_equal(zstore.open_array(tmp_path / "b", mode="r")[...], np.arange(100))


def test_long_jobs_are_made_in_parts(tmp_path: Path) -> None:
    source, spare, plan = tmp_path / "s.zarr", tmp_path / "spare", tmp_path / "plan.json"
    root = zstore.create_group(source)
    root.create_array("a", data=np.arange(100), chunks=(10,))
    for number, words in enumerate(
        (
            ("copy", source),
            ("convert", source, "--chunks", 20, "--memory", "1M"),
            ("reduce", source / "a", "--method", "max"),
        )
    ):
        target = tmp_path / f"t{number}"
        assert "make them by `zstore run-units" in run(*words, target, "--plan", plan).output
        assert "other parts" in run("run-units", plan, "--part", "2/2").output or words[0] == "reduce"
        said = run("run-units", plan, "--finish", "--part", "1/2", code=1).output
        assert "of 2 parts, 1 are not whole" in said
        assert f"go on with: zstore run-units {plan} --finish" in run("info", target, code=1).output
        if words[0] != "copy":
            assert "or expected --overwrite (at " in run(*words, target, code=1).output
        made = json.loads(run("run-units", plan, "--part", "1/2", "--json").output)
        assert (made["part"], made["left_count"], made["is_finished"]) == (1, 0, False)
        assert "done" in run("run-units", plan, "--finish").output
        assert run("verify", target).exit_code == 0
        plan.unlink()
    assert zstore.open_array(tmp_path / "t2")[...] == 99
    for wrong in ("1", "1/2/3", "-1/2", "a/b"):
        assert "is no part, like 3/100" in run("run-units", plan, f"--part={wrong}", code=2).output
    for wrong in ("3/2", "0/2", "1/0", "1/9999999"):
        assert (
            "expected a number from 1 to 1000000 parts"
            in run("run-units", plan, "--part", wrong, code=1).output
        )
    assert "expected --part" in run("run-units", plan, code=2).output
    for words in (["copy", source, spare], ["convert", source, spare], ["reduce", source / "a", spare]):
        assert "--dry-run" in run(*words, "--plan", plan, "--dry-run", code=2).output
    assert not spare.exists()
    begun = json.loads(run("copy", source, spare, "--plan", plan, "--json").output)
    assert begun == {"plan": str(plan), "unit_count": 1, "is_finished": False}
    assert "takes a TARGET" in run("reduce", source / "a", "--plan", plan, code=2).output


def test_files_are_made_in_parts(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasters are read with rasterio")
    raster, target, plan = tmp_path / "a.tif", tmp_path / "t.zarr", tmp_path / "plan.json"
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(30, 0, 500000, 0, -30, 5200000)}
    with rasterio.open(raster, "w", "GTiff", 90, 70, 1, dtype="int16", nodata=-1, **place) as file:
        file.write(np.arange(70 * 90, dtype="i2").reshape(70, 90), 1)
    words = ("convert", raster, target, "--chunks", 32)
    said = run(*words, "--pyramid", "--dry-run").output
    assert re.search(r"1 files of \d+.*1 units, 9 requests.*levels are not counted", said, re.DOTALL)
    found = json.loads(run(*words, "--dry-run", "--json").output)
    status = raster.stat()
    assert found["sources"] == {str(raster): [[str(raster), status.st_size, status.st_mtime_ns]]}
    assert (found["read_size"], found["write_size"], found["unit_count"]) == (70 * 90 * 2,) * 2 + (1,)
    assert not target.exists()
    assert "1 units; make them by" in run(*words, "--plan", plan).output
    assert "all units are made" in run("run-units", plan, "--part", "1/1").output
    assert "done" in run("run-units", plan, "--finish").output
    np.testing.assert_array_equal(zstore.open(target)["band_1"][...].reshape(-1), np.arange(70 * 90))
    assert "writes" in run("convert", target, tmp_path / "b.tif", "--dry-run").output
    assert not (tmp_path / "b.tif").exists()
    run("convert", target, tmp_path / "b.tif", "--processes=2")
    with rasterio.open(tmp_path / "b.tif") as made:
        np.testing.assert_array_equal(made.read(1).reshape(-1), np.arange(70 * 90))
    for option in ("--plan=p", "--resume"):
        said = run("convert", target, tmp_path / "b.tif", option, code=2).output
        option = option.partition("=")[0]
        assert f"{option} does not go with a GeoTIFF made of a Zarr" in said
    stacked = run("convert", raster, raster, tmp_path / "s", "--stack", "bands", "--dry-run", "--json").output
    assert json.loads(stacked)["write_size"] == 2 * found["write_size"]


def test_copy_manifest_and_audit(tmp_path: Path) -> None:
    source, target, file = tmp_path / "s.zarr", tmp_path / "t.zip", tmp_path / "m"
    zstore.create_array(source, data=np.arange(100), chunks=(10,))
    assert "11 keys" in (said := run("copy", source, target, "--dry-run").output) and "to copy" in said
    assert not target.exists()
    done = json.loads(run("copy", source, target, "--manifest", file, "--check", "--json").output)
    assert (done["key_count"], done["kept_count"], done["is_dry_run"]) == (11, 0, False)
    assert "there already" in run("copy", source, target, code=1).output
    assert "11 kept" in run("copy", source, target, "--if-exists", "skip").output
    assert json.loads(run("manifest", target, "--json").output)["root"] == done["root"]
    assert run("manifest", source).stdout_bytes.count(b"\n") == 11 + 2
    assert "as the manifest says" in run("verify", source, "--manifest", file).output
    assert "sound" in run("verify", source, "--journal", tmp_path / "j").output
    (source / "c" / "3").write_bytes(b"?")
    (source / "c" / "5").unlink()
    found = json.loads(run("verify", source, "--manifest", file, "--json", code=1).output)
    assert {damage["key"]: damage["kind"] for damage in found["damages"]} == {
        "c/3": "changed",
        "c/5": "missing",
    }
    assert "2 not as the manifest says" in run("verify", source, "--manifest", file, code=1).output
    said = run("copy", source, tmp_path / "u", "--bandwidth", "fast", code=2).output
    assert "like 500K, 20M or 1.5G" in " ".join(said.split())
    run("copy", source, tmp_path / "u", "--exclude", "c/*", "--requests", 2, "--bandwidth", "1.5g")
    assert [path.name for path in (tmp_path / "u").iterdir()] == ["zarr.json"]
    for word in ("copy", "manifest", "verify"):
        assert f"zstore {word} scene.zarr" in run(word, "--help").output


def test_no_word_of_a_store_acts_upon_the_terminal(tmp_path: Path) -> None:
    """Names, dimensions, units and attributes are another's words."""
    hostile = "\x1b]0;mine\x07\x1b[31m"
    place, words = tmp_path / "s.zarr", dict.fromkeys(("units", "long_name", "grid_mapping"), hostile)
    for path in (f"a{hostile}", f"g{hostile}/b{hostile}"):
        zstore.create_array(
            place, path, data=np.ones((4, 4)), dimension_names=(f"{hostile}y", "x"), attributes=words
        )
    zstore.open_group(place, mode="r+").attrs.update({"title": hostile, "Conventions": hostile})
    (place / f"{hostile}.zarr").mkdir()
    (place / f"{hostile}.zarr" / "zarr.json").write_text(json.dumps({"node_type": hostile}))
    for verb in ("info", "tree", "validate", "verify", "doctor"):
        shown = testing.CliRunner().invoke(command, [verb, str(place)], color=True).output
        assert "mine" in shown and "\x1b]" not in shown and "\x07" not in shown, (verb, shown)
    # A pipe gets the names of a manifest as they are, a terminal does not.
    assert hostile in run("manifest", place).output
    primary, secondary = pty.openpty()
    subprocess.run([sys.executable, "-m", "zstore", "manifest", place], stdout=secondary, check=True)
    os.close(secondary)
    shown = os.read(primary, 1 << 16).decode()
    os.close(primary)
    assert "mine" in shown and "\x1b" not in shown


def test_doctor_works_without_ssl() -> None:
    """A Python that was built without it is one of the things to find out."""
    script = """
import sys
for name in ("ssl", "_ssl"):
    sys.modules[name] = None
from zstore.cli.root import zstore
zstore(["doctor"])
"""
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "kernels" in made.stdout and "doctor" not in made.stderr, made.stderr


def test_doctor_misses_a_package_that_zstore_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(name: str) -> str | None:
        return None if name in ("numcodecs", "rasterio") else "1"

    monkeypatch.setattr("zstore.cli.doctor._version_of", version_of)
    said = json.loads(run("doctor", "--json", code=1).output)
    assert said["troubles"] == ["package numcodecs: not installed, which zstore needs"]
    assert said["packages"]["rasterio"] == "not installed, in zstore[raster]"
