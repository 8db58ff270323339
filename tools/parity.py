"""Other projects' own test-suites through zstore's codec pipeline, beside zarr-python's.

    python tools/parity.py zarr 3.1.6       zarr-python's suite, from its source distribution
    python tools/parity.py zarr 3.4.2       the same of a version that needs Python 3.12: one on PATH, or
                                            what ZSTORE_PARITY_PYTHON names
    python tools/parity.py xarray 2026.9.0  xarray's tests of its Zarr backend

Each version gets a virtual environment below build/parity/, from PyPI. The suite runs twice there; what
fails with zstore's pipeline and not with zarr-python's own is printed, and makes the exit code 1. Tests that
ask how zarr-python works inside are named in EXPECTED, with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "parity"
OWN = "zarr.core.codec_pipeline.BatchedCodecPipeline"
OURS = "zstore.guests.zarr_python.ZstoreCodecPipeline"

EXPECTED = {
    "test_config_codec_pipeline_class": "asks whether zarr-python's own pipeline is the configured one",
    "test_encoded_subchunk_write_order[morton]": "asks where in a shard inner chunks lie: no document says",
    "test_sharding_partial_shard_read__index_chunk_slice_fails": "changes the inside of zarr-python's shards",
    "test_create_array_with_data_num_gets": "counts reads of shards that are replaced whole: zstore has none",
}

NEEDS = {
    "zarr": [
        "pytest",
        "pytest-asyncio",
        "pytest-benchmark",
        "pytest-codspeed",
        "pytest-cov",
        "pytest-xdist",
        "hypothesis",
        "numpydoc",
        "tomlkit",
        "moto[s3,server]",
        "s3fs",
        "obstore",
        "requests",
    ],
    "xarray": [
        "pytest",
        "pytest-asyncio",
        "dask",
        "zarr",
        "fsspec",
        "cftime",
        "netcdf4",
        "scipy",
        "hypothesis",
    ],
}
# Benchmarks, tests of the documentation, and searches for counter-examples that take an hour.
LEFT_OUT = [
    "tests/benchmarks",
    "tests/test_docs.py",
    "tests/test_properties.py",
    "tests/test_array_stateful.py",
]


def interpreter(project: str, version: str) -> str:
    """A Python that this version runs on."""
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if project != "zarr" or numbers < (3, 2) or sys.version_info >= (3, 12):
        return sys.executable
    named = os.environ.get("ZSTORE_PARITY_PYTHON")
    for found in (named, shutil.which("python3.13"), shutil.which("python3.12")):
        # What version managers put on PATH may stand for nothing.
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    raise SystemExit(
        f"{project} {version} needs Python 3.12 or newer, and none is on PATH (or ZSTORE_PARITY_PYTHON)"
    )


def call(*words: str | Path, **options: object) -> None:
    """Run a command that has to succeed."""
    subprocess.run([str(word) for word in words], check=True, **options)  # type: ignore[call-overload]


def prepare(project: str, version: str) -> tuple[Path, Path]:
    """The environment's Python and where the suite is; made once, zstore anew each time."""
    place = BUILD / f"{project}-{version}"
    python = place / "venv" / "bin" / "python"
    if not python.exists():
        call(interpreter(project, version), "-m", "venv", place / "venv")
        extras = "[remote,cli]" if project == "zarr" else ""
        call(python, "-m", "pip", "install", "-q", f"{project}{extras}=={version}", *NEEDS[project])
    call(python, "-m", "pip", "install", "-q", ROOT)
    if project != "zarr":
        return python, place
    source = place / f"{project}-{version}"
    if not source.exists():
        call(python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", project, "-d", place,
             f"{project}=={version}")  # fmt: skip
        with tarfile.open(place / f"{project}-{version}.tar.gz") as archive:
            archive.extractall(place, filter="data")
    return python, source


def run(python: Path, source: Path, project: str, pipeline: str) -> dict[str, str]:
    """The suite once: every test's outcome."""
    report = source.parent / f"{pipeline.rpartition('.')[2]}.xml"
    report.unlink(missing_ok=True)
    words = [python, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", f"--junitxml={report}"]
    if project == "zarr":
        words += ["tests", *(f"--ignore={name}" for name in LEFT_OUT)]
    else:
        # Its tests are installed without its settings, and those of the project around them are not meant.
        words += ["-c", os.devnull, "--pyargs", "xarray.tests.test_backends", "-k", "Zarr or zarr"]
    subprocess.run(
        [str(word) for word in words], cwd=source, env={**os.environ, "ZARR_CODEC_PIPELINE__PATH": pipeline}
    )
    if not report.exists():
        raise SystemExit(f"pytest made no report with {pipeline}")
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        bad = "failure" in kinds or "error" in kinds
        # Names of tests may hold addresses, which differ from run to run.
        name = re.sub(r"0x[0-9a-f]+", "0x", f"{case.get('classname')}::{case.get('name')}")
        outcomes[name] = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
    return outcomes


def compare(own: dict[str, str], ours: dict[str, str]) -> list[str]:
    """The tests that zstore's pipeline fails, or loses, and zarr-python's does not."""
    new = []
    for name, outcome in own.items():
        if outcome == "failed" or ours.get(name, "missing") in ("passed", outcome):
            continue
        test = name.rpartition("::")[2]
        if reason := EXPECTED.get(test, EXPECTED.get(test.partition("[")[0])):
            print(f"expected  {name}: {reason}")
        else:
            new.append(name)
    return new


def main(project: str, *versions: str) -> int:
    """Compare for each version; 1 when there is something new anywhere."""
    has_new = False
    for version in versions:
        python, source = prepare(project, version)
        own = run(python, source, project, OWN)
        ours = run(python, source, project, OURS)
        new = compare(own, ours)
        counts = [f"{list(found.values()).count('failed')} of {len(found)} failed" for found in (own, ours)]
        print(f"{project} {version}: own pipeline {counts[0]}, zstore's {counts[1]}, new failures {len(new)}")
        for name in new:
            print(f"NEW       {name}")
        has_new |= bool(new)
    return int(has_new)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in NEEDS:
        raise SystemExit(__doc__)
    raise SystemExit(main(*sys.argv[1:]))
