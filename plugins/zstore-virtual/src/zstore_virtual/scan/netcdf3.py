"""NetCDF classic files: fixed variables lie in one stretch, others in a stretch for each record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from zstore.errors import ZstoreError
from zstore.integrations.rasters.netcdf import plan_variable, stored_attributes
from zstore.integrations.rasters.netcdf_classic import ClassicFile, measure
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_stretch
from zstore_virtual.scan.origin import FIRST_SIZE, Origin

__all__ = ["open_classic", "scan_classic"]


# A header of another file's that has more bytes is not fetched.
HEADER_SIZE = 64 << 20


@contextmanager
def open_classic(origin: Origin) -> Iterator[ClassicFile]:
    """The file; of one that is not on this machine, its header in an empty file of the same length.

    Raises
        as `ClassicFile`.
    """
    if origin.ranges is None:
        with ClassicFile(origin.address) as file:
            yield file
        return
    with NamedTemporaryFile(suffix=".nc") as copy:
        fetched = 0
        while True:
            wanted = min(max(4 * fetched, FIRST_SIZE), origin.size)
            copy.write(origin.read(fetched, wanted - fetched))
            copy.truncate(origin.size)
            copy.flush()
            fetched = wanted
            is_all = fetched >= min(origin.size, HEADER_SIZE)
            try:
                if measure(copy.name).header_size <= fetched or is_all:
                    break
            except ZstoreError as error:
                if is_all:
                    raise type(error)(error.message, path=origin.address) from None
        try:
            file = ClassicFile(copy.name)
        except ZstoreError as error:
            raise type(error)(error.message, path=origin.address) from None
        with file:
            yield file


def scan_classic(file: Any, origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add what an open `ClassicFile` holds."""
    source = draft.add_source(origin)
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
