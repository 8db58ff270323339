"""What is measured is what the line of code makes, and the front is the front; times are nobody's promise."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, UnsupportedError, ZstoreError
from zstore.plugin.jobs import Estimate
from zstore.storage.memory import MemoryStore

if not entry_points(group="zstore", name="tune"):
    pytest.skip("zstore-tune is not installed, so it has no entry point", allow_module_level=True)
testing = pytest.importorskip("click.testing", reason="the command line is made with click")

from zstore_tune import Choice, tune  # noqa: E402
from zstore_tune.lossy import FLOATS, count_bits, errors_of  # noqa: E402
from zstore_tune.measure import front  # noqa: E402
from zstore_tune.sample import choose_box  # noqa: E402

from zstore.cli.root import zstore as command  # noqa: E402
from zstore.testing.commands import CommandContract  # noqa: E402

LONG = 600.0


class TestTune(CommandContract):
    name = "tune"


def smooth(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray:
    values = np.random.default_rng(0).standard_normal(shape)
    for axis in range(values.ndim):
        values = values.cumsum(axis)
    return values.astype(dtype)


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    place = tmp_path / "maps.zarr"
    group = zstore.create_group(place)
    group.create_array("time", data=np.arange(20), dimension_names=["time"])
    group.create_array(
        "t2m", data=smooth((20, 40, 48)), dimension_names=["time", "y", "x"], chunks=(1, 40, 48)
    )
    return place


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_line_makes_what_was_measured(maps: Path, zarr_format: int) -> None:
    values = zstore.open_array(maps, "t2m")[...]
    access = ["series", "training"] if zarr_format == 3 else ["series", "windows"]
    samples = {"sample": {"time": 2}, "crop": {2: 16}} if zarr_format == 3 else {}
    found = tune(maps, access=access, zarr_format=zarr_format, seconds=LONG, **samples)
    assert (found.shape, found.dtype, found.untried) == ((20, 40, 48), "float32", 0)
    assert len(found.choices) > 15 and [*found.read_sizes] == access
    shapes = {choice.options.get("chunks") for choice in found.choices}
    assert len(shapes) > 2
    if samples:  # chunks of one sample and of several; as many crops as cover the array once
        assert {(2, 40, 16), (4, 40, 32)} < shapes
        assert found.read_sizes["training"] == 19 * 2 * 40 * 48 * 4
    for choice in found.choices:
        store = MemoryStore()
        array = eval(
            choice.code, {"zstore": zstore, "store": store, "shape": values.shape, "dtype": values.dtype}
        )
        array[...] = values
        np.testing.assert_array_equal(array[...], values)
        data = [
            entry.size
            for entry in store.entries("")
            if "/.z" not in f"/{entry.key}" and "json" not in entry.key
        ]
        assert (sum(data), len(data)) == (choice.size, choice.object_count)
        assert choice.error is None and min(found.speeds(choice).values()) > 0
        assert choice.has_checksum == array.has_checksum
    assert not all(choice.has_checksum for choice in found.front) and "checksum=True" in " ".join(found.notes)
    labels = " ".join(choice.label for choice in found.choices)
    assert "default" in labels and "balanced" in labels
    assert ("now" in labels) == (zarr_format == 3)
    assert {choice.size for choice in found.front} >= {min(choice.size for choice in found.choices)}


def test_nothing_is_changed_where_the_data_are(maps: Path) -> None:
    before = {path: path.read_bytes() for path in maps.rglob("*") if path.is_file()}
    tune(maps, seconds=0.001)
    assert {path: path.read_bytes() for path in maps.rglob("*") if path.is_file()} == before


def test_a_dry_run_measures_nothing(maps: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    found = tune(maps, scratch=kept, dry_run=True)
    assert isinstance(found, Estimate) and not list(kept.iterdir())
    tuning = tune(maps, scratch=kept, seconds=20)
    assert 2 < len(tuning.choices) + tuning.untried <= found.unit_count
    assert found.read_size == tuning.sample_size and found.write_size == found.unit_count * tuning.sample_size
    said = testing.CliRunner().invoke(command, ["tune", str(maps), "--dry-run", "--json", "-q"])
    assert json.loads(said.stdout)["unit_count"] == found.unit_count


def test_the_front_is_what_nothing_beats() -> None:
    def choice(size: int, write: float, read: float, error: float | None = None) -> Choice:
        lost = None if error is None else (error, error)
        return Choice({"compressors": None}, size, 1, write, {"whole": read}, lost, "x" if lost else "")

    small, quick, beaten = choice(10, 5.0, 5.0), choice(50, 1.0, 1.0), choice(50, 5.0, 5.0)
    alike = choice(50, 1.01, 1.01)
    rough, rougher = choice(9, 5.0, 5.0, 0.1), choice(9, 5.0, 5.0, 0.5)
    marked = front([small, quick, beaten, alike, rough, rougher])
    # Noise beats nobody; what loses something does not beat what loses nothing, nor what loses less.
    assert [one.is_best for one in marked] == [True, True, False, True, True, True]
    (balanced,) = [one for one in marked if one.label]
    assert balanced.label == "balanced" and balanced.error is None


def test_rounding_only_when_asked_and_with_its_error(tmp_path: Path) -> None:
    values = smooth((64, 300)) / 7
    values[3, 4] = np.nan
    found = tune(values, lossy=True, seconds=LONG)
    lossy = [choice for choice in found.choices if choice.error is not None]
    assert {choice.options["filters"][0]["name"] for choice in lossy} == {"bitround", "scale_offset"}
    for choice in lossy:
        names = {"zstore": zstore, "store": MemoryStore(), "shape": values.shape, "dtype": values.dtype}
        array = eval(choice.code, names)
        array[...] = values
        back = array[...]
        assert np.isnan(back[3, 4])
        off = np.abs(back.astype("f8") - values)
        assert choice.error == pytest.approx((np.nanmax(off), np.sqrt(np.nanmean(off**2))))
        assert 0 < choice.error[1] <= choice.error[0] and choice.rounding
        if choice.options["filters"][0]["name"] == "scale_offset":
            # What the sample did not hold is refused, not bent.
            with pytest.raises(ZstoreError):
                array[0, 0] = np.nanmax(values) * 1e6
    assert min(c.size for c in lossy) < min(c.size for c in found.choices if c.error is None)


def test_bits_that_hold_information_are_counted() -> None:
    chance = np.random.default_rng(1)
    values = np.repeat(chance.random(2**14).astype("f4") + 1, 8).view("u4")
    # Ten bits of the mantissa go on to the next item, the other thirteen are noise.
    kept = values & np.uint32(0xFFFFE000) | chance.integers(0, 2**13, values.size, dtype="u4")
    assert count_bits(kept.view("f4"), 0.9999) == 10
    assert count_bits(kept.view("f4"), 0.5) < 10
    for name in FLOATS:
        assert count_bits(np.full(100, np.nan, name), 0.99) is None
    assert count_bits(np.ones(1, "f4"), 0.99) is None
    assert errors_of(np.array([1.0, np.inf]), np.array([1.5, np.inf])) == (0.5, pytest.approx(0.5))
    assert errors_of(np.array([1.0, np.nan]), np.array([1.0, 0.0])) is None


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (np.array(["a", "bb", "Ä" * 40] * 500, dtype=object), {"dtype": str}),
        (np.array([b"a", b"bb"] * 500, dtype=object), {"dtype": bytes}),
        (np.array([(n, np.nan) for n in range(300)], [("a", "<i4"), ("b", "<f8")]), {}),
        (np.arange(2400, dtype="u1").view("V8"), {"dtype": "r64"}),
        (np.arange(2000).astype("M8[s]"), {}),
        (smooth((70, 20), "c8"), {}),
        (np.arange(600, dtype=">u2").reshape(2, 3, 4, 25), {}),
        (np.arange(2) == 1, {}),
        (np.array([[5]], "u1"), {}),
    ],
)
def test_data_of_every_kind(data: np.ndarray, options: dict, tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "a", data=data, **options)
    found = tune(tmp_path / "a", seconds=LONG, access=["whole", "windows", "tiles", "series"], lossy=True)
    assert len(found.choices) >= 4 and found.front
    assert all(choice.error is None for choice in found.choices)
    assert ("no lossy choices" in " ".join(found.notes)) is True
    stored = zstore.open_array(tmp_path / "a")
    for dtype, choices in ((stored.dtype, found.choices), (data.dtype, tune(data, seconds=0.1).choices)):
        for choice in choices:
            names = {"zstore": zstore, "store": MemoryStore(), "shape": data.shape, "dtype": dtype}
            array = eval(choice.code, names)
            array[...] = data
            assert repr(array[...].tolist()) == repr(stored[...].tolist())


def test_edges_are_told(tmp_path: Path, maps: Path) -> None:
    with pytest.raises(MetadataError, match=r"array of shape \(0, 3\) holds nothing; expected items"):
        tune(np.zeros((0, 3)))
    with pytest.raises(UnsupportedError, match="no dimensions: one item"):
        tune(np.array(5.0))
    with pytest.raises(UnsupportedError, match="items are Python objects; expected numbers"):
        tune(np.array([{}, []], dtype=object))
    with pytest.raises(NotFoundError, match="holds no array"):
        tune(zstore.create_group(tmp_path / "none"))
    with pytest.raises(NotFoundError, match="no file there"):
        tune(tmp_path / "none.npy")
    for content in (b"hello", b""):
        (tmp_path / "bad.npy").write_bytes(content)
        with pytest.raises(UnsupportedError, match="file cannot be read"):
            tune(tmp_path / "bad.npy")
    for wrong in (
        {"access": "rows"},
        {"access": []},
        {"access": "training"},
        {"access": "whole", "sample": {"time": 2}},
        {"sample": {"time": 21}},
        {"crop": {"lon": 2}},
        {"seconds": 0},
        {"memory": 5},
        {"zarr_format": 1},
    ):
        with pytest.raises(MetadataError, match="expected"):
            tune(maps, **wrong)
    nothing = tune(np.full((500, 500), np.nan, "f4"), seconds=LONG, memory=1 << 18, lossy=True)
    assert "one value only" in nothing.notes[0] and nothing.front
    assert all(np.isfinite(choice.error[0]) for choice in nothing.choices if choice.error)
    uneven = zstore.create_array(MemoryStore(), data=np.arange(10), chunks=[[4, 6]])
    assert "now" not in " ".join(choice.label for choice in tune(uneven, seconds=LONG).choices)


def test_a_sample_is_looked_for_where_there_are_data_and_no_more_is_read() -> None:
    class Far(MemoryStore):
        """Memory that adds up what is asked of it."""

        taken = 0

        def get(self, *given, **named):
            found = super().get(*given, **named)
            Far.taken += 0 if found is None else len(found)
            return found

    store = Far()
    array = zstore.create_array(store, shape=(4000, 4000), chunks=(100, 100), dtype="u2", compressors=None)
    array[1000:1500, 1000:1500] = np.arange(500)
    Far.taken = 0
    found = tune(array, memory=1 << 20, seconds=0.001)
    assert found.sample == (250, 500) and "a sample of 250 × 500" in " ".join(found.notes)
    assert "one value" not in " ".join(found.notes)
    # The middle is empty; a quarter holds data. Chunks whole, at most one more a side.
    assert Far.taken <= 5 * 7 * 100 * 100 * 2 + 5000


def test_samples_keep_what_is_asked_about_long() -> None:
    assert choose_box((365, 4000, 4000), 1 << 23, 0, ["series"], {})[0] == 365
    few = choose_box((365, 4000, 4000), 1 << 23, 0, ["windows"], {})
    assert few[0] < 100 and min(few[1:]) >= 250
    assert choose_box((10**9,), 1000, 0, ["whole"], {})[0] <= 1000
    assert choose_box((3, 2), 1000, 0, ["whole"], {}) == (3, 2)
    # Samples of a training run are whole, as far as that goes.
    assert choose_box((8760, 721, 1440), 1 << 23, 0, ["training"], {0: 2}) == (5, 721, 1440)
    assert choose_box((8760, 721, 1440), 1 << 20, 0, ["training"], {0: 2})[0] == 2


def test_what_there_is_no_time_for_is_counted(maps: Path) -> None:
    seen = []
    found = tune(maps, seconds=1e-6, progress=lambda done, planned: seen.append((done, planned)))
    assert [choice.label.partition(",")[0] for choice in found.choices] != []
    assert len(found.choices) == 2 and found.untried > 10
    assert seen and all(done <= planned for done, planned in seen)


def test_the_command_prints_the_front_and_its_lines(maps: Path, tmp_path: Path) -> None:
    run = testing.CliRunner().invoke
    told = run(command, ["tune", str(maps), "--access", "series,whole", "--seconds", "3", "--memory", "4M"])
    assert told.exit_code == 0, told.output
    for word in (
        "series MB/s",
        "whole MB/s",
        "(default",
        "now",
        "balanced",
        "zstore.create_array(store, shape=shape",
    ):
        assert word in told.stdout
    np.save(tmp_path / "a.npy", smooth((50, 60)))
    told = run(command, ["tune", str(tmp_path / "a.npy"), "--lossy", "--json", "--seconds", "600"])
    said = json.loads(told.stdout)
    assert any(choice["error"] for choice in said["choices"]) and said["sample"]["shape"] == [50, 60]
    told = run(command, ["tune", str(maps), "--for", "training", "--sample", "time=2,1=40", "--dry-run"])
    assert told.exit_code == 0, told.output
    told = run(command, ["tune", str(maps), "--for", "training", "--crop", "x"])
    assert told.exit_code == 2 and "'x' is no length by dimension" in told.stderr
    told = run(command, ["tune", str(maps), "--access", "rows"])
    assert told.exit_code == 1 and "access is 'rows'; expected one or more of whole, windows" in told.stderr
    told = run(command, ["tune", str(maps), "--array", "t3m"])
    assert told.exit_code == 1 and "no array and no group 't3m'" in told.stderr
