"""Scans NetCDF classic files: fixed variables are contiguous, record variables have a chunk per record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from zstore.errors import UnsupportedError, ZstoreError
from zstore.plugin.rasters import ClassicFile, group_attributes, plan_variable
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
            is_last = fetched >= min(origin.size, HEADER_SIZE)
            try:
                file = ClassicFile(copy.name)
            except ZstoreError as error:
                if is_last or isinstance(error, UnsupportedError):
                    raise type(error)(error.message, path=origin.address) from None
                continue  # the header ends behind what is fetched
            with file:
                if is_last or file.header_size <= fetched:
                    yield file
                    return


def scan_classic(file: Any, origin: Origin, draft: Draft, drop: frozenset[str] = frozenset()) -> None:
    """Add all variables of an open `ClassicFile`, but those to drop."""
    source = draft.add_source(origin)
    draft.add_group("", group_attributes(file, "/"))
    for name, variable in file.variables.items():
        if name in drop:
            continue
        plan = plan_variable(variable, f"/{name}", 3, "auto", None, None, as_stored=True)
        dtype = np.dtype(plan["dtype"])
        plan |= {"dtype": dtype.newbyteorder(">") if dtype.itemsize > 1 else dtype, "compressors": []}
        shape = variable.shape
        if not variable.is_record:
            if shape:
                plan["chunks"] = cut_contiguous(shape, dtype.itemsize)
            refer_contiguous(draft, name, draft.add_array(name, **plan), source, variable.begin)
            continue
        plan["chunks"] = (1, *shape[1:])
        array = draft.add_array(name, **plan)
        begins = variable.begin + np.arange(file.record_count, dtype=np.int64) * file.record_step
        draft.refer(name, array, source, begins, np.full(len(begins), variable.size, np.int64))
