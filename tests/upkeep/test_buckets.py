"""Buckets as jobs, pictures and commands meet them: options, faults, copies that are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.jobs.source import MADE
from zstore.storage.url import open_store, use_storage_options

from ..storage.bucket_server import BucketServer, forget_settings

pytest.importorskip("obstore", reason="the package behind the store")

ITEMS = np.arange(64 * 64, dtype="i4").reshape(64, 64)


@pytest.fixture(autouse=True)
def nothing_else_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_settings(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with BucketServer() as server:
        yield server


def test_a_copy_deletes_documents_before_chunks_and_many_keys_at_once(server: BucketServer) -> None:
    options = server.options()
    for name in ("kept", "gone/a", "gone/b"):
        zstore.create_array("s3://b/there", name, data=ITEMS, chunks=(8, 8), storage_options=options)
    zstore.create_array("s3://b/here", "kept", data=ITEMS, chunks=(8, 8), storage_options=options)
    server.requests.clear()
    bodies = server.deleted = []
    done = zstore.copy(
        *("s3://b/here", "s3://b/there"),
        delete=True,
        if_exists="changed",
        storage_options=options,
        target_options=options,
    )
    assert done.deleted_count == 2 * 65 + 1
    gone = [keys for keys in bodies if keys[0].startswith("there/gone/")]
    assert [sorted(gone[0]), len(gone[1]), len(gone)] == [
        ["there/gone/a/zarr.json", "there/gone/b/zarr.json", "there/gone/zarr.json"],
        128,
        2,
    ]
    assert not [path for method, path in server.requests if method == "DELETE" and "/gone/" in path]
    store = open_store("s3://b/there", storage_options=options)
    assert sorted(zstore.open_group(store, mode="r")) == ["kept"]


def test_nothing_above_the_prefix_is_asked_for(server: BucketServer, tmp_path: Path) -> None:
    from zstore.geo.pictures.quicklook import quicklook

    server.allowed = "/b/mine/"
    options = server.options()
    url = "s3://b/mine/p.zarr"
    group = zstore.create_group(url, storage_options=options)
    names = {"dimension_names": ["y", "x"]}
    level = group.create_group("0")
    level.create_array("v", data=ITEMS, chunks=(16, 16), **names)
    server.requests.clear()
    # All that is opened elsewhere would be Amazon's.
    built = zstore.build_pyramid(url, storage_options=options, levels=1)
    assert [*built] == ["0", "1"]
    again = zstore.build_pyramid(
        zstore.open_group(url, "0", storage_options=options),
        "s3://b/mine/q.zarr",
        levels=1,
        storage_options=options,
    )
    assert "1" in again
    zstore.update_pyramid(url, {"y": slice(0, 8)}, storage_options=options)
    quicklook(url, storage_options=options)
    array = zstore.open_array(f"{url}/0/v", storage_options=options)
    quicklook(array)
    assert "64" in repr(array)
    zstore.validate(url, storage_options=options)
    assert zstore.verify(url, storage_options=options).is_sound
    made = zstore.convert(url, tmp_path / "c.zarr", storage_options=options)
    assert np.array_equal(made["0/v"][...], ITEMS)
    sums = zstore.reduce(f"{url}/0/v", "sum", 0, out="s3://b/mine/s.zarr", storage_options=options)
    assert np.array_equal(sums[...], ITEMS.sum(0))
    outside = {path for _, path in server.requests if not path.startswith("/b/mine/")} - {"/b"}
    assert outside == set()
    kept = b"".join(server.values.values())
    assert b'"secret": "s"' not in kept


def test_options_go_with_every_command(server: BucketServer, tmp_path: Path) -> None:
    pytest.importorskip("click", reason="the command line is not installed")
    from click.testing import CliRunner

    from zstore.cli.options import hide_options
    from zstore.cli.root import zstore as command

    server.allowed = "/b/mine/"
    url, options = "s3://b/mine/p.zarr", server.options()
    group = zstore.create_group(url, storage_options=options)
    group.create_group("0").create_array("v", data=ITEMS, chunks=(16, 16), dimension_names=["y", "x"])
    words = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
    for line in (
        ["pyramid", url, "--levels", "1"],
        ["info", url],
        ["tree", url],
        ["consolidate", url],
        ["verify", url],
        ["convert", url, "s3://b/mine/c.zarr"],
        ["quicklook", url, "-o", str(tmp_path / "a.png")],
        ["fix", url],
    ):
        result = CliRunner().invoke(command, [*line, *words])
        assert result.exit_code == 0, (line, result.output)
    refused = CliRunner().invoke(command, ["info", url, "--storage-option", "anon"])
    assert "expected NAME=VALUE" in refused.output
    server.buckets = {"b"}
    nowhere = CliRunner().invoke(command, ["info", "s3://another/a", *words])
    assert "expected the right name, and the right --storage-option endpoint_url" in " ".join(
        nowhere.output.split()
    )
    hidden = [*hide_options(["info", url, *words, "--storage-option=key=k"])]
    assert f"endpoint_url={server.url}" not in hidden
    assert hidden[-1] == "--storage-option=key=..."
    assert "secret=..." in hidden


def test_copies_go_into_a_bucket_out_of_it_and_within_it(server: BucketServer, tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "s", "a", data=ITEMS, chunks=(16, 16))
    files = {
        str(f.relative_to(tmp_path / "s")): f.read_bytes() for f in (tmp_path / "s").rglob("*") if f.is_file()
    }
    with use_storage_options(server.options()):
        made = zstore.copy(tmp_path / "s", "s3://b/one", manifest=tmp_path / "m", check=True)
        assert {key: server.values[f"/b/one/{key}"] for key in files} == files
        server.requests.clear()
        # The server copies: nothing is read but the documents, which say what is an array.
        zstore.copy("s3://b/one", "s3://b/two")
        read = {path for method, path in server.requests if method == "GET" and "/a/c/" in path}
        assert read == set()
        assert {key: server.values[f"/b/two/{key}"] for key in files} == files
        assert [key for key in server.values if ".zstore" in key] == []
        # Who reads by other credentials need not be who may write: nobody has both, to have the server copy.
        other = open_store("s3://b/one", storage_options=server.options(key="other"))
        zstore.copy(other, "s3://b/four")
        read = {path for method, path in server.requests if method == "GET" and "/a/c/" in path}
        assert read == {f"/b/one/{key}" for key in files if "/c/" in key}
        assert {key: server.values[f"/b/four/{key}"] for key in files} == files
        zstore.copy("s3://b/two", tmp_path / "t")
        assert zstore.manifest("s3://b/two").root == zstore.manifest(tmp_path / "t").root == made.root
        server.values["/b/two/a/c/0/1"] += b"!"
        server.tags.pop("/b/two/a/c/0/1")
        [damage] = zstore.verify("s3://b/two", manifest=tmp_path / "m").damages
        assert (damage.key, damage.kind) == ("a/c/0/1", "changed")
        # What a manifest says of the last copy spares all but what has changed.
        zstore.copy("s3://b/one", "s3://b/three", manifest=tmp_path / "n")
        server.values["/b/one/a/c/3/3"] = server.values["/b/one/a/c/0/0"]
        server.tags.pop("/b/one/a/c/3/3")
        server.requests.clear()
        done = zstore.copy("s3://b/one", "s3://b/three", if_exists="changed", manifest=tmp_path / "n")
        assert done.key_count == 1
        read = {path for method, path in server.requests if method == "GET" and "/a/c/" in path}
        assert read <= {"/b/one/a/c/3/3", "/b/three/a/c/3/3"}
        assert server.values["/b/three/a/c/3/3"] == server.values["/b/one/a/c/0/0"]


def test_copies_get_through_a_bad_network(server: BucketServer, tmp_path: Path) -> None:
    zstore.create_array(tmp_path / "s", data=ITEMS, chunks=(16, 16))
    server.faults = {"503": 0.1, "reset": 0.1, "cut": 0.1}
    with use_storage_options(server.options()):
        zstore.copy(tmp_path / "s", "s3://b/x")
        zstore.copy("s3://b/x", "s3://b/y", check=True)
    server.faults = {}
    files = {
        str(f.relative_to(tmp_path / "s")): f.read_bytes() for f in (tmp_path / "s").rglob("*") if f.is_file()
    }
    assert {key: server.values[f"/b/y/{key}"] for key in files} == files


class Killing(BucketServer):
    """Kills a process at its so-manieth PUT, and counts what is read of the bucket "from"."""

    def __init__(self, moment: int) -> None:
        super().__init__()
        self.moment, self.child, self.read_size = moment, 0, 0

    def answer(self, request: Any, path: str, *others: Any) -> tuple[int, dict[str, str], bytes]:
        if request.command == "PUT" and self.child:
            self.moment -= 1
            if not self.moment:
                os.kill(self.child, signal.SIGKILL)
        status, headers, data = super().answer(request, path, *others)
        if request.command == "GET" and path.startswith("/from/s/"):
            self.read_size += len(data)
        return status, headers, data


COPYING = """
import sys, zstore
from zstore.jobs import journal
from zstore.jobs.upkeep import copy
journal.WAITING_SECONDS = journal.PAUSE = -1
copy.UNIT_COUNT = 2
options = {options!r}
sys.stdin.readline()
zstore.copy("s3://from/s", "s3://to/t", manifest={manifest!r}, request_count=1, resume=True,
            storage_options=options, target_options=options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_copy_killed_at_any_request_reads_what_was_left(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zstore.jobs.upkeep.copy.UNIT_COUNT", 2)
    with Killing(random.Random(seed).randrange(2, 140)) as server:
        options = server.options()
        source = open_store("s3://from/s", storage_options=options)
        zstore.create_array(
            source, data=np.arange(128 * 1024).reshape(128, 1024), chunks=(1, 1024), compressors=None
        )
        script = COPYING.format(options=options, manifest=str(tmp_path / "m"))
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        server.child = child.pid
        child.communicate(b"\n")
        assert child.returncode == -signal.SIGKILL
        server.child = server.read_size = 0

        def below(prefix: str) -> dict[str, bytes]:
            with server.lock:
                of_prefix = {k: v for k, v in server.values.items() if k.startswith(prefix)}
            return {key[len(prefix) :]: value for key, value in of_prefix.items() if MADE not in key}

        there = below("/to/t/")
        assert "zarr.json" not in there
        left = sum(len(value) for key, value in below("/from/s/").items() if key not in there)
        again = {"storage_options": options, "target_options": options, "resume": True}
        done = zstore.copy("s3://from/s", "s3://to/t", manifest=tmp_path / "m", **again)
        # Documents are read to be planned by, too.
        assert left <= server.read_size <= 1.1 * left + 4 * len(below("/from/s/")["zarr.json"])
        assert below("/to/t/") == below("/from/s/")
        assert done.root == zstore.manifest("s3://from/s", storage_options=options).root
