"""Nothing that a store's documents name is opened outside of the store, unless the caller names it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.errors import MetadataError, NotFoundError, StoreError
from zstore.geo.conventions.crs import Crs
from zstore.storage.memory import MemoryStore
from zstore.storage.zip.store import ZipStore

UTM = {"proj:code": "EPSG:32632", "spatial:transform": [30, 0, 600000, 0, -30, 5300000]}
WHERE = {**UTM, "spatial:dimensions": ["y", "x"]}
SECRET = 42

# What is done with a hostile store, in a process that notes every file, directory and connection it opens.
USES = """
import json, sys, warnings
warnings.simplefilter("ignore")
sentinel, port, *places = sys.argv[1:]
import numpy as np, zstore, xarray, pyproj
from zstore.geo.conventions.read import read_geo
from zstore.geo.pictures.quicklook import quicklook
from zstore.geo.rasters import zarr_to_raster
from zstore.geo.report.summary import describe
seen = []
def note(event, arguments):
    text = " ".join(str(a) for a in arguments)
    if event in ("open", "os.listdir", "os.scandir") and sentinel in text:
        seen.append([event, text])
    if event == "socket.connect" and port in text:
        seen.append([event, text])
sys.addaudithook(note)
ends = {}
def use(name, act):
    try:
        act()
        ends[name] = "done"
    except Exception as error:
        ends[name] = f"{type(error).__name__}: {error}"
def uses(place, target):
    group = zstore.open_group(place)
    use("members", lambda: list(zstore.open_group(place, mode="r").members(None)))
    use("tree", lambda: str(group.tree()))
    use("read_geo", lambda: read_geo(group))
    use("info", lambda: [*describe(group).facts()])
    use("html", lambda: group._repr_html_())
    use("validate", lambda: zstore.validate(place, deep=True))
    use("verify", lambda: zstore.verify(place))
    use("xarray", lambda: xarray.open_dataset(place, engine="zstore").load())
    use("levels", lambda: xarray.open_datatree(place, engine="zstore").load())
    use("tile", lambda: group.tile("0", 0, 0))
    use("quicklook", lambda: quicklook(group, size=32))
    use("raster", lambda: zarr_to_raster(group, target + "/a.tif"))
    use("pyramid", lambda: zstore.build_pyramid(group, target + "/p", levels=1))
    use("tiles", lambda: zstore.build_tile_pyramid(group, target + "/t", nodata=0))
    use("update", lambda: zstore.update_pyramid(place))
    use("convert", lambda: zstore.convert(place, target + "/c", zarr_format=2))
    use("consolidate", lambda: zstore.consolidate(target + "/c"))
    use("fix", lambda: __import__("zstore.geo.validation.fixing.fix", fromlist=["fix"]).fix(place))
found = []
for place in places:
    seen.clear(), ends.clear()
    uses(place, place + "-made")
    found.append({"seen": [*seen], "ends": {**ends}})
