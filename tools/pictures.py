"""The pictures of the documentation, drawn from arrays made here and from the figures of docs/performance.md.

    python tools/pictures.py [directory; docs/pictures by default]

Drawings are SVG, light or dark as the reader's system is; tests draw them again and compare.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from html import escape
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

import zstore
from zstore.geo.pictures.png import encode_png
from zstore.geo.pictures.quicklook import preview, quicklook
from zstore.storage.memory import MemoryStore
from zstore.training.samples import NUMBER_SIZE

ROOT = Path(__file__).resolve().parent.parent
STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px}.faint{opacity:.65}
.line{stroke:#8884;fill:none}.ahead{fill:#2a7f8e}.behind{fill:#c2703d}
.a{fill:#5aa9b5}.b{fill:#a9d0d5}.c{fill:#d9a441}.none{fill:#8882}
@media (prefers-color-scheme:dark){
text{fill:#ddd}.ahead{fill:#4fb3c4}.a{fill:#2f7f8c}.b{fill:#1f4f57}.behind{fill:#e85}}
</style>"""
# Of the table "Every row" of docs/performance.md.
ROW = re.compile(r"^\| ([^|]+?) \| ([\d.]+) \| ([^|]+?) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
GROUP = re.compile(r"^\| ([^|]+?) \| \d+ \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
HEIGHTS_SIDE = 512
# Curves from the least memory to the most, and the last one of a full shuffle.
CURVES = ("#c2703d", "#d9a441", "#5aa9b5", "#2a7f8e", "#8888")


def heights(side: int = HEIGHTS_SIDE) -> np.ndarray:
    """Mountains that nobody has climbed: waves of many lengths, the same every time."""
    chance = np.random.default_rng(7)
    y, x = np.mgrid[0:side, 0:side] / side
    made = np.zeros((side, side))
    for octave in range(1, 7):
        for _ in range(4):
            (across, down), phase = chance.normal(0, 2**octave, 2), chance.random() * 2 * np.pi
            made += np.abs(np.sin(np.pi * (across * x + down * y) / 2 + phase)) / 2**octave
    return np.round((made - made.min()) / np.ptp(made) * 2800).astype("i2")


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A drawing, with its title for those who hear it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, *parts, "</svg>\n"])


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """Words that begin, or end, there."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, said: str = "") -> str:
    """A rectangle, with what it is for whoever points at it."""
    inside = f"<title>{escape(said)}</title>" if said else ""
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="{kind}">{inside}</rect>'


def draw_leads(title: str, rows: list[tuple[str, float, str]], least: float, most: float) -> str:
    """Bars to the right of 1 where zstore is ahead, to the left where it is behind, on a scale of ratios."""
    left, right, step = 290, 600, 24

    def place(lead: float) -> float:
        share = (np.log(min(max(lead, least), most)) - np.log(least)) / (np.log(most) - np.log(least))
        return left + float(share) * (right - left)

    parts = [text(8, 20, title)]
    bottom = 44 + step * len(rows)
    for lead in (0.5, 1, 2, 4):
        if least <= lead <= most:
            parts.append(f'<path class="line" d="M{place(lead):.1f} 40V{bottom}"/>')
            parts.append(text(place(lead), bottom + 16, f"{lead:g} ×", "small faint", "middle"))
    for number, (name, lead, who) in enumerate(rows):
        y = 44 + step * number
        start, end = sorted((place(1), place(lead)))
        parts.append(text(left - 10, y + 13, name, "small", "end"))
        parts.append(
            box(start, y + 2, max(1.0, end - start), 14, "ahead" if lead >= 1 else "behind", f"{lead:g}")
        )
        parts.append(text(right + 8, y + 13, f"{lead:g}  {who}".rstrip(), "small"))
    return svg(760, bottom + 28, title, parts)


def draw_shard() -> str:
    """The bytes of a shard as they lie in its file: inner chunks, and the index by which they are found."""
    with tempfile.TemporaryDirectory() as place:
        values = np.where(np.arange(256) < 192, heights(256), 0)
        values[:64, :64] = 0
        array = zstore.create_array(
            f"{place}/a.zarr", data=values, chunks=(64, 64), shards=(256, 256), compressors="zstd"
        )
        stored = array.store.get("c/0/0")
    assert stored is not None
    count = 16
    index = np.frombuffer(bytes(stored[-16 * count - 4 : -4]), "<u8").reshape(count, 2)
    scale = 720 / len(stored)
    parts = [
        text(8, 20, f"One shard of 4 × 4 inner chunks, {len(stored):,} bytes in one file: as they lie in it")
    ]
    order = sorted((int(start), int(size), n) for n, (start, size) in enumerate(index) if start < 2**63)
    for start, size, number in order:
        kind = "ab"[(number // 4 + number) % 2]
        parts.append(
            box(
                20 + start * scale,
                40,
                size * scale - 1,
                46,
                kind,
                f"inner chunk {number}: {size} bytes at {start}",
            )
        )
        if size * scale > 26:
            parts.append(text(20 + (start + size / 2) * scale, 67, str(number), "small", "middle"))
    parts.append(
        box(
            20 + (len(stored) - 16 * count - 4) * scale,
            40,
            max(6.0, (16 * count + 4) * scale),
            46,
            "c",
            "the index",
        )
    )
    parts.append(text(740, 104, "index, with its checksum", "small", "end"))
    parts.append(
        text(20, 104, "a reader fetches the index once, then the inner chunks that it needs", "small")
    )
    for number in range(count):
        row, column = divmod(number, 4)
        is_there = index[number, 0] < 2**63
        x, y = 20 + 74 * column, 130 + 34 * row
        parts.append(box(x, y, 70, 30, "ab"[(row + number) % 2] if is_there else "none"))
        parts.append(text(x + 35, y + 20, str(number) if is_there else "–", "small", "middle"))
    words = (
        "The same inner chunks where they lie in the array.",
        "– holds nothing but the fill value: it is not stored,",
        "and its line of the index says so.",
        f"Each line of the index: offset and size, 16 bytes; {count} lines",
        "and 4 bytes of checksum (crc32c).",
    )
    parts += [text(340, 150 + 20 * n, line, "small") for n, line in enumerate(words)]
    return svg(760, 276, "The anatomy of a shard", parts)


def draw_mixing() -> str:
    """How far apart in the array the samples are that follow each other, for several sizes of memory."""
    array = zstore.create_array(MemoryStore(), shape=(20_000, 4), dtype="i4", chunks=(20, 4))
    chunk = 20 * 4 * 4 + 20 * NUMBER_SIZE
    orders = {
        f"{count} chunk{'s' * (count > 1)}": array.batches(sample={0: 1}, memory=count * chunk)
        for count in (1, 4, 16, 64)
    }
    orders["a full shuffle"] = array.batches(sample={0: 1}, shuffle="full")
    left, top, width, height = 60, 44, 480, 240
    title = "How far apart in the array samples are that follow each other, for memory of 1 to 64 chunks"
    parts = [text(8, 20, title)]
    for share in (0, 0.5, 1):
        y = top + height * (1 - share)
        parts.append(f'<path class="line" d="M{left} {y:g}H{left + width}"/>')
        parts.append(text(left - 8, y + 4, f"{share:.0%}", "small faint", "end"))
        parts.append(text(left + width * share, top + height + 18, f"{share:.0%}", "small faint", "middle"))
    parts.append(text(left, top - 8, "of neighbours, nearer than", "small faint"))
    parts.append(text(left + width, top + height + 34, "of the array's length", "small faint", "end"))
    for number, (name, batches) in enumerate(orders.items()):
        order = np.fromiter(batches.order(), np.int64)
        far = np.abs(np.diff(order)) / len(order)
        edges = np.linspace(0, 1, 61)
        below = [float((far <= edge).mean()) for edge in edges]
        points = " ".join(
            f"{left + width * edge:.1f},{top + height * (1 - share):.1f}"
            for edge, share in zip(edges, below, strict=True)
        )
        color = CURVES[number]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = top + 40 + 22 * number
        parts.append(f'<path d="M{left + width + 20} {y - 4}h24" stroke="{color}" stroke-width="2"/>')
        parts.append(text(left + width + 52, y, f"{name}: {batches.report.mixing:.2f}", "small"))
    return svg(760, top + height + 44, title, parts)


def draw_read() -> str:
    """A window of an array on its way: what is planned, located, fetched, and put into the result."""
    values = np.arange(1, 32 * 64 + 1, dtype="i4").reshape(32, 64)
    array = zstore.create_array(MemoryStore(), data=values, chunks=8, shards=32, compressors=None)
    window = (slice(5, 22), slice(12, 39))
    (top, bottom), (left, right) = ((one.start, one.stop) for one in window)
    cells = [(y, x) for y in range(4) for x in range(8)]
    needed = [
        (y, x) for y, x in cells if top < 8 * y + 8 and 8 * y < bottom and left < 8 * x + 8 and 8 * x < right
    ]
    explained = array.explain(window)
    assert (explained.chunk_count, explained.keys) == (len(needed), ("c/0/0", "c/0/1"))
    parts = [
        text(8, 20, f"array[{top}:{bottom}, {left}:{right}] of 32 × 64 items in chunks of 8 × 8, two shards")
    ]
    scale, y0 = 5, 70
    parts.append(text(20, 50, "1  plan: which chunks, which items of each"))
    for y, x in cells:
        kind = "ab"[(y + x) % 2] if (y, x) in needed else "none"
        parts.append(box(20 + 40 * x, y0 + 40 * y, 39, 39, kind))
    parts.append(
        f'<rect x="{20 + scale * left}" y="{y0 + scale * top}" width="{scale * (right - left)}" '
        f'height="{scale * (bottom - top)}" fill="none" stroke="#c2703d" stroke-width="2"/>'
    )
    parts.append(text(380, 50, "2  locate: the shards' indexes say where they lie"))
    parts.append(text(380, 118 + 60, "3  fetch: these bytes, and no others"))
    for shard in range(2):
        index = np.frombuffer(bytes(array.store.get(f"c/0/{shard}"))[-16 * 16 - 4 : -4], "<u8").reshape(16, 2)
        width, y = 330 / (16 * 256), y0 + 26 * shard
        for number, (start, size) in enumerate(index.tolist()):
            row, column = divmod(number, 4)
            cell = (row, column + 4 * shard)
            kind = "ab"[(cell[0] + cell[1]) % 2] if cell in needed else "none"
            where = (380 + start * width, size * width - 1)
            parts.append(box(where[0], y, where[1], 18, kind, f"c/0/{shard}: {size} bytes at {start}"))
            if cell in needed:
                parts.append(box(where[0], y + 124, where[1], 18, kind))
        parts.append(box(380 + 16 * 256 * width, y, 6, 18, "c", "the index"))
        parts.append(text(726, y + 13, f"c/0/{shard}", "small"))
    parts.append(text(20, y0 + 196, "4  decode, and scatter into the result: on all cores, without the GIL"))
    for y, x in needed:
        rows = max(top, 8 * y), min(bottom, 8 * y + 8)
        columns = max(left, 8 * x), min(right, 8 * x + 8)
        parts.append(
            box(
                20 + scale * (columns[0] - left),
                y0 + 212 + scale * (rows[0] - top),
                scale * (columns[1] - columns[0]) - 1,
                scale * (rows[1] - rows[0]) - 1,
                "ab"[(y + x) % 2],
            )
        )
    words = (
        f"{explained.chunk_count} of 32 chunks, in {explained.value_count} stored values.",
        "array.explain(selection) says so of your own.",
    )
    parts += [text(380, y0 + 230 + 20 * n, line, "small") for n, line in enumerate(words)]
    return svg(770, y0 + 310, "A read in four steps", parts)


class RecordingStore(MemoryStore):
    """A store in memory that notes which keys are put and deleted, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    def put(self, key: str, value: Any) -> None:
        self.changes.append(("put", key))
        super().put(key, value)

    def delete(self, key: str) -> bool | None:
        self.changes.append(("delete", key))
        return super().delete(key)


