"""NetCDF classic files: fixed variables lie in one stretch, others in a stretch for each record."""

from __future__ import annotations

from typing import Any

import numpy as np

from zstore.integrations.rasters.netcdf import plan_variable, stored_attributes
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_stretch

__all__ = ["scan_classic"]


def scan_classic(file: Any, path: str, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add what an open `ClassicFile` holds."""
    source = draft.add_source(path)
    draft.add_group("", stored_attributes(file.attrs, "/"))
    layout = file.layout
    for (name, variable), place in zip(file.variables.items(), layout.places, strict=True):
        if name in drop:
            continue
        begin, size, is_record = place
        plan = plan_variable(variable, f"/{name}", 3, "auto", None, None)
        dtype = np.dtype(plan["dtype"])
        plan |= {"dtype": dtype.newbyteorder(">") if dtype.itemsize > 1 else dtype, "compressors": []}
        shape = variable.shape
        if not is_record:
            if shape:
                plan["chunks"] = cut_contiguous(shape, dtype.itemsize)
            refer_stretch(draft, name, draft.add_array(name, **plan), source, begin)
            continue
        plan["chunks"] = (1, *shape[1:])
        array = draft.add_array(name, **plan)
        records = np.arange(layout.record_count, dtype=np.int64)
        draft.refer(
            name, array, source, begin + records * layout.record_step, np.full(len(records), size, np.int64)
        )