print(json.dumps(found))
"""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server that counts, of which everything is a document."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    httpd.asked = asked  # type: ignore[attr-defined]
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    """A store that nobody names but documents of another one, and a definition of a CRS in it."""
    place = tmp_path / "sentinel"
    group = zstore.create_group(place / "s", attributes=WHERE)
    group.create_array("a", data=np.full((64, 64), SECRET, "u1"), dimension_names=["y", "x"])
    (place / "init").write_text("<9> +proj=longlat +ellps=GRS80 +no_defs <>\n")
    return place


def addresses(sentinel: Path, port: int) -> dict[str, str]:
    return {
        "file": (sentinel / "s").as_uri(),
        "path": f"{sentinel}/s/a",
        "relative": "../sentinel/s/a",
        "http": f"http://127.0.0.1:{port}/s",
        "chain": f"zip::http://127.0.0.1:{port}/s.zip",
    }


def hostile(place: Path, address: str, sentinel: Path) -> None:
    """A pyramid in which everything that names anything names that address."""
    source = zstore.create_group(MemoryStore(), attributes=WHERE)
    source.create_array("a", data=np.ones((64, 64), "u1"), dimension_names=["y", "x"])
    pyramid = zstore.build_pyramid(source, place, levels=1)
    array = pyramid.create_array("a", data=np.ones((64, 64), "u1"), dimension_names=["y", "x"])
    pyramid["0"].attrs["grid_mapping"] = address
    record = dict(pyramid.attrs["zstore"])
    record["pyramid"] = {**record["pyramid"], "source": address, "finest": None}
    for entry in record["pyramid"]["variables"].values():
        entry["mask"] = address
    levels = pyramid.attrs["multiscales"]
    for item in levels["layout"]:
        item["derived_from"] = address
    levels["layout"].append({"asset": address, "spatial:transform": [1, 0, 0, 0, -1, 0]})
    wkt = pyramid.attrs.get("proj:wkt2", "")
    pyramid.attrs.update(
        {
            "zstore": record,
            "multiscales": levels,
            "grid_mapping": f"{address}: y x",
            "coordinates": address,
            "external": {"href": address, "uri": address},
            "stac": {"type": "Feature", "id": "x", "assets": {"a": {"href": address}}, "href": address},
            "links": [{"rel": "self", "href": address}, {"rel": "item", "href": address}],
            "tile_matrix_set": address,
            "_CRS": {"url": address, "wkt": wkt or address},
            "labels": [address],
            "ome": {
                "version": "0.5",
                "multiscales": [{"datasets": [{"path": address}]}],
                "labels": [address],
            },
            "bands": [address],
            "schema_url": address,
        }
    )
    array.attrs.update(
        {
            "grid_mapping": address,
            "coordinates": address,
            "ancillary_variables": address,
            "bounds": address,
            "_CRS": {"url": f"+init={sentinel}/init:9"},
            "crs": address,
        }
    )


def test_no_use_of_a_store_follows_an_address_in_it(tmp_path: Path, sentinel: Path, server: Any) -> None:
    pytest.importorskip("pyproj", reason="georeferencing needs pyproj")
    pytest.importorskip("rasterio", reason="rasters need rasterio")
    pytest.importorskip("xarray", reason="xarray's engine needs xarray")
    port = server.server_port
    places = []
    for kind, address in addresses(sentinel, port).items():
        places.append(tmp_path / kind)
        hostile(places[-1], address, sentinel)
        (tmp_path / f"{kind}-made").mkdir()
    words = [sys.executable, "-c", USES, sentinel, port, *places]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert server.asked == []
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert found["seen"] == []
        assert "which is not in its store; expected source= to name it" in found["ends"]["update"]
        ends = {found["ends"][name] for name in ("members", "verify", "validate", "tree", "read_geo")}
        assert ends == {"done"}, found["ends"]


def test_a_pyramid_is_updated_of_what_the_caller_names(tmp_path: Path) -> None:
    source = zstore.create_group(tmp_path / "s", attributes=WHERE)
    source.create_array("a", data=np.ones((64, 64), "u1"), dimension_names=["y", "x"])
    mask = source.create_array("m", data=np.ones((64, 64), "u1"), dimension_names=["y", "x"])
    outside = zstore.create_array(tmp_path / "m", data=np.ones((64, 64), "u1"))
    for name, given in (("inside", mask), ("outside", outside)):
        made = zstore.build_pyramid(
            source, tmp_path / name, levels=1, copy_base=False, mask={"a": given}, nodata=0
        )
        with pytest.raises(MetadataError, match="expected source= to name it"):
            zstore.update_pyramid(tmp_path / name)
        source["a"][:8] = 7
        if name == "outside":
            with pytest.raises(MetadataError, match="expected mask= to name it"):
                zstore.update_pyramid(tmp_path / name, source=source)
            zstore.update_pyramid(tmp_path / name, source=source, mask=outside)
        else:
            zstore.update_pyramid(tmp_path / name, source=source)
        assert (made["1/a"][:4] == 7).all()
        source["a"][:8] = 1


@pytest.mark.parametrize(
    "text",
    [
        "+init={}/init:9",
        "init={}/init:9",
        "+proj=pipeline +step +init={}/init:9",
        "+proj=longlat +ellps=bessel +nadgrids={}/grid.gsb +no_defs +type=crs",
        "+proj=utm +zone=32 +geoidgrids=@null,{}/geoid.gtx +type=crs",
    ],
)
def test_a_crs_names_no_file(sentinel: Path, text: str) -> None:
    pytest.importorskip("pyproj", reason="georeferencing needs pyproj")
    with pytest.raises(MetadataError, match="names a file by its path"):
        Crs.from_user(text.format(sentinel))


def test_a_crs_with_grids_names_no_file(sentinel: Path) -> None:
    pyproj = pytest.importorskip("pyproj", reason="georeferencing needs pyproj")
    shifted = pyproj.CRS("+proj=longlat +ellps=bessel +nadgrids=BETA2007.gsb +no_defs +type=crs")
    assert Crs.from_user(shifted).wkt == Crs.from_projjson(shifted.to_json_dict()).wkt
    for address in (f"{sentinel}/grid.gsb", "http://127.0.0.1:9/grid.tif"):
        for version in ("WKT2_2019", "WKT1_GDAL"):
            wkt = shifted.to_wkt(version).replace("BETA2007.gsb", address)
            assert address in wkt
            for read in (Crs.from_user, lambda text: Crs.from_cf({"crs_wkt": text})):
                with pytest.raises(MetadataError, match="names a file by its path"):
                    read(wkt)
        document = json.loads(json.dumps(shifted.to_json_dict()).replace("BETA2007.gsb", address))
        with pytest.raises(MetadataError, match="names a file by its path"):
            Crs.from_projjson(document)


def test_links_in_archives_lead_nowhere(tmp_path: Path, sentinel: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for name, target in (("zarr.json", "s/zarr.json"), ("a/zarr.json", "s/a/zarr.json")):
            link = zipfile.ZipInfo(name)
            link.create_system, link.external_attr = 3, 0o120777 << 16
            file.writestr(link, f"{sentinel}/{target}")
    with pytest.raises(MetadataError):
        zstore.open(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as file:
        file.writestr("../zarr.json", "{}")
    with pytest.raises(StoreError, match="which no store may hold"):
        ZipStore(tmp_path / "y.zip", read_only=True)


def test_links_of_directories_lead_nowhere(tmp_path: Path, sentinel: Path) -> None:
    zstore.create_group(tmp_path / "d")
    (tmp_path / "d" / "a").symlink_to(sentinel / "s" / "a")
    with pytest.raises(StoreError, match="leads out of the store"):
        zstore.open(tmp_path / "d", "a")


def test_links_of_chunks_stay_in_the_store(tmp_path: Path) -> None:
    for name in "ab":
        zstore.create_array(tmp_path / name, data=np.arange(4))
    chunk = tmp_path / "b" / "c" / "0"
    chunk.unlink()
    chunk.symlink_to(tmp_path / "a" / "c" / "0")
    with pytest.raises(StoreError, match="leads out of the store; expected one opened at a directory"):
        zstore.open(tmp_path / "b")[...]
    both = zstore.open(tmp_path, "b")  # git-annex keeps the files of a store so
    assert both[...].tolist() == [0, 1, 2, 3]
    both[1:3] = 7
    assert both[...].tolist() == [0, 7, 7, 3]
    assert zstore.open(tmp_path, "a")[...].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["../sentinel/s/a", "/sentinel", "a/../../sentinel/s/a"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_names_nothing_outside(
    tmp_path: Path, sentinel: Path, zarr_format: int, name: str
) -> None:
    group = zstore.create_group(tmp_path / "d", zarr_format=zarr_format)
    group.create_array("a", data=np.ones(3))
    zstore.consolidate(group)
    key = tmp_path / "d" / ("zarr.json" if zarr_format == 3 else ".zmetadata")
    key.write_text(key.read_text().replace('"a"' if zarr_format == 3 else '"a/.zarray"', f'"{name}"', 1))
    with pytest.raises(MetadataError, match="consolidated"):
        [*zstore.open_group(tmp_path / "d", mode="r").members(None)]


def reference(target: str | None) -> dict[str, Any]:
    made = MemoryStore()
    zstore.create_array(made, data=np.full(8, 1, "u1"), chunks=8, compressors=None)
    refs = {key: bytes(made.get(key) or b"").decode("latin1") for key in made.list() if key != "c/0"}
    return {"version": 1, "refs": {**refs, "c/0": "11111111" if target is None else [target, 0, 8]}}


def test_references_lead_no_further_than_the_caller_said(tmp_path: Path, server: Any) -> None:
    pytest.importorskip("fsspec", reason="references are fsspec's")
    pytest.importorskip("aiohttp", reason="fsspec reaches HTTP through aiohttp, which is not installed")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_bytes(bytes([SECRET]) * 8)
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "own").write_bytes(bytes([7]) * 8)

    def read(target: str | None, as_file: bool, **options: Any) -> Any:
        fo: Any = reference(target)
        if as_file:
            (tmp_path / "refs" / "r.json").write_text(json.dumps(fo))
            fo = str(tmp_path / "refs" / "r.json")
        return zstore.open("reference://", storage_options={"fo": fo, **options})[...].tolist()

    assert read(None, False) == [ord("1")] * 8
    secret, url = str(tmp_path / "out" / "secret"), f"http://127.0.0.1:{server.server_port}/x"
    own = str(tmp_path / "refs" / "own")
    for target in (secret, f"file://{secret}", f"{tmp_path}/refs/../out/secret", url):
        for as_file in (False, True):
            with pytest.raises(StoreError, match="out of the place of the references"):
                read(target, as_file)
    assert server.asked == []
    assert read(own, True) == [7] * 8
    assert read(secret, False, targets=tmp_path / "out") == [SECRET] * 8
    assert read(secret, True, targets=[f"file://{secret}"]) == [SECRET] * 8
    assert read(secret, True, remote_protocol="file") == [SECRET] * 8
    with pytest.raises(StoreError):
        read(secret, True, targets=f"{tmp_path}/ou")
    with pytest.raises((StoreError, NotFoundError)):
        read(url, True, targets=url.rpartition("/")[0])
    assert server.asked != []


def test_references_without_a_root_are_listed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="references are fsspec's")
    made = MemoryStore()
    zstore.create_group(made).create_array("x", data=np.arange(3, dtype="u1"), compressors=None)
    refs = {key: bytes(made.get(key) or b"").decode("latin1") for key in made.list()}
    group = zstore.open("reference://", storage_options={"fo": {"version": 1, "refs": refs}})
    assert [*group] == ["x"] and group["x"][...].tolist() == [0, 1, 2]
    assert sorted(group.store.list()) == sorted(refs)
