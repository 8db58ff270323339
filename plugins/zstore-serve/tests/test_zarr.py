"""Stores, views and files over HTTP: other readers of Zarr see the items that the array has."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np
import pytest
from zstore_serve import zarr_router

import zstore

from .applications import ask, get, listening

ITEMS = np.arange(60 * 40, dtype="f4").reshape(60, 40)


def make(place: Path, zarr_format: int = 3) -> zstore.Group:
    group = zstore.create_group(place, zarr_format=zarr_format, attributes={"title": "served"})
    options: dict[str, Any] = {"data": ITEMS, "chunks": (16, 16)}
    names = {"dimension_names": ("y", "x")} if zarr_format == 3 else {}
    group.create_array("a", **options, **names)
    group.create_array("deep/b", **options, compressors="gzip")
    if zarr_format == 3:
        group.create_array("s", data=ITEMS, chunks=(8, 8), shards=(32, 32))
    return group


def zarr_python(url: str, path: str) -> np.ndarray:
    zarr = pytest.importorskip("zarr")
    return np.asarray(zarr.open(url, mode="r")[path][...])


def tensorstore(url: str, path: str, driver: str) -> np.ndarray:
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": driver, "kvstore": {"driver": "http", "base_url": f"{url}/{path}/"}}
    return np.asarray(tensorstore.open(spec, open=True).result().read().result())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_other_readers_read_what_is_stored(zarr_format, tmp_path):
    make(tmp_path / "store.zarr", zarr_format)
    driver = "zarr3" if zarr_format == 3 else "zarr"
    with listening(zarr_router(tmp_path / "store.zarr")) as base:
        url = f"{base}store.zarr"
        group = zstore.open(url, mode="r")
        for path in ["a", "deep/b", *(["s"] if zarr_format == 3 else [])]:
            np.testing.assert_array_equal(zarr_python(url, path), ITEMS)
            np.testing.assert_array_equal(tensorstore(url, path, driver), ITEMS)
            np.testing.assert_array_equal(group[path][...], ITEMS)
        # HTTP has no lists of keys: the members are in the root's document, unlike in the store's own.
        assert sorted(group.keys()) == sorted(["a", "deep", *(["s"] if zarr_format == 3 else [])])
        assert dict(group.attrs) == {"title": "served"}
    assert zstore.open_group(tmp_path / "store.zarr", mode="r").model.consolidated is None


# In a process of its own, as GDAL holds Python's lock while it waits for the server.
READ_BY_GDAL = """
import sys, numpy, rasterio
with rasterio.open(sys.argv[1]) as raster:
    numpy.save(sys.argv[2], raster.read(1))
