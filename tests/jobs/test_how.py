"""Long calls take the same words with one meaning, and refuse those without meaning, with the reason."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.extensions.registry import jobs
from zstore.geo.rasters import zarr_to_netcdf, zarr_to_raster
from zstore.jobs.how import MEANINGS, WORDS, How, HowWords, refused
from zstore.jobs.plan import Estimate
from zstore.jobs.units import Job

ROOT = Path(__file__).resolve().parents[2]
OTHERS: dict[str, Any] = {
    "update_pyramid": zstore.update_pyramid,
    "verify": zstore.verify,
    "manifest": zstore.manifest,
    "zarr_to_netcdf": zarr_to_netcdf,
    "zarr_to_raster": zarr_to_raster,
}
PLUGINS = {
    "export": "zstore_serve.export",
    "export_site": "zstore_serve.export",
    "virtualize": "zstore_virtual.scan.virtualize",
    "tune": "zstore_tune.measure",
}
CALLS = {**{name: jobs.resolve(name) for name in sorted(jobs.names())}, **OTHERS}
SOME: dict[str, Any] = {
    "memory": 1 << 20,
    "executor": object(),
    "durable": True,
    "progress": print,
    "resume": True,
    "overwrite": True,
    "dry_run": True,
    "if_exists": "skip",
}


def call_of(name: str) -> Any:
    if name in CALLS:
        return CALLS[name]
    return getattr(pytest.importorskip(PLUGINS[name]), name)


def row_of(name: str, function: Any) -> str:
    cells = ("–" if word in refused(function) else "yes" for word in WORDS)
    return f"| `{name}` | {' | '.join(cells)} |"


def test_the_table_is_whole() -> None:
    assert [*WORDS] == [*MEANINGS] == [*HowWords.__annotations__] == [*SOME]
    assert How() == How(**WORDS)
    for memory in (0, -1, True, "1G"):
        with pytest.raises(zstore.errors.MetadataError, match="memory is"):
            How(memory=memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*CALLS, *PLUGINS])
@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_taken_or_refused(name: str, word: str) -> None:
    function = call_of(name)
    shown = inspect.signature(function).parameters
    if word in refused(function):
        assert word not in shown
        sentence = f"{word} does not go with {name}: {refused(function)[word]}"
        with pytest.raises(TypeError, match=re.escape(sentence)):
            function(**{word: SOME[word]})
        assert f"{word:<11} not taken: " in function.__doc__
    else:
        assert shown[word].default == WORDS[word] and shown[word].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"{word:<11} {MEANINGS[word].splitlines()[0]}" in function.__doc__


def test_the_page_has_the_matrix() -> None:
    page = (ROOT / "docs/scale.md").read_text()
    for name, function in CALLS.items():
        assert row_of(name, function) in page
    for name, module in PLUGINS.items():
        try:
            function = getattr(import_module(module), name)
        except ImportError:
            continue
        assert row_of(name, function) in page


def test_dry_runs_write_nothing(tmp_path: Path) -> None:
    source = tmp_path / "s"
    zstore.create_array(source, "a", data=np.arange(64.0).reshape(8, 8), chunks=4, dimension_names=["y", "x"])
    before = sorted(tmp_path.rglob("*"))
    estimates: list[Any] = [
        zstore.copy(source, tmp_path / "t", dry_run=True),
        zstore.convert(source, tmp_path / "t", chunks=(8, 8), dry_run=True),
        zstore.reduce(source / "a", "mean", out=tmp_path / "t", dry_run=True),
        zstore.build_pyramid(source / "a", tmp_path / "t", levels=1, dry_run=True),
        zstore.verify(source, dry_run=True),
        zstore.manifest(source, file=tmp_path / "m", dry_run=True),
        Job(source, tmp_path / "t", "convert", How(memory=1 << 24), chunks=(8, 8)).estimate(),
    ]
    assert sorted(tmp_path.rglob("*")) == before
    for estimate in estimates:
        assert isinstance(estimate, Estimate) and estimate.unit_count >= 1
    assert estimates[2].read_size == estimates[4].read_size == 64 * 8


def test_a_job_is_run_resumed_and_planned(tmp_path: Path) -> None:
    source = tmp_path / "s"
    zstore.create_array(source, data=np.arange(64.0).reshape(8, 8), chunks=4)
    job = Job(source, tmp_path / "mean", "reduce", How(memory=1 << 20), method="mean", axis=0)
    assert job.units() >= 1
    assert job.run()[...].tolist() == zstore.open_array(source)[...].mean(0).tolist()
    copy = Job(source, tmp_path / "t", zstore.copy)
    count = copy.plan(tmp_path / "plan.json")
    assert zstore.run_units(tmp_path / "plan.json", 1, 1) == 0 < count
    zstore.finish_units(tmp_path / "plan.json")
    assert zstore.open_array(tmp_path / "t")[7, 7] == 63
    with pytest.raises(zstore.errors.UnknownExtensionError, match="job 'no'"):
        Job(source, source, "no")


def test_a_copy_and_hashes_are_made_by_processes(tmp_path: Path) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    zstore.create_array(tmp_path / "s", data=np.arange(900), chunks=1)
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        done = zstore.copy(tmp_path / "s", tmp_path / "t", executor=pool, check=True)
        made = zstore.manifest(tmp_path / "t", executor=pool)
    assert (done.key_count, len(made)) == (900, 900)
    assert zstore.verify(tmp_path / "t", memory=1 << 20).is_sound
    assert zstore.open_array(tmp_path / "t")[899] == 899
