"""Rules: each is the facts of one requirement, and a check that finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from zstore.geo.conventions.base import Severity
from zstore.geo.conventions.write import Profile
from zstore.geo.validation.view import Hierarchy

RequirementsClass = Literal[
    "core", "time", "crs", "geotransform", "overviews", "stac", "projected", "bands", "proj", "spatial",
    "multiscales",
]  # fmt: skip
CLASSES: tuple[RequirementsClass, ...] = (
    "core", "time", "crs", "geotransform", "overviews", "stac", "projected", "bands",
)  # fmt: skip
# Those of GeoZarr 1.0's release candidate: one for each convention that it pins.
CANDIDATE_CLASSES: tuple[RequirementsClass, ...] = ("core", "proj", "spatial", "multiscales")
ALL_CLASSES = tuple(dict.fromkeys((*CLASSES, *CANDIDATE_CLASSES)))
CLASS_URI = "http://www.opengis.net/spec/geozarr/1.0/conf/"
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Found(NamedTuple):
    """One breach of a rule at a node; `severity` where it is milder than the rule's."""

    node: Any
    message: str
    expected: Any = None
    found: Any = None
    severity: Severity | None = None


Check = Callable[[Any], Iterator[Found]]
CheckT = TypeVar("CheckT", bound=Check)
# Every rule of the themes that are imported, by its id; `zstore.geo.validation.rules` imports them all.
RULES: dict[str, Rule] = {}


@dataclass(eq=False)
class Rule:
    """One requirement of one of the documents; as a decorator, it makes a function its check.

    severity   of a finding where a profile that has the rule is asked for: what the document's verb says
    clause     where it is written
    says       the requirement in one sentence
    fix        how to fix what breaks it
    general    the severity where no profile is asked for, where it is milder than that
    profiles   the profiles that have it; () is all of them
    same_as    the rule that says the same, which stands for both where no profile is asked for
    is_read    whether reading the georeference finds what breaks it, too
    is_deep    whether it needs more than metadata and coordinates
    is_general whether it applies where no profile is asked for
    each       the nodes of a hierarchy that the check gets one by one; "": it gets the hierarchy itself
    check      finds what breaks it; None where reading finds all of that
    """

    id: str
    severity: Severity
    requirements_class: RequirementsClass
    clause: str
    says: str
    fix: str
    general: Severity | None = None
    profiles: tuple[Profile, ...] = ()
    same_as: str | None = None
    is_read: bool = False
    is_deep: bool = False
    is_general: bool = True
    each: Literal["", "nodes", "arrays", "groups", "pyramids"] = ""
    check: Check | None = None

    def __post_init__(self) -> None:
        if self.id in RULES:
            raise ValueError(f"rule {self.id!r} is there twice; expected one check per rule")
        RULES[self.id] = self

    def __call__(self, check: CheckT) -> CheckT:
        self.check = check
        check.__doc__ = check.__doc__ or self.says
        return check

    def find(self, hierarchy: Hierarchy) -> Iterator[Found]:
        """All that the check finds in a hierarchy."""
        for subject in getattr(hierarchy, self.each) if self.each else (hierarchy,):
            yield from self.check(subject) if self.check is not None else ()

    def severity_under(self, profile: Profile | str | None) -> Severity:
        """The severity of this rule's findings under a profile, or under none."""
        return self.severity if profile is not None or self.general is None else self.general

    def is_in(self, profile: Profile | None) -> bool:
        """Whether the rule applies under a profile, or under none."""
        if profile is None:
            return self.same_as is None and self.is_general
        if profile.rules is not None:
            return self.id in profile.rules
        return not self.profiles or profile in self.profiles


def milder(one: Severity, other: Severity | None) -> Severity:
    """The less severe of the two."""
    return one if other is None else max(one, other, key=SEVERITIES.index)
