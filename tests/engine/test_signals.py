"""What a signal's handler raises while the kernels work reaches the caller as it was raised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import zstore
from zstore.engine import chunks
from zstore.storage import local


def test_an_alarm_is_no_failure_of_the_store(tmp_path, monkeypatch):
    array = zstore.create_array(tmp_path / "a", shape=(8,), chunks=(2,), dtype="i4")
    array[...] = 1

    def alarm(*_: Any, **__: Any) -> None:
        raise TimeoutError("too long")

    monkeypatch.setattr(chunks, "read", alarm)
    with pytest.raises(TimeoutError, match="too long"):
        array[...]
    monkeypatch.setattr(local, "Tree", lambda *_, **__: SimpleNamespace(get=alarm))
    with pytest.raises(TimeoutError, match="too long"):
        local.LocalStore(tmp_path / "a").get("zarr.json")
