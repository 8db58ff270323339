"""Every way to begin against every way to go on: no finished values are lost, and no rest goes unnamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.root import zstore as command_line
from zstore.engine.intent import INTENT
from zstore.errors import StoreError
from zstore.jobs.record import find_unfinished
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore

from .drills import FailingStore

Interrupted = KeyboardInterrupt


def put_raster(store: Store, path: str) -> None:
    """Twice 64 x 64 cells with coordinates and a CRS."""
    group = zstore.create_group(store, path, attributes={"Conventions": "CF-1.8"})
    options: dict[str, Any] = {"attributes": {"grid_mapping": "spatial_ref"}, "chunks": 16}
    cells = np.arange(1, 64 * 64 + 1, dtype="u2").reshape(64, 64)
    group.create_array("a", data=cells, dimension_names=("y", "x"), **options)
    group.create_array("y", data=7e6 - 30.0 * np.arange(64), dimension_names=("y",))
    group.create_array("x", data=5e5 + 30.0 * np.arange(64), dimension_names=("x",))
    crs = {"grid_mapping_name": "transverse_mercator", "spatial_ref": "EPSG:32622"}
    group.create_array("spatial_ref", data=np.int32(0), attributes=crs)


def interrupt(*_: Any) -> None:
    raise Interrupted


def test_no_group_takes_the_place_of_an_interrupted_pyramid(tmp_path: Any) -> None:
    """What is created there by other means stays, and the pyramid is refused."""
    source, store = LocalStore(tmp_path / "s"), LocalStore(tmp_path / "t")
    mine = np.arange(6, dtype="f4")
    put_raster(source, "")
    build = {"levels": 2, "chunks": 16}
    with pytest.raises(Interrupted):
        zstore.build_pyramid(source, store, progress=interrupt, **build)
    with pytest.raises(StoreError, match=r"the building of a pyramid is unfinished; go on with: zstore\.bu"):
        zstore.create_group(store)
    with pytest.raises(StoreError, match="the building of a pyramid is unfinished"):
        zstore.create_array(store, "0", data=mine)
    # Another writer knows nothing of intents.
    other = MemoryStore()
    zstore.create_array(other, "0", data=mine)
    for key in other.list():
        store.put(key, bytes(other.get(key) or b""))
    with pytest.raises(StoreError, match="somebody else has made a node"):
        zstore.build_pyramid(source, store, resume=True, **build)
    assert zstore.open_array(store, "0", mode="r")[...].tolist() == mine.tolist()
    # With overwrite, the group has the place whole, and nothing is left to resume.
    zstore.create_group(store, overwrite=True)
    assert [*store.list()] == ["zarr.json"] and not find_unfinished(store, "")
    zstore.create_array(store, "0", data=mine)
    with pytest.raises(StoreError, match="levels 0 are there already"):
        zstore.build_pyramid(source, store, resume=True, **build)
    assert zstore.open_array(store, "0", mode="r")[...].tolist() == mine.tolist()


@pytest.mark.parametrize("path", ["", "a", "g/a"])
def test_the_rest_of_a_killed_creation_is_named_by_all_that_tell(path: str, tmp_path: Any) -> None:
    place = tmp_path / "s.zarr"
    if path:
        zstore.create_group(place)
    data = np.arange(12, dtype="i4")
    rest = FailingStore(LocalStore(place), "")
    rest.left, rest.times = 4 if "/" in path else 3, 1 << 30
    with pytest.raises(StoreError, match="the store is gone"):
        zstore.create_array(rest, path, data=data, chunks=(2,))
    assert (place / path / INTENT).exists() and (place / path / "c").exists()
    [found] = find_unfinished(LocalStore(place), "")
    assert found.path == path and found.work == "create" and "overwrite=True" in found.again
    for command in ("info", "verify", "validate"):
        result = CliRunner().invoke(command_line, [command, str(place)])
        assert result.exit_code != 0 and "the creation of an array" in result.output, command
    with pytest.raises(StoreError, match="expected it to be ended or deleted, or left out by exc") as caught:
        zstore.copy(place, tmp_path / "copy.zarr")
    if path:
        left_out = str(caught.value).partition("exclude='")[2].partition("'")[0]
        zstore.copy(place, tmp_path / "copy.zarr", exclude=left_out)
        assert not find_unfinished(LocalStore(tmp_path / "copy.zarr"), "")
    zstore.create_array(place, path, data=data, chunks=(2,), overwrite=True)
    assert not find_unfinished(LocalStore(place), "")
    zstore.copy(place, tmp_path / "whole.zarr")
    assert zstore.open_array(tmp_path / "whole.zarr", path, mode="r")[...].tolist() == data.tolist()


def test_an_intent_that_outlives_its_creation_means_nothing(tmp_path: Any) -> None:
    store = LocalStore(tmp_path / "s.zarr")
    zstore.create_array(store, "a", data=np.arange(3))
    store.put(f"a/{INTENT}", b'{"work": "create", "made": {"keys": ["default", "/", 1]}}')
    assert not find_unfinished(store, "") and not find_unfinished(store, "a")
    assert zstore.copy(store, MemoryStore()).key_count == len([*store.list()]) - 1
    zstore.create_array(store, "a", data=np.arange(4), overwrite=True)
    assert not [key for key in store.list() if INTENT in key]
