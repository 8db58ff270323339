"""The contracts find what is planted, and leave out what a class says that it cannot do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from zstore.storage.memory import MemoryStore
from zstore.testing.contract import Contract, needs
from zstore.testing.stores import StoreContract

from . import planted

WHERE = Path(planted.__file__)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Class and test → whether it failed, of what is planted and of what is sound."""
    place = tmp_path_factory.mktemp("planted")
    report = place / "report.xml"
    asked = [f"{WHERE}::{name}::{test}" for name, test in planted.PLANTED.items()]
    asked.append(f"{WHERE}::TestASoundCodec")
    # With temporaries of its own: where they are with others', it removes those of earlier runs as it ends.
    options = [
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        f"--basetemp={place / 'temporary'}",
        f"--junitxml={report}",
    ]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *asked],
        capture_output=True,
        timeout=300,
        check=False,
    )
    found: dict[tuple[str, str], bool] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        key = (case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0])
        found[key] = found.get(key, False) or case.find("failure") is not None
    return found


@pytest.mark.parametrize(("name", "test"), planted.PLANTED.items())
def test_what_is_planted_is_found(outcomes, name, test):
    assert outcomes[name, test]


def test_what_is_sound_passes(outcomes):
    sound = [failed for (name, _), failed in outcomes.items() if name == "TestASoundCodec"]
    assert len(sound) > 10
    assert not any(sound)


def test_what_does_not_apply_is_not_there():
    class Reader(StoreContract):
        can_write = False

        def make_store(self, place):
            return MemoryStore()

    class Writer(Reader):
        can_write = True

        def test_put_replaces(self):
            """The author's own."""

    assert Reader.test_put_replaces is None
    assert Reader.test_missing_is_none is not None
    assert Writer.test_delete_removes is StoreContract.test_delete_removes
    assert Writer.test_put_replaces is not StoreContract.test_put_replaces

    class Both(Contract):
        one = two = True

        @needs("one", "two")
        def test_both(self):
            """Needs both."""

    assert type("OnlyOne", (Both,), {"two": False}).test_both is None
