"""What is asked of a bucket when a hierarchy is opened: all that does not depend on an answer, at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import zstore
from zstore.cli.info import info
from zstore.geo.conventions.base import Affine, GeoModel, Variable
from zstore.geo.conventions.crs import Crs
from zstore.geo.conventions.write import render_geo
from zstore.geo.pyramid.dataset import open_levels
from zstore.nodes.open import open_ahead
from zstore.storage.objects.store import ObjectStore
from zstore.storage.url import open_store

from ..storage.bucket_server import BucketServer

pytest.importorskip("obstore", reason="the package behind the store")
pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")

URL = "s3://b/p.zarr"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    with BucketServer() as server:
        said = {"ENDPOINT_URL": server.url, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "REGION": "r"}
        for name, value in said.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        yield server


def fill(server: BucketServer, folder: Path, zarr_format: int, *, is_consolidated: bool) -> set[str]:
    """Put a pyramid of three levels into the bucket; gives the paths of what opening needs to know."""
    values = np.arange(64 * 48, dtype="u2").reshape(64, 48)
    affine = Affine(30.0, 0, 480000.0, 0, -30.0, 5500000.0)
    variables = {"v": Variable(values.dtype)}
    geo = GeoModel(Crs.from_user("EPSG:32632"), affine, values.shape, ("y", "x"), variables=variables)
    group = zstore.create_group(folder / "source", zarr_format=zarr_format)
    for name, document in render_geo(geo, zarr_format)[0].items():
        if not name:
            group.attrs.update(document["attributes"])
            continue
        group.create_array(
            name,
            data=values if name == "v" else document.get("data"),
            chunks=16,
            attributes=document["attributes"],
            dimension_names=document["dimension_names"],
        )
    place = folder / "p.zarr"
    zstore.build_pyramid(group, place, levels=2)
    for path in place.rglob("*"):
        if path.is_file() and (is_consolidated or path.name != ".zmetadata"):
            data = path.read_bytes()
            if path.name == "zarr.json" and not is_consolidated:
                document = json.loads(data)
                document.pop("consolidated_metadata", None)
                data = json.dumps(document).encode()
            server.values[f"/b/p.zarr/{path.relative_to(place).as_posix()}"] = data
    held = [path for path in server.values if "/v/" not in path or path.rpartition("/")[2] in DOCUMENTS]
    return {path for path in held if "spatial_ref/c" not in path and not path.endswith("spatial_ref/0")}


DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
# The root's document, and the names of all that there is.
FIRST = {"/b/p.zarr/zarr.json", "/b/p.zarr/"}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_pyramid_is_opened_in_two_rounds_without_consolidated_metadata(
    server: BucketServer, tmp_path: Path, zarr_format: int
) -> None:
    needed = fill(server, tmp_path, zarr_format, is_consolidated=False)
    server.expect(FIRST, needed - FIRST)
    with open_ahead(open_store(URL)) as node:
        levels = open_levels(node)
    assert [level.geo.shape for level in levels] == [(64, 48), (32, 24), (16, 12)]
    assert server.late == []
    assert sorted(path for _, path in server.requests) == sorted(needed | FIRST)


def test_a_pyramid_is_opened_in_two_rounds_with_consolidated_metadata(
    server: BucketServer, tmp_path: Path
) -> None:
    fill(server, tmp_path, 3, is_consolidated=True)
    coordinates = {f"/b/p.zarr/{level}/{name}/c/0" for level in range(3) for name in "yx"}
    server.expect(coordinates)
    assert len(open_levels(zstore.open(URL, mode="r"))) == 3
    assert server.late == []
    assert sorted(path for _, path in server.requests) == sorted({"/b/p.zarr/zarr.json", *coordinates})


def test_levels_are_asked_for_together_where_one_listing_does_not_name_all(
    server: BucketServer, tmp_path: Path
) -> None:
    needed = fill(server, tmp_path, 3, is_consolidated=False)
    server.values |= {f"/b/p.zarr/0/other/{n}": b"" for n in range(1000)}
    levels = [{f"/b/p.zarr/{n}/" for n in range(3)}, {f"/b/p.zarr/{n}/zarr.json" for n in range(3)}]
    coordinates = {path for path in needed if path.endswith("/c/0")}
    documents = {path for path in needed - coordinates if path.count("/") == 5}
    server.expect(*levels, documents, coordinates)
    with open_ahead(URL) as node:
        assert len(open_levels(node)) == 3
        asked = len(server.requests)
        assert sorted(node.keys()) == ["0", "1", "2"]
        assert len(server.requests) == asked
    assert server.late == []


def test_info_asks_for_no_document_twice(server: BucketServer, tmp_path: Path) -> None:
    needed = fill(server, tmp_path, 3, is_consolidated=False)
    server.expect(FIRST, needed - FIRST)
    said = CliRunner().invoke(info, [URL], catch_exceptions=False)
    assert said.exit_code == 0 and "EPSG:32632" in said.output
    assert server.late == []
    assert len(server.requests) == len(needed | FIRST)


def test_what_was_known_when_it_was_opened_is_asked_for_again_later(
    server: BucketServer, tmp_path: Path
) -> None:
    fill(server, tmp_path, 3, is_consolidated=False)
    with open_ahead(URL) as node:
        assert sorted(node.keys()) == ["0", "1", "2"]
        del server.values["/b/p.zarr/2/zarr.json"]
        y = node["0/y"]
        before = y[...]
        server.values["/b/p.zarr/0/y/c/0"] = server.values["/b/p.zarr/0/x/c/0"]
        assert np.array_equal(y[...], before)
    assert sorted(node.keys()) == ["0", "1"]


@pytest.mark.parametrize("is_consolidated", [False, True])
def test_what_others_append_while_a_hierarchy_is_asked_for_is_no_fill_value(
    is_consolidated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that is newer than the listing tells of chunks that the listing has not."""
    group = zstore.create_group(URL)
    group.create_array("t", data=np.arange(1, 5), chunks=2)
    if is_consolidated:
        group.consolidate()
    opened, listed = open_store(URL, read_only=True), threading.Event()
    few_entries, get_parts = ObjectStore.few_entries, ObjectStore.get_parts

    def list_first(self: ObjectStore, prefix: str, most: int) -> Any:
        found = few_entries(self, prefix, most)
        if self is opened:
            group["t"].append(np.arange(5, 9))
            if is_consolidated:
                group.consolidate()
            listed.set()
        return found

    def read_then(self: ObjectStore, requests: Any) -> Any:
        assert self is not opened or listed.wait(60)
        return get_parts(self, requests)

    monkeypatch.setattr(ObjectStore, "few_entries", list_first)
    monkeypatch.setattr(ObjectStore, "get_parts", read_then)
    with open_ahead(opened) as node:
        assert node["t"][...].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_who_may_not_list_opens_as_ever(server: BucketServer, tmp_path: Path) -> None:
    fill(server, tmp_path, 3, is_consolidated=True)
    server.allowed = "/b/p.zarr/0"
    with open_ahead("s3://b/p.zarr/0") as node:
        assert sorted(node.keys()) == ["spatial_ref", "v", "x", "y"]
