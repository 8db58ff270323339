"""Pyramids on tile matrix sets, made and brought up to date by processes that may die in the midst of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo

pytest.importorskip("pyproj")
distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as found:
        yield found


@pytest.fixture
def source(tmp_path: Path) -> zstore.Group:
    data = np.random.default_rng(0).integers(1, 5000, (900, 1000)).astype("u2")
    variables = {"b": Variable(dtype=data.dtype, nodata=0, dimensions=("y", "x"))}
    affine = Affine(30, 0, 600000, 0, -30, 5300000)
    geo = GeoModel(Crs.from_user(32632), affine, data.shape, variables=variables)
    documents = render_geo(geo, 3)[0]
    group = zstore.create_group(tmp_path / "source", attributes=documents[""]["attributes"])
    group.create_array(
        "b",
        data=data,
        chunks=128,
        fill_value=0,
        attributes=documents["b"]["attributes"],
        dimension_names=("y", "x"),
    )
    for name, document in documents.items():
        if "data" in document:
            group.create_array(
                name,
                data=document["data"],
                attributes=document["attributes"],
                dimension_names=document["dimension_names"],
            )
    return group


def files_of(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


@pytest.mark.parametrize("sampling", ["cubic", "average"])
def test_a_cluster_makes_and_updates_the_same_files(
    tmp_path: Path, source: zstore.Group, client: Any, sampling: str
) -> None:
    options: dict[str, Any] = {"sampling": sampling, "min_zoom": 8, "tiles_per_shard": 2}
    zstore.build_tile_pyramid(source, tmp_path / "here", **options)
    zstore.build_tile_pyramid(source, tmp_path / "there", executor=client, memory=40_000_000, **options)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there")
    region = (slice(100, 160), slice(500, 620))
    source["b"][region] = 7
    for name, executor in (("here", None), ("there", client)):
        zstore.update_pyramid(tmp_path / name, region, source=source, executor=executor)
    assert files_of(tmp_path / "here") == files_of(tmp_path / "there")


def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path, source: zstore.Group, client: Any) -> None:
    options: dict[str, Any] = {"sampling": "cubic", "min_zoom": 8, "max_zoom": 13}
    zstore.build_tile_pyramid(source, tmp_path / "here", **options)
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if not killed and done * 3 > total:
            killed.extend(list(client.run(os.getpid).values())[:1])
            os.kill(killed[0], signal.SIGKILL)

    zstore.build_tile_pyramid(source, tmp_path / "there", executor=client, progress=kill, **options)
    assert killed and killed[0] not in client.run(os.getpid).values()
    made = files_of(tmp_path / "there")
    # What the killed one had half written lies beside the chunks, under names of its own.
    assert files_of(tmp_path / "here").items() <= made.items()
    assert not [name for name in made.keys() - files_of(tmp_path / "here").keys() if "/c/" in name[-12:]]
    assert zstore.verify(tmp_path / "there").is_sound
