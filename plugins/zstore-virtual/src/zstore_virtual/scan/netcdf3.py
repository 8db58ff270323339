"""Scans NetCDF classic files: fixed variables are contiguous, record variables have a chunk per record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from zstore.errors import ZstoreError
from zstore.plugin.rasters import ClassicFile, measure, plan_variable, stored_attributes
from zstore_virtual.scan.draft import Draft, cut_contiguous, refer_contiguous
from zstore_virtual.scan.origin import FIRST_SIZE, Origin

__all__ = ["open_classic", "scan_classic"]

# The most that is fetched of a remote file's header.
HEADER_SIZE = 64 << 20


@contextmanager
def open_classic(origin: Origin) -> Iterator[ClassicFile]:
    """The open file; for a remote one, a local file of the same length that has only its header.

    Raises
        what `ClassicFile` raises.
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
            if fetched >= min(origin.size, HEADER_SIZE):
                break
            with suppress(ZstoreError):  # the header ends behind what is fetched
                if measure(copy.name).header_size <= fetched:
                    break
        try:
            file = ClassicFile(copy.name)
        except ZstoreError as error:
            raise type(error)(error.message, path=origin.address) from None
        with file:
            yield file


def scan_classic(file: Any, origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add all variables of an open `ClassicFile`, but those to drop."""
    source = draft.add_source(origin)
    draft.add_group("", stored_attributes(file.attrs, "/"))
    layout = file.layout
    placed = zip(file.variables.items(), layout.places, strict=True)
    for (name, variable), (begin, size, is_record) in placed:
        if name in drop:
            continue
        plan = plan_variable(variable, f"/{name}", 3, "auto", None, None)
        dtype = np.dtype(plan["dtype"])
        plan |= {"dtype": dtype.newbyteorder(">") if dtype.itemsize > 1 else dtype, "compressors": []}
        shape = variable.shape
        if not is_record:
            if shape:
                plan["chunks"] = cut_contiguous(shape, dtype.itemsize)
            refer_contiguous(draft, name, draft.add_array(name, **plan), source, begin)
            continue
        plan["chunks"] = (1, *shape[1:])
        array = draft.add_array(name, **plan)
        records = np.arange(layout.record_count, dtype=np.int64)
        draft.refer(
            name, array, source, begin + records * layout.record_step, np.full(len(records), size, np.int64)
        )
