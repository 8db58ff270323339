"""Arrays and groups as notebooks show them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import zstore
from zstore.base.sizes import format_lengths
from zstore.errors import StoreError
from zstore.geo.report import notebook
from zstore.storage.memory import MemoryStore


@pytest.fixture
def pyramid() -> zstore.Group:
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    place = {"proj:code": "EPSG:32632", "spatial:transform": [10, 0, 3e5, 0, -10, 5e6]}
    root = zstore.create_group(MemoryStore())
    base = root.create_group("0", attributes=place)
    data = np.arange(300 * 200).reshape(300, 200).astype("u2")
    base.create_array("<b>", data=data, chunks=64, dimension_names=("y", "x"))
    return zstore.build_pyramid(base, root, levels=1)


def pictures(html: str) -> Iterator[bytes]:
    for text in re.findall(r'src="data:image/png;base64,([^"]+)"', html):
        yield base64.b64decode(text)


def test_a_group_shows_where_it_is_and_a_picture(pyramid) -> None:
    html = pyramid._repr_html_()
    for fact in ("EPSG:32632", "300 rows × 200 columns", "20 × 20", "300000 4997000 302000 5000000"):
        assert fact in html
    (picture,) = pictures(html)
    assert picture.startswith(b"\x89PNG") and len(picture) < 60_000
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert max(width, height) <= notebook.PICTURE_SIZE


def test_names_are_escaped(pyramid) -> None:
    html = pyramid["0"]._repr_html_()
    assert "&lt;b&gt;" in html and "<b>" not in html


def test_an_array_shows_its_shape(pyramid) -> None:
    html = pyramid["0/<b>"]._repr_html_()
    for fact in ("300 × 200", "64 × 64, 8.0 KiB each", "uint16", "→ zstd(level=3", "117.2 KiB", "y, x"):
        assert fact in html
    assert len(list(pictures(html))) == 1
    sharded = zstore.zeros((64, 64), chunks=8, shards=32, dtype="i2")._repr_html_()
    for fact in ("8 × 8, 128 B each", "32 × 32, 2.0 KiB each", "bytes(endian=", "fill value"):
        assert fact in sharded
    assert "sharding_indexed" not in sharded


def test_attributes_and_coordinates_are_folded_and_cannot_act(monkeypatch) -> None:
    evil = "</details><script>alert(1)</script>"
    said = {evil: {"x": [evil, '" onload="alert(2)']}, "long": "é" * 5000}
    root = zstore.create_group(MemoryStore(), attributes=said)
    root.create_array("x", data=np.linspace(3, 9, 4), dimension_names=["x"])
    root.create_array("big", shape=(10**9,), dtype="f8", chunks=10**7, dimension_names=["big"])
    root.create_array("v", data=np.zeros((3, 4)), dimension_names=["big", "x"], attributes={evil: evil})
    for node in (root, root["v"]):
        html = node._repr_html_()
        assert "<script" not in html and 'onload="' not in html and "&lt;script&gt;" in html
        assert html.count("<details") == html.count("</details>") > 0
    html = root._repr_html_()
    assert "attributes (2)" in html and "coordinates (2)" in html and "arrays (1)" in html
    assert "3.0 … 9.0" in html and "(5002 characters)" in html and len(html) < 8000
    assert "more" not in html
    monkeypatch.setattr(notebook, "MOST_ROWS", 1)
    monkeypatch.setattr(notebook, "MOST_ATTRIBUTES", 1)
    assert root._repr_html_().count("and 1 more") == 2


def test_times_have_a_slider_and_one_scale() -> None:
    group = zstore.create_group(MemoryStore())
    values = np.arange(20 * 30 * 40, dtype="f4").reshape(20, 30, 40)
    values[-1] = np.nan
    group.create_array("v", data=values, dimension_names=("time", "y", "x"), chunks=(1, 30, 40))
    days = {"units": "days since 2020-01-01", "standard_name": "time"}
    group.create_array("time", data=np.arange(20), dimension_names=("time",), attributes=days)
    page = notebook.render_html(group)
    # Of 20 times 8; the last has no values, so the one before it is shown first.
    assert page.count("<img") == 8 and page.count("<section hidden>") == 7
    assert '<input type="range" aria-label="time" max="7" value="7"' in page
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert [captions[0], captions[-1]] == ["v, time 2020-01-01", "v, time 2020-01-19"]
    *earlier, last = pictures(page)
    assert set(earlier) == {earlier[0]} != {last}, "earlier times lie below the one scale"
    assert page.count("linear-gradient") == 1


def test_what_makes_no_picture_is_shown_in_words() -> None:
    root = zstore.create_group(MemoryStore())
    assert "group, Zarr v3" in root._repr_html_()
    for name, data in (("line", np.arange(3)), ("complex", np.zeros((4, 4), "c8")), ("dot", np.array(1.0))):
        html = root.create_array(name, data=data)._repr_html_()
        assert str(data.dtype) in html and list(pictures(html)) == []


@pytest.mark.parametrize(
    ("shape", "chunks"), [((10**5, 10**5), 1000), ((500, 100, 100), (500, 100, 100)), ((2**13, 2**12), 2**12)]
)
def test_what_takes_too_much_is_not_decoded_for_a_picture(shape, chunks, monkeypatch) -> None:
    monkeypatch.setattr(notebook, "PICTURE_BYTES", 4 << 20)
    huge = zstore.create_array(MemoryStore(), shape=shape, chunks=chunks, dtype="u1")
    monkeypatch.setattr(zstore.Array, "__getitem__", lambda *_: pytest.fail("it was decoded"))
    html = huge._repr_html_()
    assert format_lengths(shape) in html and list(pictures(html)) == []


def test_damage_leaves_the_words(tmp_path: Path) -> None:
    array = zstore.create_array(
        tmp_path / "a", data=np.ones((4, 4), "u1"), chunks=2, dimension_names=("y", "x")
    )
    (tmp_path / "a" / "c" / "0" / "0").write_bytes(b"damaged")
    html = array._repr_html_()
    assert "4 × 4" in html and list(pictures(html)) == []


def test_far_stores_are_not_asked(monkeypatch) -> None:
    class Far(MemoryStore):
        """Memory that says it is somewhere else."""

    array = zstore.create_array(Far(), data=np.ones((4, 4), "u1"))
    monkeypatch.setattr(notebook, "MemoryStore", int)
    monkeypatch.setattr(notebook, "describe", lambda *_, **__: pytest.fail("it was read"))
    assert "4 × 4" in array._repr_html_()


def test_far_stores_give_a_picture_when_asked(monkeypatch) -> None:
    array = zstore.create_array(MemoryStore(), data=np.arange(16.0).reshape(4, 4))
    monkeypatch.setattr(notebook, "MemoryStore", int)
    assert not list(pictures(notebook.render_html(array)))
    assert len(list(pictures(notebook.render_html(array, picture=True)))) == 1
    monkeypatch.setattr(notebook, "MemoryStore", MemoryStore)
    assert not list(pictures(notebook.render_html(array, picture=False)))


def test_showing_never_fails(pyramid, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(notebook, "describe", fail)
    assert pyramid._repr_html_() is None


def test_long_and_broken_text_is_cut_and_can_be_sent() -> None:
    root = zstore.create_group(MemoryStore())
    names = ["n" * 10**5, "y"]
    array = root.create_array("v", data=np.zeros((3, 4)), dimension_names=names, attributes={"n" * 10**5: 1})
    root.attrs["half"] = "\ud800"
    document = bytes(root.store.get("zarr.json")).replace(b'"half"', b'"\\ud800"')
    root.store.put("zarr.json", document)
    root = zstore.open_group(root.store)
    assert "\ud800" in root.attrs
    for node in (root, array):
        assert len(node._repr_html_().encode()) < 12_000


@pytest.mark.parametrize("path", ["", "below"])
def test_of_many_nodes_no_documents_are_read(path: str, tmp_path: Path) -> None:
    zstore.create_group(tmp_path, path=path)
    for number in range(notebook.MOST_NODES + 1):
        (tmp_path / path / f"{number}").mkdir()
    html = zstore.open_group(tmp_path)._repr_html_()
    assert f"more than {notebook.MOST_NODES}" in html and "group, Zarr v3" in html
