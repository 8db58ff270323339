"""Every rule: a store that keeps it, and one that breaks it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import zstore
from zstore.errors import ReadingWarning, ZstoreError
from zstore.geo.conventions.read import read_geo
from zstore.geo.conventions.write import RULED
from zstore.geo.validation.run import all_rules, validate
from zstore.geo.validation.view import CLASSES

from . import cases
from .cases import CASES, Case
from .stores import Documents

pytest.importorskip("pyproj", reason="CRSs are read with pyproj (extra 'geo')")
ROOT = Path(__file__).resolve().parents[2]


def name(case: Case) -> str:
    return f"{case.rule}-{CASES.index(case)}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_what_breaks_a_rule_is_found_with_its_id_and_place(case) -> None:
    store = case.make()
    if not case.is_wrong_before:
        before = validate(store, case.profile, deep=case.deep)
        assert [f for f in before.findings if f.rule == case.rule] == []
        assert before.count("error") == 0
    case.spoil(Documents(store))
    verdict = validate(store, case.profile, deep=case.deep)
    found = [f for f in verdict.findings if f.rule == case.rule and f.path == case.path]
    assert found, verdict.findings
    severity = case.severity or all_rules()[case.rule].severity_under(case.profile)
    assert found[0].severity == severity
    errors = {finding.rule for finding in verdict.findings if finding.severity == "error"}
    assert errors - {case.rule} <= case.also, verdict.findings


def test_whatever_reading_finds_is_a_finding() -> None:
    """One set of findings: the errors of `read_geo` are in the verdict, in its words."""
    read = 0
    # Opening trusts consolidated metadata, where validation reads every document.
    for case in [case for case in CASES if case.rule != "ZS-02"]:
        store = case.make()
        case.spoil(Documents(store))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReadingWarning)
                findings = read_geo(zstore.open(store, mode="r"))[1]
        except ZstoreError:
            # It cannot be opened or has no grid, for which there are cases too.
            continue
        verdict = {(f.rule, f.path, f.message) for f in validate(store).findings}
        # Of an array that nothing describes, reading notes what it assumes; that is no mistake.
        errors = {(f.rule, f.path, f.message) for f in findings if f.severity == "error"}
        assert errors <= verdict, name(case)
        read += bool(errors)
    assert read > 40


def test_axis_alone_is_wanted_by_documents_only() -> None:
    store = cases.flat()
    Documents(store).set("x", axis=None)
    for profile, severity in ((None, "note"), ("geozarr-draft", "warning")):
        assert [f.severity for f in validate(store, profile).findings if f.rule == "GZ-14"] == [severity]


def test_there_is_a_case_for_every_rule() -> None:
    assert {case.rule for case in CASES} == set(all_rules())


def test_every_rule_that_the_conventions_name_is_here() -> None:
    named = set()
    for path in (ROOT / "src/zstore/geo/conventions").rglob("*.py"):
        named |= set(re.findall(r'"((?:GZ|MS|OC|ZC)-\d\d|OME|BANDS)"', path.read_text()))
    assert len(named) > 30
    assert named <= set(all_rules())


def test_rows_are_whole() -> None:
    for id, rule in all_rules().items():
        assert rule.id == id and rule.requirements_class in CLASSES
        assert {profile.name for profile in rule.profiles} <= set(RULED)
        assert rule.says.endswith(".") and rule.fix and not rule.fix.endswith(".") and rule.clause
        assert rule.same_as is None or (rule.same_as in all_rules() and rule.profiles)


def test_the_documented_table_is_that_of_the_rules() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("write_rule_table", ROOT / "tools" / "write_rule_table.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert text.partition(tool.BEGIN)[2].partition(tool.END)[0] == tool.render()