def draw_job() -> str:
    """What a store has, and what readers find there, at each step of a job."""
    source = zstore.create_array(MemoryStore(), data=np.arange(4096).reshape(64, 64), chunks=16)
    target = RecordingStore()
    zstore.convert(source, target, chunks=(32, 32))
    kinds = [
        "record" if key.endswith("/record") else "chunks" if key.startswith("c/") else "document"
        for what, key in target.changes
        if what == "put" and not key.endswith("/sign")
    ]
    assert [kind for kind, _ in groupby(kinds)] == ["record", "chunks", "document"]
    assert target.changes[-1] == ("delete", ".zstore-job/record")
    steps = (
        ("the record", "none", "what is begun, by whom, and how to go on"),
        (f"{kinds.count('chunks')} chunks", "a", "unit by unit, on any executor, in any order"),
        ("the document", "c", "in one step: from now on there is an array"),
        ("the record goes", "none", "the job is done"),
    )
    parts = [text(8, 20, "zstore.convert(source, target): what is written to the target, in this order")]
    for number, (what, kind, why) in enumerate(steps):
        x, y = 20 + 185 * number, 44
        parts += [box(x, y, 165, 34, kind), text(x + 82, y + 22, what, anchor="middle")]
        parts += [text(x, y + 54 + 16 * n, line, "small") for n, line in enumerate(wrap(why, 26))]
    parts.append(box(20, 134, 2 * 185 + 172, 22, "none"))
    parts.append(box(20 + 2 * 185 + 174, 134, 165 + 11, 22, "a"))
    parts.append(text(30, 149, "readers find nothing here; an interrupted call goes on from here", "small"))
    parts.append(text(20 + 2 * 185 + 182, 149, "readers find all of it", "small"))
    return svg(770, 170, "A long job in four steps", parts)


