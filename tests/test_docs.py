"""What the documentation says is what happens."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import zstore.codecs
from zstore.extensions.registry import codecs

ROOT = Path(__file__).resolve().parent.parent
# Rooms of what codecs share.
NO_CODEC = {"base", "casting", "chain", "forms", "native", "options"}
CODEC_FILES = [
    module.name for module in pkgutil.iter_modules(zstore.codecs.__path__) if module.name not in NO_CODEC
]


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What is to fail, and of packages, which run them: see below, and the tests of those packages.
OTHERWISE = {"plugins.md", "troubleshooting.md", "virtual.md", "icechunk.md"}
# What sets something for the whole process.
ALONE = {"api.md", "zarr-python.md"}
PAGES = sorted(
    page
    for page in (ROOT / "docs").glob("**/*.md")
    if page.parent.name != "design" and page.name not in OTHERWISE and BLOCK.search(page.read_text())
)


def run_page(page: Path) -> None:
    """The Python blocks of a page one after the other, and what it types at a prompt, in this directory."""
    names: dict[str, object] = {"__name__": page.stem}
    text = page.read_text()
    for block in BLOCK.finditer(text):
        # So that a traceback says where in the page.
        code = "\n" * text.count("\n", 0, block.start(2)) + block[2]
        if block[1] == "python":
            exec(compile(code, str(page), "exec"), names)
        elif block[1] == "console":
            type_lines(block[2])


def type_lines(lines: str) -> None:
    testing = pytest.importorskip("click.testing", reason="the command line needs click")
    from zstore.cli.root import zstore as command

    for line in lines.splitlines():
        prompt, program, *words = shlex.split(line)
        assert (prompt, program) == ("$", "zstore"), line
        result = testing.CliRunner().invoke(command, words)
        assert (result.exit_code, result.exception) == (0, None), (line, result.output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name not in ALONE:
        run_page(page)
        return
    code = f"import sys; from pathlib import Path; import test_docs; test_docs.run_page(Path({str(page)!r}))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def test_each_message_of_the_troubleshooting_page_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("obstore", reason="web servers are asked through obstore")
    names: dict[str, object] = {"__name__": "troubleshooting"}
    first, *sections = (ROOT / "docs/troubleshooting.md").read_text().split("\n### ")
    exec(BLOCK.search(first)[2], names)
    assert len(sections) > 20
    for section in sections:
        message = section.partition("\n")[0].strip("`")
        pattern = ".*".join(re.escape(part.strip()) for part in message.split("…"))
        with pytest.raises(Exception, match=pattern):
            exec(BLOCK.search(section)[2], names)


def test_the_reference_has_every_public_name_and_an_example_of_it() -> None:
    page = (ROOT / "docs/api.md").read_text()
    blocks = "\n".join(block[2] for block in BLOCK.finditer(page) if block[1] == "python")
    missing = [name for name in zstore.__all__ if not re.search(rf"\bzstore\.{name}\b", blocks)]
    assert missing == []
    directives = re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page, re.MULTILINE)
    described = dict(directives)
    for name, home in zstore._HOMES.items():
        options = described.get(f"{home}.{name}", described.get(home))
        assert options is not None, name
        assert f"{home}.{name}" in described or "members:" not in options or name in options, name


def test_the_pictures_of_the_gallery_are_those_that_its_code_draws(tmp_path: Path) -> None:
    pytest.importorskip("pyproj", reason="CRSs are rendered with pyproj (extra 'geo')")
    import pictures

    drawn = pictures.draw(tmp_path)
    assert {path.name for path in drawn} == {path.name for path in (ROOT / "docs/pictures").iterdir()}
    for path in drawn:
        kept = ROOT / "docs/pictures" / path.name
        if path.suffix == ".svg":
            # How many bytes a shard takes is its compressor's own, by version.
            numbers = r"[\d.,]+" if path.stem == "shard" else "(?!)"
            drawings = [re.sub(numbers, "", one.read_text()) for one in (path, kept)]
            assert drawings[0] == drawings[1], f"{path.name}: run tools/pictures.py"
        else:
            assert pixels(path) == pixels(kept), f"{path.name}: run tools/pictures.py"


def clocks(line: str) -> list[float]:
    """The last figure of each cell of a row, of several the second: ms by the clock, at 30 ms a request."""
    return [float(cell) for cell in re.findall(r"/ (?:[\d.]+, )?(\d+)(?:, \d+)? (?=\|)", line)]


def test_the_comparison_quotes_what_was_measured() -> None:
    measured = (ROOT / "docs/performance.md").read_text()
    quoted = (ROOT / "docs/comparison.md").read_text().partition("## Speed")[2]
    leads = set(re.findall(r"^\| [^|]+ \| \d+ \| ([\d.]+) \|", measured, re.MULTILINE))
    told = re.findall(r"^\| (?!S3).*\| ([\d.]+) times", quoted, re.MULTILINE)
    assert len(told) > 3 and leads.issuperset(told)
    peers = r"^\| \d+².*\| (?:tensorstore|zarrs|GDAL)[^|]* \| [\d.]+ \| ([\d.]+) \|"
    pyramids = [float(lead) for lead in re.findall(peers, measured, re.MULTILINE)]
    assert f"| {min(pyramids):.1f} to {max(pyramids):.1f} times |" in quoted
    # Against buckets: a row for each access, but for awaited windows, where each row is an engine.
    tables, _, awaited = measured.partition("Windows that are awaited")
    rows = [clocks(line) for line in tables.splitlines() if line.startswith("|")]
    engines = [
        clocks(line) for line in awaited.splitlines() if re.match(r"\| (zstore|tens|zarr)[^|]*\|.*/", line)
    ]
    own, others = engines[0], engines[4:]
    rows += [[one, min(most)] for one, most in zip(own, zip(*others, strict=True), strict=True)]
    far = {f"{min(row[1:]) / row[0]:.{digits}f}" for row in rows if len(row) > 1 for digits in (1, 2)}
    told = re.findall(r"([\d.]+)(?: times| as fast)", "".join(re.findall(r"^\| S3.*$", quoted, re.MULTILINE)))
    assert len(told) > 4 and far.issuperset(told)


def pixels(png: Path) -> bytes:
    """The rows of a picture, however a zlib compresses them."""
    return zlib.decompressobj().decompress(png.read_bytes().partition(b"IDAT")[2])


def test_the_two_minutes_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    run_page(ROOT / "README.md")
    assert zstore.open_array("array.zarr", mode="r")[5, 5] == 7
    assert sorted(zstore.open_group("pyramid.zarr", mode="r").group_keys()) == ["1", "2", "3"]
    # The picture at the top is the one that it makes, however a zlib compresses it.
    rows = [pixels(path) for path in (Path("scene.png"), ROOT / "docs/scene.png")]
    assert len(rows[0]) > 300_000
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", CODEC_FILES)
def test_the_example_of_a_codec_is_a_configuration_of_it(name: str) -> None:
    text = import_module(f"zstore.codecs.{name}").__doc__.partition("Example")[2]
    example, _ = json.JSONDecoder().raw_decode(text.strip())
    codec = codecs.resolve(example["name"]).from_configuration(example["configuration"])
    # Options that the example leaves out may be written back too.
    written = codec.to_configuration()
    for option, value in example["configuration"].items():
        if option not in ("codecs", "index_codecs"):
            assert written[option] == value


@pytest.mark.parametrize(
    "document", sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]), ids=lambda path: path.name
)
def test_files_that_a_document_names_exist(document: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|plugins|benchmarks|examples)/[\w./-]+)`", document.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_addresses_are_whole_and_secure() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/*.md")]:
        for link in re.findall(r"\]\((\w+:[^)]*)\)", page.read_text()):
            address = urlsplit(link)
            assert (address.scheme, "." in address.netloc) == ("https", True), (page.name, link)
            assert re.fullmatch(r"[!-~]+", link), (page.name, link)


def test_links_of_documents_outside_the_site_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("plugins/*/*.md")]:
        for link in re.findall(r"\]\((?!\w+:)([^)]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), (page.name, link)
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.M) if anchor else []
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert not anchor or anchor in anchors, (page.name, link)
