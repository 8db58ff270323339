"""`zstore.fix`: what can be fixed in a hierarchy without touching its data, planned and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zstore.errors import MetadataError
from zstore.geo.conventions.base import RESAMPLING_METHODS
from zstore.geo.conventions.crs import Crs
from zstore.geo.validation.fixing.documents import (
    fix_dimensions,
    fix_documents,
    fix_fill_values,
    fix_methods,
    fix_shared,
    fix_words,
)
from zstore.geo.validation.fixing.georeference import fix_crs, fix_levels, fix_places, fix_time
from zstore.geo.validation.fixing.plan import Plan, make_plan
from zstore.geo.validation.fixing.write import backup_place, write_plan
from zstore.geo.validation.run import Target, open_hierarchy
from zstore.jobs.record import resumable
from zstore.storage.base import Store
from zstore.storage.url import open_store

# In this order: what can be read first, then the CRS, then places, then the pyramid that is made of them.
FIXES = (
    fix_words, fix_documents, fix_dimensions, fix_fill_values, fix_methods, fix_crs, fix_places, fix_time,
    fix_levels, fix_shared,
)  # fmt: skip


def plan_fix(
    target: Target,
    profile: str | None = None,
    *,
    crs: Any = None,
    method: str | None = None,
    fill_value: int | float | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a hierarchy's fixes, which touch no chunk of data; nothing is written.

    profile  convert `multiscales` to what this document wants, too
    crs      the CRS to write everywhere, where several are stated
    method   how the levels were made, where nothing says it
    fill_value  what Zarr v3 arrays without a fill value, as GDAL writes them, are to hold where no chunk is

    Raises
        MetadataError: no such profile, CRS or method.
        NotFoundError, StoreError, UnsupportedError: as `zstore.validate`.
    """
    if method is not None and method not in RESAMPLING_METHODS:
        raise MetadataError(f"method is {method!r}; expected one of {', '.join(RESAMPLING_METHODS)}")
    chosen = None if crs is None else Crs.from_user(crs)
    hierarchy = open_hierarchy(target, profile, path=path, storage_options=storage_options)
    return make_plan(hierarchy, FIXES, crs=chosen, method=method, fill_value=fill_value)


@resumable
def fix(
    target: str | Path | Store,
    profile: str | None = None,
    *,
    crs: Any = None,
    method: str | None = None,
    fill_value: int | float | None = None,
    backup: str | Path | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Plan, Path | None]:
    """Fix a hierarchy; gives (the plan that was carried out, the backup of the replaced documents).

    The backup is None where there is nothing to fix.

    `backup` is a new directory; by default one beside the store's, where that is a directory.

    Raises
        StoreError: no place for the backup, or the store failed.
    """
    plan = plan_fix(
        target,
        profile,
        crs=crs,
        method=method,
        fill_value=fill_value,
        path=path,
        storage_options=storage_options,
    )
    if not plan.changes and not plan.is_left:
        return plan, None
    store = open_store(target, storage_options=storage_options)
    place = backup_place(store) if backup is None else Path(backup)
    write_plan(plan, store, place)
    return plan, place