def draw_zones(folder: str) -> np.ndarray:
    """Two rasters of neighbouring UTM zones, on the grid of the first."""
    names = []
    for zone, left, part in ((32632, 722000, slice(0, 240)), (32633, 271500, slice(200, 440))):
        names.append(f"{folder}/{zone}.zarr")
        place = {**PLACE, "proj:code": f"EPSG:{zone}", "spatial:transform": [30, 0, left, 0, -30, 5210000]}
        data, dims = heights()[:200, part], ["y", "x"]
        zstore.create_array(
            names[-1], data=data, dimension_names=dims, attributes={**place, "_FillValue": -1}
        )
    return quicklook(
        zstore.convert(zstore.mosaic(names), f"{folder}/mosaic.zarr"), size=900, colours="viridis"
    )


def draw_cube(folder: str) -> np.ndarray:
    """Three days without their clouds, and the median of all days, side by side."""
    y, x = np.mgrid[:160, :160]
    items, place = [], {**PLACE, "_FillValue": -1}
    for day in range(1, 6):
        clouds = np.sin(x / 19 + 2 * day) + np.cos(y / 23 - day) > 0.5
        cells = {
            "height": np.where(clouds, 4000, heights()[:160, :160]).astype("i2"),
            "class": clouds.astype("u1"),
        }
        assets = {name: {"href": f"{folder}/{name}{day}.zarr"} for name in cells}
        for name, data in cells.items():
            zstore.create_array(
                assets[name]["href"],
                data=data,
                dimension_names=["y", "x"],
                attributes=place if name == "height" else PLACE,
            )
        when = {"datetime": f"2020-06-0{day}T10:00:00Z"}
        items.append({"type": "Feature", "id": str(day), "properties": when, "assets": assets})
    days = zstore.cube(items, bands="height", mask="class", mask_values=[1], unpack=True)
    shown = [*(days[day] for day in range(3)), np.nanmedian(days, axis=0)]
    panels = []
    for number, view in enumerate(shown):
        stored = zstore.convert(view, f"{folder}/panel{number}.zarr")
        pixels = quicklook(stored, size=160, colours="viridis", limits=(0, 2800))
        panel = np.full((160, 168, 4), (0, 0, 0, 255), "u1")
        panel[:, :160, : pixels.shape[2]] = pixels
        panel[:, 160:] = 0
        panels.append(panel)
    return np.concatenate(panels, axis=1)[:, :-8]


