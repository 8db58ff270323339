"""Commands: options that all of them have, and how results, sizes and progress are shown."""

from __future__ import annotations

from zstore.base.sizes import format_lengths, format_size
from zstore.cli.options import (
    WORDS,
    how_options,
    json_option,
    run_job,
    say,
    selected,
    selection_options,
    show_progress,
    show_table,
    storage_options,
)

__all__ = [
    "WORDS",
    "format_lengths",
    "format_size",
    "how_options",
    "json_option",
    "run_job",
    "say",
    "selected",
    "selection_options",
    "show_progress",
    "show_table",
    "storage_options",
]
