"""Work that ends in a zip file writes it once."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zstore
from zstore.storage.url import open_store
from zstore.storage.zip.sources import FileSource


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        return file.namelist()


JOBS: dict[str, Callable[[Path, Path], Any]] = {
    "create": lambda source, target: zstore.create_array(
        target, "a", data=zstore.open(source, "a")[...], chunks=100, compressors=None
    ),
    "copy": lambda source, target: zstore.copy(source, target),
    "convert": lambda source, target: zstore.convert(source, target),
    "rechunk": lambda source, target: zstore.convert(source, target, chunks=(150, 150)),
    "pyramid": lambda source, target: zstore.build_pyramid(zstore.open(source, "a"), target, levels=1),
}


@pytest.mark.parametrize("job", JOBS)
def test_work_writes_a_zip_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    """Records, journals and documents that are put again leave no waste for which all is written anew."""
    values = np.random.default_rng(0).random((800, 800))
    zstore.create_array(tmp_path / "s.zarr", "a", data=values, chunks=100, compressors=None)
    written, append = list[int](), FileSource.append

    def count(source: FileSource, *parts: Any) -> None:
        written.append(sum(map(len, parts)))
        append(source, *parts)

    monkeypatch.setattr(FileSource, "append", count)
    path = tmp_path / "t.zip"
    JOBS[job](tmp_path / "s.zarr", path)
    open_store(path).close()
    assert sum(written) < 1.1 * path.stat().st_size
    assert len({*names(path)}) == len(names(path)) > 16
    assert not any(".zstore-job" in name for name in names(path))
    assert {each.name for each in tmp_path.iterdir()} == {"s.zarr", "t.zip"}
    # What is in the file already is written once more, whatever is added.
    written.clear()
    zstore.create_array(path, "b", data=values, chunks=100, compressors=None)
    open_store(path).close()
    assert sum(written) < 1.1 * path.stat().st_size
