"""Every parser and decoder, with input that was valid once: only errors of zstore come out, and soon."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("zstore_fuzz_targets", HERE / "targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


targets = load()


@pytest.mark.parametrize("name", targets.TARGETS)
@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(seed=st.integers(0, 2**63))
def test_only_errors_of_zstore_come_out(name, seed):
    target = targets.TARGETS[name]
    targets.try_one(target, targets.mutate(target, random.Random(seed)))


@pytest.mark.parametrize("name", targets.TARGETS)
def test_seeds_are_taken_and_noise_is_not_fatal(name):
    target = targets.TARGETS[name]
    assert targets.try_one(target, target.seeds[0])
    for noise in (b"", b"\0", b"\xff" * 7, bytes(4096), b"{}", b"[]", b"null", b'"' * 99):
        targets.try_one(target, noise)


def test_a_fault_is_found():
    """Were a target to raise anything else, it would come out."""

    def feed(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        targets.try_one(targets.Target([b"x"], feed, False), b"y")


def run(seconds: float, tmp_path: Path) -> None:
    source = HERE.parents[1] / "src"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]),
    }
    result = subprocess.run(
        [sys.executable, str(HERE / "run.py"), str(seconds)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


def test_memory_is_bounded(tmp_path):
    run(2, tmp_path)


@pytest.mark.slow
def test_for_longer(tmp_path):
    run(120, tmp_path)