"""


def test_gdal_reads_it(tmp_path):
    pytest.importorskip("rasterio")
    make(tmp_path / "store.zarr", 2)
    with listening(zarr_router(tmp_path / "store.zarr")) as base:
        words = [f'ZARR:"/vsicurl/{base}store.zarr/a"', str(tmp_path / "read.npy")]
        subprocess.run([sys.executable, "-W", "ignore", "-c", READ_BY_GDAL, *words], check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "read.npy"), ITEMS)


def test_views_and_files_become_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    make(tmp_path / "store.zarr")
    view = zstore.view(zstore.open(tmp_path / "store.zarr")["a"])[::-1] * 2
    view.save(tmp_path / "turned.view.json")
    zstore.convert(tmp_path / "store.zarr", tmp_path / "packed.zip")
    sources = [view, tmp_path / "turned.view.json", tmp_path / "packed.zip", tmp_path / "store.zarr" / "a"]
    with listening(zarr_router(*sources)) as base, urlopen(base) as listed:
        urls = json.loads(listed.read())["zarr"]
        assert [url.removeprefix(base) for url in urls[1:]] == ["turned", "packed", "a"]
        for url in urls[:2]:
            np.testing.assert_array_equal(zarr.open(url, mode="r")[...], ITEMS[::-1] * 2)
        np.testing.assert_array_equal(zarr_python(urls[2], "deep/b"), ITEMS)
        np.testing.assert_array_equal(zarr.open(urls[3], mode="r")[...], ITEMS)


def test_equal_names_are_told_apart(tmp_path):
    places = [tmp_path / folder / "a" for folder in ("x", "y", "z")]
    for number, place in enumerate(places):
        zstore.create_array(place, data=np.full(3, number + 1))
    application = zarr_router(*places)
    chunks = [get(application, f"/{name}/c/0").content for name in ("a", "a~2", "a~3")]
    assert chunks == [(place / "c/0").read_bytes() for place in places]
    assert len(set(chunks)) == 3


def test_ranges_tags_and_what_is_not_there(tmp_path):
    group = make(tmp_path / "store.zarr")
    application, path = zarr_router(group), "/store.zarr/s/c/0/0"
    whole = get(application, path)
    assert whole.content == (tmp_path / "store.zarr/s/c/0/0").read_bytes()
    size, tag = len(whole.content), whole.headers["etag"]
    ranges = {
        "0-9": (0, 9),
        "10-": (10, size - 1),
        "-7": (size - 7, size - 1),
        f"5-{size * 2}": (5, size - 1),
    }
    for asked, (first, last) in ranges.items():
        part = ask(application, path, {"Range": f"bytes={asked}"})
        assert part.status == 206
        assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert part.content == whole.content[first : last + 1]
        assert part.headers["etag"] == tag
    # What is not one range is no range (RFC 9110), and one beyond the end has nothing of the value.
    for asked in ("bytes=5-2", "bytes=0-1,4-5", "lines=1-2", "bytes=-"):
        assert ask(application, path, {"Range": asked}).status == 200
    beyond = ask(application, path, {"Range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert ask(application, path, {"If-None-Match": f'"x", {tag}'}).status == 304
    group["s"][:8, :8] = 0
    changed = ask(application, path, {"If-None-Match": tag})
    assert changed.status == 200
    assert changed.headers["etag"] != tag
    for missing in (
        "store.zarr/s/c/9/9",
        "store.zarr/none/zarr.json",
        "other/zarr.json",
        "store.zarr",
        "store.zarr/",
    ):
        assert ask(application, f"/{missing}").status == 404


def test_only_documents_and_chunks_are_served(tmp_path):
    make(tmp_path / "store.zarr")
    secrets = ["secret.txt", ".env", "a/notes.json", "a/c/0/0.bak"]
    for name in secrets:
        (tmp_path / "store.zarr" / name).write_text("secret")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/zarr.json").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "store.zarr/a/c/7").symlink_to(tmp_path / "outside")
    outside = [
        "..",
        "a/../../b/zarr.json",
        "%2e%2e/b/zarr.json",
        "a/c/0/../../../../b/zarr.json",
        "/b/zarr.json",
    ]
    application = zarr_router(tmp_path / "store.zarr")
    for name, form in itertools.product([*secrets, *outside, "a/c/7", ".zstore-job/record"], (str, quote)):
        answer = ask(application, f"/store.zarr/{form(name)}")
        assert answer.status in (404, 503), name
        assert b"secret" not in answer.content
        assert str(tmp_path).encode() not in answer.content


def test_a_damaged_member_hides_no_other(tmp_path):
    make(tmp_path / "store.zarr")
    (tmp_path / "store.zarr/a/zarr.json").write_text("{")
    root = get(zarr_router(tmp_path / "store.zarr"), "/store.zarr/zarr.json").document
    assert sorted(root["consolidated_metadata"]["metadata"]) == ["deep", "deep/b", "s"]


def test_the_command_serves_or_writes(tmp_path):
    make(tmp_path / "store.zarr")
    words = [sys.executable, "-m", "zstore", "serve", str(tmp_path / "store.zarr"), "--zarr"]
    both = subprocess.run([*words, "--static", str(tmp_path / "o")], capture_output=True, text=True)
    assert both.returncode == 2
    assert "--zarr serves, and --static writes" in both.stderr
    with subprocess.Popen([*words, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base = server.stdout.readline().split()[0]
            np.testing.assert_array_equal(zstore.open(f"{base}store.zarr/deep/b", mode="r")[...], ITEMS)
        finally:
            server.terminate()
