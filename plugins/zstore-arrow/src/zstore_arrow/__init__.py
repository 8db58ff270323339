"""Arrays, groups and views as Arrow tables: `open_table`, a row for each cell and a column for each array."""

from __future__ import annotations

from zstore_arrow.table import ArrayTable, open_table

__all__ = ["ArrayTable", "open_table"]
