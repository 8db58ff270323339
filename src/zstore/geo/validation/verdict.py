"""The result of a validation, findings and a verdict for each requirements class, as text, JSON and JUnit."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zstore.errors import clean
from zstore.geo.conventions.base import Finding, Severity
from zstore.geo.validation.view import CLASS_URI, RULES, SEVERITIES
from zstore.model.document import plain

State = Literal["pass", "fail", "not applicable", "not checked"]


@dataclass(frozen=True)
class ClassVerdict:
    """One requirements class: "fail" if one of its rules has an error, or core has one."""

    name: str
    state: State

    @property
    def uri(self) -> str:
        """The class's identifier."""
        return CLASS_URI + self.name


@dataclass(frozen=True)
class Verdict:
    """The result of a validation at `place`: its findings, the worst first.

    rules    ids of the rules that were checked
    classes  the state of each requirements class
    """

    place: str
    findings: tuple[Finding, ...]
    rules: tuple[str, ...] = field(repr=False)
    classes: tuple[ClassVerdict, ...] = field(repr=False)
    profile: str | None = None
    is_deep: bool = False

    def __str__(self) -> str:
        return self.as_text().rstrip()

    def count(self, severity: Severity) -> int:
        """The number of findings of that severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def is_valid(self, *, strict: bool = False) -> bool:
        """Whether there is no error; with `strict`, no warning either."""
        return not self.count("error") and not (strict and self.count("warning"))

    def by_rule(self) -> dict[str, Sequence[Finding]]:
        """The findings of each rule that has any, the worst first."""
        found: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda f: SEVERITIES.index(f.severity)):
            found.setdefault(finding.rule, []).append(finding)
        return {**found}

    def as_text(self, *, most: int | None = 10) -> str:
        """The verdict as text: each finding with its node, the expected value and the fix, the worst first.

        `most` findings of a rule are shown; None shows all.
        """
        return "\n".join(_lines(self, most)) + "\n"

    def as_json(self) -> str:
        """The verdict as a JSON object: place, profile, counts, classes, findings."""
        document = {
            "place": self.place,
            "profile": self.profile,
            "deep": self.is_deep,
            "valid": self.is_valid(),
            "counts": {severity: self.count(severity) for severity in ("error", "warning", "note")},
            "classes": [{"name": c.name, "uri": c.uri, "state": c.state} for c in self.classes],
            "rules": list(self.rules),
            "findings": [
                {
                    "rule": finding.rule,
                    "severity": finding.severity,
                    "class": RULES[finding.rule].requirements_class if finding.rule in RULES else None,
                    "path": finding.path,
                    "message": finding.message,
                    "expected": plain(finding.expected),
                    "found": plain(finding.found),
                    "witnesses": [
                        {"source": source, "value": plain(value)} for source, value in finding.witnesses
                    ],
                    "mend": None if finding.mend is None else finding.mend.message,
                    "fix": RULES[finding.rule].fix if finding.rule in RULES else None,
                }
                for finding in self.findings
            ],
        }
        # Escapes carry whatever characters a store's names have.
        return json.dumps(document, indent=2, allow_nan=False) + "\n"

    def as_junit(self, *, strict: bool = False) -> str:
        """The verdict as JUnit's XML: a suite per requirements class, a case per rule."""
        found = self.by_rule()
        root = ElementTree.Element("testsuites", name=_xml(self.place))
        suites: dict[str, ElementTree.Element] = {}
        ids = [*self.rules, *(id for id in found if id not in self.rules)]
        failures: dict[str, int] = {}
        for id in ids:
            rule = RULES.get(id)
            name: str = rule.requirements_class if rule is not None else "core"
            suite = suites.setdefault(name, ElementTree.Element("testsuite", name=name))
            says = f" {rule.says}" if rule is not None else ""
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"zstore.{name}", name=_xml(f"{id}{says}")
            )
            failing = ("error", "warning") if strict else ("error",)
            bad = [finding for finding in found.get(id, ()) if finding.severity in failing]
            if bad:
                failures[name] = failures.get(name, 0) + 1
                message = f"{len(bad)} of severity {bad[0].severity}"
                failure = ElementTree.SubElement(case, "failure", type=bad[0].severity, message=message)
                failure.text = _xml("\n".join(f"/{f.path}: {f.message}{_expected(f)}" for f in bad))
            others = [finding for finding in found.get(id, ()) if finding not in bad]
            if others:
                lines = "\n".join(f"{f.severity} /{f.path}: {f.message}" for f in others)
                ElementTree.SubElement(case, "system-out").text = _xml(lines)
        for name, suite in suites.items():
            suite.set("tests", str(len(suite)))
            suite.set("failures", str(failures.get(name, 0)))
            root.append(suite)
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


LONGEST = 160
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _lines(verdict: Verdict, most: int | None) -> Iterator[str]:
    for id, findings in verdict.by_rule().items():
        rule = RULES.get(id)
        says = f"  {rule.says} [{rule.clause}]" if rule is not None else ""
        yield f"{findings[0].severity} {id}{says}"
        shown = findings if most is None else findings[:most]
        for finding in shown:
            note = "" if finding.severity == findings[0].severity else f" ({finding.severity})"
            yield f"    /{clean(finding.path)}: {clean(finding.message)}{_expected(finding)}{note}"
        if len(shown) < len(findings):
            yield f"    ... and {len(findings) - len(shown)} more"
        if rule is not None:
            yield f"    fix: {rule.fix}"
        yield ""
    states = ", ".join(f"{verdict_class.name} {verdict_class.state}" for verdict_class in verdict.classes)
    yield f"classes: {states}"
    counts = [_count(verdict.count(severity), severity) for severity in ("error", "warning", "note")]
    profile = f"profile {verdict.profile}" if verdict.profile else "no profile"
    depth = "values too" if verdict.is_deep else "metadata and coordinates"
    yield f"{clean(verdict.place)}: {', '.join(counts)} ({len(verdict.rules)} rules, {profile}, {depth})"


def _expected(finding: Finding) -> str:
    if finding.expected is None or "expected" in finding.message:
        return ""
    text = finding.expected if isinstance(finding.expected, str) else json.dumps(plain(finding.expected))
    return f"; expected {clean(text)}" if len(text) <= LONGEST else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
