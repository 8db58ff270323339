"""What to say of names that are not there."""

from __future__ import annotations


def missing_name(owner: str, name: str, hint: str | None) -> AttributeError:
    """The error for a name that `owner` lacks, with what to use in its place where that is known."""
    ending = f"; use {hint}" if hint and not name.startswith("_") else ""
    return AttributeError(f"{owner} has no attribute {name!r}{ending}")