def draw(place: Path) -> list[Path]:
    """Draw all pictures there, and say which."""
    place.mkdir(parents=True, exist_ok=True)
    page = (ROOT / "docs" / "performance.md").read_text()
    groups = [(name, float(lead), "") for name, lead, _ in GROUP.findall(page.partition("## Every row")[0])]
    section = page.partition("## Every row")[2].partition("\n## ")[0]
    rows = [(name, float(lead), peer) for name, _, peer, lead, _ in ROW.findall(section)]
    drawn = {
        "speed.svg": draw_leads("How much faster than the fastest of the others, by group", groups, 0.5, 4),
        "best-and-worst.svg": draw_leads(
            "The eight rows where zstore is furthest behind, and the eight where it is furthest ahead",
            [*sorted(rows, key=lambda row: row[1])[:8], *sorted(rows, key=lambda row: row[1])[-8:]],
            0.4,
            4.5,
        ),
        "shard.svg": draw_shard(),
        "mixing.svg": draw_mixing(),
        "read.svg": draw_read(),
        "job.svg": draw_job(),
    }
    for name, drawing in drawn.items():
        (place / name).write_text(drawing)
    with tempfile.TemporaryDirectory() as made:
        group = zstore.create_group(f"{made}/dem.zarr", attributes=PLACE)
        group.create_array("height", data=heights(), chunks=128, dimension_names=["y", "x"])
        pyramid = zstore.build_pyramid(group, f"{made}/pyramid.zarr", levels=5, method="average")
        (place / "pyramid.png").write_bytes(encode_png(preview(pyramid, size=128)))
        (place / "zones.png").write_bytes(encode_png(draw_zones(made)))
        (place / "cube.png").write_bytes(encode_png(draw_cube(made)))
        turned = zstore.create_group(f"{made}/turned.zarr", attributes={**PLACE, "spatial:transform": TURNED})
        turned.create_array("height", data=heights()[:300, :400], dimension_names=["y", "x"])
        (place / "turned.png").write_bytes(encode_png(quicklook(turned, size=360)))
    return sorted(place.iterdir())


PLACE = {
    "proj:code": "EPSG:32632",
    "spatial:dimensions": ["y", "x"],
    "spatial:transform": [30, 0, 600000, 0, -30, 5200000],
}
TURNED = [26, 15, 600000, 15, -26, 5200000]


if __name__ == "__main__":
    for drawn in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"):
        print(drawn)
