"""Chunks out of reach are an error for everybody, and never taken for chunks that were never written."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import pytest
import xarray
from click.testing import CliRunner
from tests.pyramid.test_tile_updates import put_raster
from tests.storage.bucket_server import BucketServer

import zstore
from zstore.cli.root import zstore as command
from zstore.errors import StoreError, ZstoreError
from zstore.geo.conventions.base import Affine
from zstore.storage.base import Store
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store
from zstore.storage.zip.store import ZipStore
from zstore.testing.sharing import run_forked

# Of the array that is left out, its error tells at the end of the call.
pytestmark = pytest.mark.filterwarnings("ignore:.* is left out:zstore.errors.ReadingWarning")
# The world in four tiles, each a chunk, as level "1" of a tile pyramid.
SIDE, EDGE = 512, 20037508.342789244
CELLS = np.random.default_rng(0).integers(1, 250, (SIDE, SIDE)).astype("u1")
ARRAY = "1/a"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, path = MemoryStore(), tmp_path_factory.mktemp("sound") / "s.zarr"
    cell = 2 * EDGE / SIDE
    put_raster(source, {"a": CELLS}, Affine(cell, 0, -EDGE, 0, -cell, EDGE), 3857)
    zstore.build_tile_pyramid(source, path, min_zoom=1, max_zoom=1)
    assert (zstore.open(path, ARRAY)[...] == CELLS).all()
    return path


# What becomes of a directory or file of the array; `aside` is where it goes.
def move(at: Path, aside: Path) -> None:
    """To another disk, with a link where it was."""
    at.rename(aside)
    at.symlink_to(aside)


def unmount(at: Path, aside: Path) -> None:
    """To another disk, which is not mounted."""
    move(at, aside)
    aside.rename(aside.with_name("unmounted"))


def relative(at: Path, aside: Path) -> None:
    """To another place in the store, which is gone."""
    at.rename(aside)
    at.symlink_to("gone")


def loop(at: Path, aside: Path) -> None:
    """A link to itself."""
    at.rename(aside)
    at.symlink_to(at.name)


def back(at: Path, aside: Path) -> None:
    """A link to a directory above."""
    at.rename(aside)
    at.symlink_to("..")


def overlay(at: Path, aside: Path) -> None:
    """A file in the place of a directory."""
    at.rename(aside)
    at.write_bytes(b"")


def pipe(at: Path, aside: Path) -> None:
    """A pipe."""
    at.rename(aside)
    os.mkfifo(at)


def listen(at: Path, aside: Path) -> None:
    """A socket."""
    at.rename(aside)
    with socket.socket(socket.AF_UNIX) as one:
        # The path of a socket is short.
        directory = os.open(at.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{directory}/{at.name}")
        os.close(directory)


def forbid(at: Path, aside: Path) -> None:
    """No permission at all."""
    at.chmod(0)


def lock_up(at: Path, aside: Path) -> None:
    """A directory that may be listed, but not entered."""
    at.chmod(0o444)


def hide(at: Path, aside: Path) -> None:
    """A directory that may be entered, but not listed."""
    at.chmod(0o311)


def remove(at: Path, aside: Path) -> None:
    """Never written."""
    at.rename(aside)


def replace_by_directory(at: Path, aside: Path) -> None:
    """A directory with something else in it: nothing was written under the key itself."""
    at.rename(aside)
    at.mkdir()
    (at / "other").write_bytes(b"1")


Change = Callable[[Path, Path], None]
# (what becomes of it, its path below the array, the verdict)
LAYOUTS: dict[str, tuple[Change, str, str]] = {
    f"{how.__name__} {name or 'array'}": (how, name, verdict)
    for how, names, verdict in [
        (move, ("c", "c/0", "c/0/1", "", "zarr.json"), "error"),
        (unmount, ("c", "c/0", "c/0/1", "", "zarr.json"), "error"),
        (relative, ("c", "c/0/1"), "error"),
        (loop, ("c", "c/0", "c/0/1"), "error"),
        (back, ("c", "c/0"), "error"),
        (overlay, ("c", "c/0"), "error"),
        (pipe, ("c/0", "c/0/1"), "error"),
        (listen, ("c/0/1",), "error"),
        (forbid, ("c", "c/0", "c/0/1", "", "zarr.json"), "error"),
        (lock_up, ("c", "c/0"), "error"),
        (hide, ("c", "c/0"), "error"),
        (remove, ("c", "c/0", "c/0/1"), "missing"),
        (replace_by_directory, ("c/0/1",), "missing"),
    ]
    for name in names
}
# Where the values are right all the same: nothing is listed, read, or looked for there.
RIGHT = {
    *(
        (f"hide {name}", verb)
        for name in ("c", "c/0")
        for verb in ("read", "reduce", "tiles", "served", "xarray")
    ),
    ("forbid c/0/1", "info"),
    *(
        (f"{how} zarr.json", verb)
        for how in ("move", "unmount", "forbid")
        for verb in ("tiles", "served", "xarray")
    ),
}


def invoke(*words: object) -> int:
    """The exit code of the command; errors that it did not foresee are raised."""
    result = CliRunner().invoke(command, [*map(str, words)])
    if "did not foresee" in result.output:
        raise AssertionError(result.output)
    return result.exit_code


def info(store: Any, out: Path) -> Any:
    if invoke("info", *store.words, "--sizes"):
        raise StoreError("info fails")
    return CELLS if zstore.open(store, ARRAY).nchunks_initialized == 4 else None


def verify(store: Any, out: Path) -> Any:
    found = zstore.verify(store)
    assert found.is_sound == (not found.damage_count) and {*found.kind_counts} <= {"unreachable"}
    if not found.is_sound:
        assert invoke("verify", *store.words) == 3
        assert all(str(damage.key).startswith("1") for damage in found.damages)
        raise StoreError("unreachable")
    missing = zstore.verify(store, "1/a", expect_complete=True)
    if missing.is_sound:
        return CELLS
    assert {*missing.kind_counts} == {"missing"}
    assert missing.damage_count == missing.missing_count == zstore.verify(store, "1/a").missing_count
    assert invoke("verify", *store.words, "--array", "1/a", "--expect-complete") == 4
    return None


def convert(store: Any, out: Path) -> Any:
    zstore.convert(store, out, chunks=(300, 300))
    return zstore.open(out, ARRAY)[...]


def keep(store: Any, out: Path) -> Any:
    zstore.convert(store, out, check=True)
    return zstore.open(out, ARRAY)[...]


def copy(store: Any, out: Path) -> Any:
    zstore.copy(store, out)
    return zstore.open(out, ARRAY)[...]


def reduce(store: Any, out: Path) -> Any:
    total = zstore.open(store, ARRAY).reduce("sum")
    return CELLS if total == CELLS.sum() else None


def pyramid(store: Any, out: Path) -> Any:
    zstore.build_pyramid(zstore.open(store, ARRAY), out, levels=1)
    return CELLS if zstore.open(out, "1/a")[...].all() else None


def tiles(store: Any, out: Path) -> Any:
    return np.block([[zstore.read_tile(store, "1", x, y, array="a") for x in (0, 1)] for y in (0, 1)])


def served(store: Any, out: Path) -> Any:
    """The tiles of a server; where one cannot be read, no picture and no statistics are made either."""
    if not importlib.util.find_spec("zstore_serve"):
        pytest.skip("zstore-serve is not installed")
    from zstore_serve import router

    application = router(store)
    (about,) = ask(application, "")["collections"]
    place = f"/{about['id']}"
    try:
        cells = [
            [ask(application, f"{place}/tiles/WebMercatorQuad/1/{x}/{y}.npy", b"bands=a") for x in (0, 1)]
            for y in (0, 1)
        ]
    except StoreError:
        window = ("window.tif", b"bbox=-170,-80,170,80")
        for path, query in (("preview.png", b""), ("statistics", b""), window):
            with pytest.raises(StoreError):
                ask(application, f"{place}/{path}", query)
        raise
    return np.block([[cell[0] for cell in row] for row in cells])


def ask(application: Any, path: str, query: bytes = b"") -> Any:
    """The document or the array that a server answers with.

    Raises
        StoreError: it says that its store is out of reach.
    """
    parts: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(part: Any) -> None:
        parts.append(part)

    scope = {"type": "http", "method": "GET", "path": f"/collections{path}", "query_string": query}
    scope |= {"headers": [(b"host", b"localhost")], "server": ("localhost", 80), "scheme": "http"}
    asyncio.run(application(scope, receive, send))
    content = b"".join(part.get("body", b"") for part in parts)
    if parts[0]["status"] == 200:
        return np.load(BytesIO(content)) if path.endswith(".npy") else json.loads(content)
    assert parts[0]["status"] == 503 and ("out of reach" in str(content) or "the store" in str(content)), (
        content
    )
    raise StoreError("unreachable")


def read_xarray(store: Any, out: Path) -> Any:
    found = xarray.open_dataset(store, engine="zstore", group="1", chunks=None)["a"].values
    return CELLS if (found == CELLS).all() else None


VERBS: dict[str, Callable[[Any, Path], Any]] = {
    "read": lambda store, _: zstore.open(store, ARRAY)[...],
    "info": info,
    "convert": convert,
    "convert, bytes kept": keep,
    "copy": copy,
    "verify": verify,
    "reduce": reduce,
    "pyramid": pyramid,
    "tiles": tiles,
    "served": served,
    "xarray": read_xarray,
}


def said(store: Any, **options: object) -> Any:
    """The store, with the words by which it is named at the prompt."""
    options_said = [f"{name}={value}" for name, value in options.items()]
    store.words = [store.url, *(word for each in options_said for word in ("--storage-option", each))]
    return store


def judge(store: Store, tmp_path: Path) -> dict[str, str]:
    """For each verb "values", "missing" or "error"; other errors, and those that name no path, are raised."""
    verdicts = {}
    for number, (verb, act) in enumerate(VERBS.items()):
        out = tmp_path / f"out{number}.zarr"
        try:
            found = act(store, out)
        except StoreError as error:
            assert str(error) in ("unreachable", "info fails") or error.key or error.path, error
            verdicts[verb] = "error"
            if verb in ("convert", "convert, bytes kept", "pyramid"):
                # Conversions go on with the other arrays.
                with pytest.raises(ZstoreError):
                    zstore.open(out, ARRAY, mode="r")
        else:
            verdicts[verb] = "values" if found is not None and np.array_equal(found, CELLS) else "missing"
    return verdicts


def as_anybody(act: Callable[[], dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """The result of `act` in a process to which permissions apply, as they do not to root."""

    def run() -> None:
        drop_capabilities()
        (tmp_path / "verdicts").write_text(json.dumps(act()))

    assert run_forked([run]) == [0]
    found: dict[str, str] = json.loads((tmp_path / "verdicts").read_text())
    return found


def drop_capabilities() -> None:
    """Take root's rights over others' files from this thread, and from those that it starts."""
    if os.geteuid():
        return
    libc, header, data = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(), (ctypes.c_uint32 * 6)()
    header[0] = 0x20080522  # the version of the two structures
    assert not libc.capget(header, data)
    data[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert not libc.capset(header, data)


@pytest.fixture
def mended(tmp_path: Path) -> Iterator[None]:
    """Permissions are given back, so that the files can be removed."""
    yield
    for _ in range(4):
        for each in tmp_path.rglob("*"):
            if not each.is_symlink():
                each.chmod(0o755)


def lay(sound: Path, tmp_path: Path, layout: str) -> LocalStore:
    how, name, _ = LAYOUTS[layout]
    shutil.copytree(sound, tmp_path / "s.zarr")
    how(tmp_path / "s.zarr" / ARRAY / name, tmp_path / "aside")
    return LocalStore(tmp_path / "s.zarr")


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_verdict_whoever_asks(sound, tmp_path, layout):
    store = said(lay(sound, tmp_path, layout))
    how, _, verdict = LAYOUTS[layout]
    expected = {verb: "values" if (layout, verb) in RIGHT else verdict for verb in VERBS}
    if how in (forbid, lock_up, hide):
        found = as_anybody(lambda: judge(store, tmp_path), tmp_path)
    else:
        found = judge(store, tmp_path)
    assert found == expected


# (which of the array's values are refused, whether missing ones are said to be, whether the bucket lists,
# storage options, the verdict)
BUCKETS = {
    "a chunk that is refused": (["c/0/1"], True, True, {}, "error"),
    "a chunk that is refused, as a list is": (["c/0/1"], True, False, {}, "error"),
    "the document that is refused": (["zarr.json"], True, True, {}, "error"),
    "nothing that is missing told": ([], False, True, {}, "missing"),
    "nothing that is missing told, nor listed": ([], False, False, {}, "error"),
    "nothing told, but by the caller": ([], False, False, {"hides_missing": "true"}, "missing"),
    "all told": ([], True, True, {}, "missing"),
}
# Who cannot do without a list.
LISTING = ("info", "convert, bytes kept", "copy", "pyramid")


@pytest.mark.parametrize("case", BUCKETS)
def test_one_verdict_of_a_bucket(sound, tmp_path, case):
    pytest.importorskip("obstore", reason="the package behind the store")
    refused, tells, lists, more, verdict = BUCKETS[case]
    with BucketServer() as server:
        for path in filter(Path.is_file, sound.rglob("*")):
            server.values[f"/b/s/{path.relative_to(sound)}"] = path.read_bytes()
        if verdict == "missing" or not tells:
            del server.values[f"/b/s/{ARRAY}/c/1/1"]
        server.hidden = {f"/b/s/{ARRAY}/{name}" for name in refused}
        server.tells_missing, server.lists = tells, lists
        options = server.options(**more)
        store = said(open_store("s3://b/s", storage_options=options), **options)
        found = judge(store, tmp_path)
    expected = dict.fromkeys(VERBS, verdict)
    if refused == ["c/0/1"]:  # a list has the sizes of objects that cannot be read, too
        expected["info"] = "values"
    if not lists:
        expected.update(dict.fromkeys(LISTING, "error"))
    if refused == ["zarr.json"]:
        expected.update(dict.fromkeys(("tiles", "served", "xarray"), "values"))
    assert found == expected


def test_links_in_a_zip_file_hide_chunks(sound, tmp_path):
    with ZipFile(tmp_path / "s.zip", "w") as made:
        for path in filter(Path.is_file, sound.rglob("*")):
            name = str(path.relative_to(sound))
            if not name.startswith(f"{ARRAY}/c/0/"):
                made.writestr(name, path.read_bytes())
        link = ZipInfo(f"{ARRAY}/c/0")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        made.writestr(link, "/mnt/disk/0")
    with ZipStore(tmp_path / "s.zip") as store:
        found = judge(said(store), tmp_path)
        # A copy has the link, as it is; sizes are added up of what is listed.
        assert found == dict.fromkeys(VERBS, "error")
        store.put("other", b"1")
    with ZipFile(tmp_path / "s.zip") as made:
        assert made.getinfo(f"{ARRAY}/c/0").external_attr >> 16 == 0o120777


@pytest.mark.parametrize("layout", [layout for layout, (how, _, _) in LAYOUTS.items() if how is move])
def test_linked_disks_are_used_where_they_are_allowed(sound, tmp_path, layout):
    lay(sound, tmp_path, layout)
    root, aside = tmp_path / "s.zarr", tmp_path / "aside"
    place = aside if aside.is_dir() else tmp_path
    store = said(LocalStore(root, allow=place), allow=place)
    assert {*judge(store, tmp_path).values()} == {"values"}
    others = tmp_path / "others"
    others.mkdir()
    with pytest.raises(StoreError, match="leads out of the store"):
        zstore.open(LocalStore(root, allow=others), ARRAY)[...]


def test_linked_disks_are_written_where_they_are_allowed(tmp_path):
    root, disk = tmp_path / "s.zarr", tmp_path / "disk"
    disk.mkdir()
    zstore.create_array(root, "a", data=CELLS[:64, :64], chunks=(16, 16))
    move(root / "a/c", disk / "c")
    array = zstore.open(root, "a", mode="r+", storage_options={"allow": disk})
    array[0:20, 0:20] = 7  # whole chunks and parts of them
    (disk / "c/3/3").unlink()
    array[48:, 48:] = 9
    expected = CELLS[:64, :64].copy()
    expected[0:20, 0:20], expected[48:, 48:] = 7, 9
    assert (array[...] == expected).all() and (root / "a/c").is_symlink()
    assert {each.name for each in disk.iterdir()} == {"c"} and len([*disk.rglob("*")]) == 21
    # A disk that is not mounted holds chunks that nobody can know of, read or written.
    disk.rename(tmp_path / "unmounted")
    again = zstore.open(root, "a", mode="r+", storage_options={"allow": [disk]})
    for act in (lambda: again[...], lambda: again.__setitem__(np.s_[:16, :16], 1)):
        with pytest.raises(StoreError):
            act()


@pytest.mark.parametrize("codecs", ["kernels", "python", "uneven"])
def test_files_in_the_way_are_noticed_however_chunks_are_read(tmp_path, codecs):
    options: dict[str, Any] = {
        "kernels": {},
        "python": {"filters": [{"name": "numcodecs.delta", "configuration": {"dtype": "|u1"}}]},
        "uneven": {},
    }[codecs]
    chunks = ((16, 48), (32, 32)) if codecs == "uneven" else (32, 32)
    array = zstore.create_array(tmp_path / "s.zarr", "a", data=CELLS[:64, :64], chunks=chunks, **options)
    (tmp_path / "s.zarr/a/c/1/1").unlink()
    assert (array[:16] == CELLS[:16, :64]).all() and not array[48:, 32:].any()
    overlay(tmp_path / "s.zarr/a/c/1", tmp_path / "aside")
    with pytest.raises(StoreError, match="where a part of the path is a file"):
        array[...]


@pytest.mark.parametrize("url", ["file://{}/s.zarr", "sqlite:///{}/s.db", "lmdb://{}/s", "dbm://{}/s"])
def test_a_store_that_is_gone_has_no_fill_values(tmp_path, url):
    kind = url.partition(":")[0]
    if kind != "file":
        pytest.importorskip(f"zstore_{kind}", reason="the plugin that has this store")
    disk = tmp_path / "disk"
    disk.mkdir()
    array = zstore.create_array(url.format(disk), "a", data=CELLS[:64, :64], chunks=(32, 32))
    array.store.close()
    disk.rename(tmp_path / "unmounted")
    for act in (
        lambda: array[...],
        lambda: array.reduce("sum"),
        lambda: array.nchunks_initialized,
        lambda: zstore.verify(array),
        lambda: zstore.convert(array.store, MemoryStore(), "a"),
    ):
        with pytest.raises(ZstoreError):
            act()


class CutStore(MemoryStore):
    """Its lists break off after so many keys."""

    def __init__(self, most: int = 1) -> None:
        super().__init__()
        self.most = most

    def list(self, prefix: str = "") -> Iterator[str]:
        for number, key in enumerate(sorted(super().list(prefix))):
            if number == self.most:
                raise StoreError("the list broke off", path=self.url)
            yield key


@pytest.mark.parametrize("most", [0, 1])
def test_what_a_list_that_broke_off_does_not_show_may_be_there(tmp_path, most):
    store = CutStore()
    array = zstore.create_array(store, "a", data=CELLS[:64, :64], chunks=(32, 32))
    assert (array[...] == CELLS[:64, :64]).all()
    store.most = most
    for act in (convert, keep, copy):
        with pytest.raises(StoreError, match="broke off"):
            act(array, tmp_path / f"{act.__name__}.zarr")
    with pytest.raises(StoreError, match="broke off"):
        _ = array.nchunks_initialized
    for expect_complete in (False, True):
        found = zstore.verify(array, expect_complete=expect_complete)
        assert found.kind_counts == {"unreachable": 1} and found.missing_count == 0


def test_links_within_the_store_are_followed(tmp_path):
    items = np.arange(1, 65, dtype="i4").reshape(8, 8)
    array = zstore.create_array(tmp_path / "s.zarr", "a", data=items, chunks=(4, 4))
    move(tmp_path / "s.zarr/a/c/0", tmp_path / "s.zarr/moved")
    assert (array[...] == items).all() and array.nchunks_initialized == 4
    assert (zstore.convert(tmp_path / "s.zarr", tmp_path / "t.zarr", "a")[...] == items).all()


def test_a_verification_tells_damaged_unreachable_and_never_written_apart(tmp_path):
    root = tmp_path / "s.zarr"
    zstore.create_array(root, "a", data=CELLS[:64, :64], chunks=(16, 16))
    (root / "a/c/0/0").write_bytes(b"no frame")
    move(root / "a/c/1", tmp_path / "aside")
    (root / "a/c/2/2").unlink()
    found = zstore.verify(root)
    assert [(damage.key, damage.kind) for damage in found.damages] == [
        ("a/c/1", "unreachable"), ("a/c/0/0", "chunk"),
    ]  # fmt: skip
    assert (found.chunk_count, found.missing_count) == (11, 1)
    found = zstore.verify(root, expect_complete=True)
    assert found.kind_counts == {"chunk": 1, "unreachable": 1, "missing": 1} and found.missing_count == 1
    for mend, words, code in [
        (lambda: None, [], 1),
        (lambda: None, ["--expect-complete"], 1),
        (lambda: (root / "a/c/0/0").unlink(), ["--expect-complete"], 3),
        (lambda: None, ["--expect-complete", "--storage-option", f"allow={tmp_path / 'aside'}"], 4),
        (lambda: None, ["--storage-option", f"allow={tmp_path / 'aside'}"], 0),
    ]:
        mend()
        assert invoke("verify", root, *words) == code, words


def test_chunks_are_missing_with_their_directories(tmp_path: Path) -> None:
    shape = (200, 200)
    array = zstore.create_array(tmp_path / "a", shape=shape, dtype="i2", chunks=(1, 1), fill_value=7)
    values = np.full(shape, 7, "i2")
    assert (array[...] == values).all()
    for row, columns in ((3, slice(None)), (90, slice(50, 53)), (91, slice(0, 1)), (199, slice(199, 200))):
        array[row, columns] = values[row, columns] = row
    (tmp_path / "a/c/50").mkdir()
    assert (array[...] == values).all()
    assert (array[::-3, ::7] == values[::-3, ::7]).all()
    windows = [np.s_[80:100, 40:60], np.s_[85:95], np.s_[:, 52]]
    for window, found in zip(windows, array.read_many(windows), strict=True):
        assert (found == values[window]).all()
    # Of several arrays in one batch, each has its own directories.
    bare = zstore.create_array(tmp_path / "b", shape=shape, dtype="i2", chunks=(1, 1), fill_value=7)
    joined = zstore.concat([bare, array, bare, array]).read()
    assert (joined.reshape(4, *shape)[[0, 2]] == 7).all()
    assert (joined.reshape(4, *shape)[[1, 3]] == values).all()
    # A link that leads nowhere is no missing directory, however much is missing before it.
    (tmp_path / "a/c/60").symlink_to("nowhere")
    for refused in (np.s_[...], np.s_[55:70], np.s_[60, 100:]):
        with pytest.raises(StoreError, match="leads to nothing"):
            array[refused]
    assert (array[:60] == values[:60]).all()


def test_missing_directories_are_asked_for_once(tmp_path: Path) -> None:
    """What lies below a directory that is missing costs less than what is missing in an empty one."""

    def seconds(array: zstore.Array) -> float:
        begin = time.process_time()
        array[...]
        return time.process_time() - begin

    array = zstore.create_array(tmp_path / "a", shape=(30_000, 2), dtype="i1", chunks=(1, 1))
    flat = zstore.create_array(tmp_path / "b", shape=(60_000,), dtype="i1", chunks=(1,))
    (tmp_path / "b/c").mkdir()
    assert min(seconds(array) for _ in range(5)) < 0.5 * min(seconds(flat) for _ in range(5))
