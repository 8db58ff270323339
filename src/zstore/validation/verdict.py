"""What validation comes to: findings, and a verdict for each requirements class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zstore.conventions.base import Finding, Severity
from zstore.validation.rule import CLASS_URI, SEVERITIES

__all__ = ["ClassVerdict", "Verdict"]

State = Literal["pass", "fail", "not applicable", "not checked"]


@dataclass(frozen=True)
class ClassVerdict:
    """One requirements class: "fail" where one of its rules has an error, or core has one."""

    name: str
    state: State

    @property
    def uri(self) -> str:
        """The class's identifier."""
        return CLASS_URI + self.name


@dataclass(frozen=True)
class Verdict:
    """What validation found at `place`, the worst first.

    rules    ids of the rules that were looked at
    classes  the eight requirements classes
    """

    place: str
    findings: tuple[Finding, ...]
    rules: tuple[str, ...]
    classes: tuple[ClassVerdict, ...]
    profile: str | None = None
    is_deep: bool = False

    def count(self, severity: Severity) -> int:
        """How many findings are that severe."""
        return sum(finding.severity == severity for finding in self.findings)

    def is_valid(self, *, strict: bool = False) -> bool:
        """Whether nothing is wrong; `strict` counts warnings too."""
        return not self.count("error") and not (strict and self.count("warning"))

    def by_rule(self) -> dict[str, Sequence[Finding]]:
        """The findings of each rule that has any, the worst first."""
        found: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda f: SEVERITIES.index(f.severity)):
            found.setdefault(finding.rule, []).append(finding)
        return {**found}
