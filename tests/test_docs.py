"""What the documentation says is what happens."""

from __future__ import annotations

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import zstore.codecs
from zstore.extensions.registry import codecs

ROOT = Path(__file__).resolve().parent.parent
# Rooms of what codecs share.
NO_CODEC = {"base", "casting", "chain", "native"}
CODEC_FILES = [
    module.name for module in pkgutil.iter_modules(zstore.codecs.__path__) if module.name not in NO_CODEC
]


def test_the_first_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code[1], "README.md", "exec"), names)
    assert zstore.open_array("scene.zarr", mode="r")[5, 5] == 7
    assert sorted(zstore.open_group("pyramid.zarr", mode="r").group_keys()) == ["1", "2", "3"]


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
