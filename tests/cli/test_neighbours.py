"""Groups with one member that cannot be read: commands go on with the others, and name it at their end."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import ReadingWarning, StoreError, ZstoreError

PLACE = {
    "proj:code": "EPSG:32633",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 500000, 0, -30, 5000000],
}
BROKEN = {
    "document": {"shape": "four"},
    "data type": {"data_type": "nobodys_type"},
    "codec": {"codecs": [{"name": "nobodys_codec"}]},
    "chunks": {},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    place = tmp_path_factory.mktemp("broken")
    for name, change in BROKEN.items():
        group = zstore.create_group(place / name, attributes=PLACE)
        for array in ("bad", "good"):
            data = np.arange(64 * 64, dtype="f4").reshape(64, 64)
            group.create_array(array, data=data, chunks=32, dimension_names=("y", "x"), compressors=None)
        bad = place / name / "bad"
        document = json.loads((bad / "zarr.json").read_text())
        (bad / "zarr.json").write_text(json.dumps(document | change))
        if name == "chunks":
            chunk = bad / "c" / "0" / "1"
            chunk.unlink()
            chunk.symlink_to("1")
    return place


def run(*words):
    result = CliRunner().invoke(command, [str(word) for word in words])
    assert "did not foresee" not in result.output
    return result


def good(target):
    array = zstore.open(target, mode="r")
    if isinstance(array, zstore.Group):
        array = next(one for _, one in array.arrays() if one.shape == (64, 64))
    np.testing.assert_array_equal(array[...], np.arange(64 * 64).reshape(64, 64))
    return True


BOX = "500000,4999000,501000,5000000"
# By command its words, where the good array is in the target (or the ending of the file), harmless damage.
COMMANDS = {
    "info": (["info", "SOURCE"], None, []),
    "tree": (["tree", "SOURCE"], None, ["document", "data type", "codec", "chunks"]),
    "validate": (["validate", "SOURCE"], None, ["codec", "chunks"]),
    "verify": (["verify", "SOURCE"], None, []),
    "doctor": (["doctor", "SOURCE", "--json"], None, ["codec", "chunks"]),
    "consolidate": (["consolidate", "SOURCE"], None, ["codec", "chunks"]),
    "copy": (["copy", "SOURCE", "TARGET", "-q"], "good", ["document", "data type", "codec"]),
    "convert": (["convert", "SOURCE", "TARGET", "-q", "--format", "2"], "good", []),
    "pyramid": (["pyramid", "SOURCE", "TARGET", "-q", "--levels", "1"], "0/good", []),
    "tiles": (["pyramid", "SOURCE", "TARGET", "-q", "--tms", "WebMercatorQuad"], None, []),
    "mosaic": (["mosaic", "SOURCE", "TARGET", "-q"], "", []),
    "raster": (["convert", "SOURCE", "TARGET.tif", "-q"], ".tif", []),
    "overviews": (["convert", "SOURCE", "TARGET.tif", "--cog", "-q"], ".tif", []),
    "netcdf": (["convert", "SOURCE", "TARGET.nc", "-q"], ".nc", []),
    "picture": (["quicklook", "SOURCE", "-o", "TARGET.png"], ".png", []),
    "reduce": (["reduce", "SOURCE", "TARGET", "-q", "--axis", "y", "--method", "max"], None, []),
    "part": (["convert", "SOURCE", "TARGET", "-q", "--bbox", BOX], None, []),
    "part, raster": (["convert", "SOURCE", "TARGET.tif", "-q", "--bbox", BOX], ".tif", []),
    "manifest": (["manifest", "SOURCE", "-o", "TARGET.txt"], ".txt", ["document", "data type", "codec"]),
}


# Two arrays of readable documents are no one array for `mosaic`.
CASES = [(name, kind) for name in COMMANDS for kind in BROKEN if (name, kind) != ("mosaic", "chunks")]


@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_command_goes_on_past_a_broken_member_and_ends_with_its_error(stores, tmp_path, name, kind):
    words, made, unconcerned = COMMANDS[name]
    if made in NEEDS:
        pytest.importorskip(NEEDS[made])
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(stores / kind, source, symlinks=True)
    result = run(*(word.replace("SOURCE", str(source)).replace("TARGET", str(target)) for word in words))
    unreachable = 3 if (name, kind) == ("verify", "chunks") else 1
    assert result.exit_code == (0 if kind in unconcerned else unreachable)
    if kind not in unconcerned or (name, kind) == ("validate", "codec"):
        assert "bad" in result.output
    if made is not None and made.startswith("."):
        READ[made](target.with_suffix(made))
    elif made is not None:
        assert good(target / made)
    if name in ("pyramid", "tiles"):
        for _, level in zstore.open_group(target, mode="r").groups():
            assert {"good", "bad"} & {*level.array_keys()} == {"good"}
            assert not (target / level.path / "bad").exists()
        assert zstore.validate(target).count("error") == 0
    elif name in ("reduce", "part"):
        assert [*zstore.open_group(target, mode="r").array_keys()] == ["good"]
        assert not (target / "bad").exists()
        first = zstore.open(target / "good", mode="r")[...].reshape(-1)[0]
        assert first == (63 * 64 if name == "reduce" else 0)


def bands(path):
    import rasterio

    with rasterio.open(path) as raster:
        assert raster.descriptions == ("good",)
        assert raster.read(1)[1, 1] == 65


def variables(path):
    import h5netcdf

    with h5netcdf.File(path) as file:
        assert [*file.variables] == ["good"]
        np.testing.assert_array_equal(file["good"][...], np.arange(64 * 64).reshape(64, 64))


def picture(path):
    assert path.read_bytes().startswith(b"\x89PNG")


def keys(path):
    assert {"good/zarr.json", "good/c/0/0"} <= {*path.read_text().split()}


# By ending, what is to be installed, and what reads such a file.
NEEDS = {".tif": "rasterio", ".nc": "h5netcdf"}
READ = {".tif": bands, ".nc": variables, ".png": picture, ".txt": keys}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_asked_for_by_name_is_an_error(stores, kind):
    with pytest.raises(ZstoreError):
        zstore.open(stores / kind / "bad", mode="r")[...]
    assert good(stores / kind / "good")


def test_a_call_raises_the_error_at_its_end_and_adds_the_member_when_it_can_be_read(stores, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    for kind in BROKEN:
        shutil.copytree(stores / kind, source, symlinks=True)
        for _ in range(2):
            with pytest.warns(ReadingWarning, match="'bad' is left out"), pytest.raises(ZstoreError):
                zstore.convert(source, target, zarr_format=2, resume=True)
            assert sorted(zstore.open_group(target, mode="r").array_keys()) == ["good"]
            assert list((target).glob("bad*")) == []
            assert good(target / "good")
        shutil.rmtree(source / "bad")
        shutil.copytree(source / "good", source / "bad")
        zstore.convert(source, target, zarr_format=2, resume=True)
        assert good(target / "bad")
        shutil.rmtree(source)
        shutil.rmtree(target)


def test_a_copy_is_gone_on_with_once_all_can_be_reached(stores, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(stores / "chunks", source, symlinks=True)
    (source / "notes.txt").write_text("all of it")
    with (
        pytest.warns(ReadingWarning, match="'bad' is left out"),
        pytest.raises(StoreError, match="bad/c/0/1"),
    ):
        zstore.copy(source, target)
    assert sorted(zstore.open_group(target, mode="r").array_keys()) == ["good"]
    assert good(target / "good")
    assert (target / "notes.txt").read_text() == "all of it"
    with pytest.raises(StoreError, match="resume"):
        zstore.copy(source, target)
    (source / "bad" / "c" / "0" / "1").unlink()
    shutil.copy(source / "good" / "c" / "0" / "1", source / "bad" / "c" / "0" / "1")
    zstore.copy(source, target, resume=True)
    assert good(target / "bad")
    assert zstore.verify(target).is_sound


def test_a_damaged_chunk_leaves_its_array_out(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    group = zstore.create_group(source)
    for name in ("bad", "good"):
        group.create_array(name, data=np.arange(4096.0), chunks=512, compressors="zstd")
    (source / "bad" / "c" / "7").write_bytes(b"no frame")
    with pytest.warns(ReadingWarning, match="'bad' is left out"), pytest.raises(ZstoreError, match="bad/c/7"):
        zstore.convert(source, target, chunks=1024)
    assert sorted(path.name for path in target.iterdir()) == ["good", "zarr.json"]


def test_a_broken_member_is_no_error_of_its_neighbour(stores, tmp_path):
    source = zstore.open_group(stores / "document", mode="r")["good"]
    with pytest.warns(ReadingWarning, match="'bad' is left out"):
        made = zstore.build_pyramid(source, tmp_path / "target", levels=1)
    assert "good" in made["1"]


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.filterwarnings("ignore::zstore.errors.ReadingWarning")
def test_an_update_goes_on_past_a_broken_array_and_is_finished_when_it_can_be_read(stores, tmp_path, kind):
    source, target = tmp_path / "source", tmp_path / "target"
    group = zstore.create_group(source, attributes=PLACE)
    for name in ("bad", "good"):
        group.create_array(name, data=np.zeros((64, 64), "f4"), chunks=32, dimension_names=("y", "x"))
    zstore.build_pyramid(source, target, levels=1)
    shutil.rmtree(source)
    shutil.copytree(stores / kind, source, symlinks=True)
    with pytest.raises(ZstoreError, match="bad"):
        zstore.update_pyramid(target, source=source)
    rows = np.arange(64 * 64, dtype="f4").reshape(32, 2, 32, 2).mean(axis=(1, 3))
    levels = zstore.open_group(target, mode="r")["1"]
    np.testing.assert_array_equal(levels["good"][...], rows)
    assert [one.work for one in zstore.verify(target).unfinished] == ["update_pyramid"]
    shutil.rmtree(source / "bad")
    shutil.copytree(source / "good", source / "bad")
    # No region says what has changed: what the update before has left undone is made.
    zstore.update_pyramid(target, {"y": 0}, source=source, arrays=["good"])
    np.testing.assert_array_equal(levels["bad"][...], rows)
    assert not zstore.verify(target).unfinished


def test_errors_that_workers_pickle_keep_what_the_system_says():
    error = StoreError("cannot read", path="file:///here", key="c/0")
    error.errno = 40
    other = pickle.loads(pickle.dumps(error))
    assert (str(other), other.errno, other.is_of_key) == (str(error), 40, True)
