"""Traces and counts: spans are noted while somebody asks for them, with requests, retries and bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.storage.bucket_server import BucketServer

import zstore
from zstore.base import tracing
from zstore.errors import StoreError
from zstore.jobs.upkeep.convert import convert

ITEMS = np.arange(64 * 64, dtype="i4").reshape(64, 64)


@pytest.fixture
def none_is_brief(monkeypatch):
    """Each open, read and write has a span, however little time it takes."""
    monkeypatch.setattr(tracing, "BRIEF", 0)


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with BucketServer() as server:
        yield server


def test_nothing_is_noted_without_a_trace(tmp_path):
    array = zstore.create_array(tmp_path, data=ITEMS, chunks=(8, 8))
    with zstore.trace() as trace:
        pass
    array[:3]
    assert not tracing.is_on
    assert tracing.span("read", array="a") is tracing.NOTHING
    assert trace.spans == []
    assert str(trace) == "span  count  seconds  chunks  MB  retries  errors"


def test_reads_and_writes_are_noted_with_their_chunks_and_bytes(tmp_path, none_is_brief):
    zstore.create_array(tmp_path, data=ITEMS, chunks=(8, 8), shards=(32, 32))
    with zstore.trace() as trace:
        array = zstore.open_array(tmp_path, mode="r+")
        array[:8]
        array.read((slice(9), 0))
        array.read_many([np.s_[0], np.s_[1, :8]])
        asyncio.run(array.read_async(np.s_[:16, :16]))
        array.vindex[[0, 60], [0, 60]]
        array[:8, :8] = 1
        with pytest.raises(zstore.errors.SelectionError):
            array[70]
    names = [span.name for span in trace.spans]
    assert names == ["open", *["read"] * 5, "write"]
    assert [span.attributes["chunks"] for span in trace.spans[1:]] == [8, 2, 9, 4, 2, 1]
    assert [span.attributes["bytes"] for span in trace.spans[1:]] == [2048, 36, 288, 1024, 8, 256]
    assert trace.spans[0].attributes == {"node": tmp_path.as_uri()}
    assert all(span.attributes["array"] == tmp_path.as_uri() for span in trace.spans[1:])
    assert all(span.seconds > 0 for span in trace.spans)
    rows = dict(line.split(maxsplit=1) for line in str(trace).splitlines())
    assert rows["read"].split()[0] == "5"
    assert rows["write"].split()[2] == "1"


def test_units_of_jobs_lie_below_the_job_and_their_reads_below_them(tmp_path):
    zstore.create_array(tmp_path / "a", data=ITEMS, chunks=(8, 8), compressors="gzip")
    with zstore.trace() as trace:
        convert(tmp_path / "a", tmp_path / "b", chunks=(16, 16))
    [job] = [span for span in trace.spans if span.name == "job"]
    units = [span for span in trace.spans if span.name == "unit"]
    assert units
    assert all(unit.parent is job for unit in units)
    below = [span for span in trace.spans if span.parent in units]
    assert {span.name for span in below} == {"read", "write"}


def test_requests_are_noted_with_retries_and_bytes_and_counted(server, monkeypatch):
    options = server.options()
    zstore.create_array("s3://b/x", data=ITEMS, chunks=(8, 8), compressors=None, storage_options=options)

    async def pause(seconds: float) -> None:
        server.faults = {}

    monkeypatch.setattr("zstore.storage.objects.backend.pause", pause)
    before = zstore.stats()
    with zstore.trace() as trace:
        array = zstore.open_array("s3://b/x", mode="r", storage_options=options)
        server.faults = {"503": 1.0}
        array[:8, :8]
        server.faults = {}
        array[:8]
    # One chunk; then a row of eight of them.
    fetched = [span for span in trace.spans if span.name == "fetch"]
    assert [(span.attributes["chunks"], span.attributes["bytes"]) for span in fetched] == [
        (1, 256),
        (8, 2048),
    ]
    requests = [span for span in trace.spans if span.name == "request" and span.parent in fetched]
    assert {span.attributes["key"].rpartition("/")[0] for span in requests} == {"c/0"}
    assert {span.attributes["method"] for span in requests} == {"GET"}
    assert [span.attributes["retries"] for span in requests] == [1] + [0] * 8
    assert trace.totals["decode"].bytes == 2304
    after = zstore.stats()
    grown = {name: after[name] - before[name] for name in ("retries", "failed_requests", "bytes_received")}
    assert grown["retries"] == trace.totals["request"].retries == 1
    assert grown["failed_requests"] == 0
    assert grown["bytes_received"] == trace.totals["request"].bytes > 2304
    assert after["requests"] - before["requests"] == trace.totals["request"].count + 1


# What docs/howto/slow.md says that each cause looks like in the totals of a trace.
CAUSES = {
    "Many small requests": lambda read, request, decode: (
        request.count > 100 and request.bytes < 4096 * request.count
    ),
    "Servers that refuse": lambda read, request, decode: request.retries > 0,
    "Much is decoded for little": lambda read, request, decode: decode.bytes > 10 * read.bytes,
    "Slow codecs": lambda read, request, decode: (
        decode.seconds > 0.5 * read.seconds and decode.bytes < 2 * read.bytes
    ),
}
SLOW_CODEC = [{"name": "numcodecs.lzma", "configuration": {}}]
SLOW = Path(__file__).parents[2] / "docs" / "howto" / "slow.md"


@pytest.mark.parametrize(
    ("cause", "options", "selection", "faults"),
    [
        (None, {"chunks": (256, 256), "compressors": None}, ..., {}),
        ("Many small requests", {"chunks": (16, 16), "compressors": None}, ..., {}),
        ("Servers that refuse", {"chunks": (256, 256), "compressors": None}, ..., {"503": 1.0}),
        ("Much is decoded for little", {"chunks": (256, 256), "compressors": "zstd"}, np.s_[3, :9], {}),
        ("Slow codecs", {"chunks": (256, 256), "compressors": [{"id": "lzma"}], "zarr_format": 2}, ..., {}),
        ("Slow codecs", {"chunks": ([160, 96], [256]), "compressors": SLOW_CODEC}, ..., {}),
        ("Slow codecs", {"chunks": (32, 256), "shards": (256, 256), "compressors": SLOW_CODEC}, ..., {}),
    ],
)
def test_a_planted_cause_is_named_from_the_trace_and_the_page_alone(
    cause, options, selection, faults, server, monkeypatch
):
    async def pause(seconds: float) -> None:
        server.faults = {}

    monkeypatch.setattr("zstore.storage.objects.backend.pause", pause)
    # Seconds of this process at work, so that a machine with other work says the same.
    clock = SimpleNamespace(time=time.time, perf_counter=time.process_time)
    monkeypatch.setattr(tracing, "time", clock)
    items = np.random.default_rng(0).random((256, 256))
    there = zstore.create_array("s3://b/slow", data=items, storage_options=server.options(), **options)
    server.faults = faults
    with zstore.trace() as trace:
        there[selection]
    totals = [trace.totals[name] for name in ("read", "request", "decode")]
    assert [one for one, is_so in CAUSES.items() if is_so(*totals)] == [cause][: cause is not None]
    assert all(f"- **{one}**: " in SLOW.read_text() for one in CAUSES)


def test_what_failed_is_noted_and_no_secret_is(server):
    zstore.set_limits(attempt_count=1)
    try:
        before = zstore.stats()["failed_requests"]
        with zstore.trace() as trace, pytest.raises(StoreError):
            server.faults = {"503": 1.0}
            zstore.open(f"{server.url}/b/x?X-Amz-Signature=secret", mode="r")
    finally:
        zstore.set_limits(attempt_count=None)
    [opened] = [span for span in trace.spans if span.name == "open"]
    assert opened.error == "StoreError"
    assert trace.totals["request"].errors
    assert zstore.stats()["failed_requests"] > before
    assert "secret" not in repr(trace.spans)


def test_brief_reads_are_counted_only(tmp_path, monkeypatch):
    array = zstore.create_array(tmp_path, data=ITEMS, chunks=(8, 8))
    monkeypatch.setattr(tracing, "BRIEF", 10**12)
    array[0]
    with zstore.trace() as trace:
        array[:16, 0]
        with zstore.trace() as inner:
            array[3, 4], array[5:5]
        array[0]
        assert trace.totals["read"].count == 4
    array[0]
    assert trace.spans == inner.spans == []
    totals = [one.totals["read"] for one in (trace, inner)]
    assert [(one.count, one.chunks, one.bytes) for one in totals] == [(4, 11, 324), (2, 1, 4)]
    assert 0 < totals[1].seconds < totals[0].seconds
    (tmp_path / "c/0/0").write_bytes(b"damaged")
    with zstore.trace() as trace, pytest.raises(zstore.errors.CodecError):
        array[0]
    assert [span.error for span in trace.spans] == ["CodecError"]
    monkeypatch.setattr(tracing, "BRIEF", 1)
    with zstore.trace() as trace:
        array[8]
    assert [(span.name, span.attributes["chunks"]) for span in trace.spans] == [("read", 8)]
    assert trace.totals["read"].seconds == trace.spans[0].seconds > 0


def test_brief_opens_and_writes_are_counted_only(tmp_path, monkeypatch):
    there = zstore.create_array(tmp_path / "a", data=ITEMS, chunks=(8, 8))
    held = zstore.create_array("memory://", data=ITEMS, chunks=(8, 8))
    monkeypatch.setattr(tracing, "BRIEF", 10**12)
    with zstore.trace() as trace:
        for target in (tmp_path / "a", str(tmp_path / "a"), there.store):
            zstore.open_array(target)
        with zstore.trace() as inner:
            there[:9, 0] = held[:9, 0] = 1
            asyncio.run(there.write_async(3, 2))
        assert (trace.totals["open"].count, trace.totals["write"].count) == (3, 3)
    there[0] = 3
    assert trace.spans == inner.spans == []
    totals = [one.totals["write"] for one in (trace, inner)]
    assert [(one.count, one.chunks, one.bytes) for one in totals] == [(3, 12, 328)] * 2
    assert totals[0].seconds == totals[1].seconds > 0
    assert trace.totals["open"].seconds > 0
    assert "open" not in inner.totals
    # What fails has a span, and so has what is not brief.
    with zstore.trace() as trace:
        with pytest.raises(zstore.errors.NotFoundError):
            zstore.open(tmp_path / "none", mode="r")
        (tmp_path / "a/c/0/0").write_bytes(b"damaged")
        with pytest.raises(zstore.errors.CodecError):
            there[0, 0] = 1
    assert [(span.name, span.error) for span in trace.spans] == [
        ("open", "NotFoundError"),
        ("write", "CodecError"),
    ]
    monkeypatch.setattr(tracing, "BRIEF", 1)
    with zstore.trace() as trace:
        zstore.open_array(tmp_path / "a")[8] = 1
    opened, written = trace.spans
    assert opened.attributes == {"node": (tmp_path / "a").as_uri()}
    assert written.attributes == {"array": (tmp_path / "a").as_uri(), "chunks": 8, "bytes": 256}
    assert trace.totals["open"].seconds == opened.seconds > 0
    assert trace.totals["write"].seconds == written.seconds > 0


def test_spans_beyond_the_most_are_counted_only(tmp_path, none_is_brief):
    array = zstore.create_array(tmp_path, data=ITEMS, chunks=(8, 8))
    with zstore.trace(most=3) as trace, zstore.trace() as inner:
        for _ in range(5):
            array[0]
    assert len(trace.spans) == 3
    assert trace.totals["read"].count == len(inner.spans) == 5


def test_opentelemetry_is_told_below_the_callers_span(tmp_path):
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    processors = pytest.importorskip("opentelemetry.sdk.trace.export")
    exporter = export.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(processors.SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    zstore.create_array(tmp_path / "a", data=ITEMS, chunks=(8, 8))
    with tracer.start_as_current_span("mine"), zstore.trace(tracer=tracer):
        convert(tmp_path / "a", tmp_path / "b", chunks=(16, 16))
        with pytest.raises(zstore.errors.NotFoundError):
            zstore.open(tmp_path / "none", mode="r")
    ended = {span.context.span_id: span for span in exporter.get_finished_spans()}
    by_name = {span.name: span for span in ended.values()}

    def above(name: str) -> str:
        return ended[by_name[name].parent.span_id].name

    assert (above("zstore.job"), above("zstore.unit"), above("zstore.read")) == (
        "mine",
        "zstore.job",
        "zstore.unit",
    )
    assert by_name["zstore.read"].attributes["zstore.bytes"] > 0
    assert by_name["zstore.read"].end_time >= by_name["zstore.read"].start_time
    assert by_name["zstore.open"].attributes["error.type"] == "NotFoundError"
