"""Validation: verdicts as text or JSON, and fixes planned, written and undone."""

from __future__ import annotations

from zstore.geo.validation.fixing.fix import backup_place, plan_fix, restore_backup, write_plan
from zstore.geo.validation.verdict import render_json, render_junit, render_text
from zstore.geo.validation.view import ALL_CLASSES

__all__ = [
    "ALL_CLASSES",
    "backup_place",
    "plan_fix",
    "render_json",
    "render_junit",
    "render_text",
    "restore_backup",
    "write_plan",
]
