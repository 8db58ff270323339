"""The kernel of reductions: add the items of one box to the cells they belong to, without the GIL."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset


cdef extern from "fold.h" nogil:
    enum:
        ZS_FOLD_DIMS, ZS_FOLD_COUNT, ZS_PLAIN, ZS_SKIP_VALUE, ZS_SKIP_NAN
        ZS_SUM, ZS_WIDE_SUM, ZS_NARROW_SUM, ZS_LEAST, ZS_GREATEST, ZS_COUNTS, ZS_MOMENTS, ZS_SPREAD
        ZS_FIRST_LEAST, ZS_FIRST_GREATEST
    ctypedef struct zs_fold_job:
        int dims
        int64_t size[66]
        int64_t cell_step[66]
        int64_t label_step[66]
        int64_t number_step[66]
        const char *items
        const int32_t *labels
        int64_t groups, group_step, first_number
        int skip
        uint64_t nodata
        char *a
        char *b
        uint32_t *count
    ctypedef void (*zs_folding)(const zs_fold_job *job) noexcept
    const int64_t zs_fold_item_size[10]
    const zs_folding zs_foldings[11][10]


FOLDS = {
    "sum": ZS_SUM,
    "wide_sum": ZS_WIDE_SUM,
    "narrow_sum": ZS_NARROW_SUM,
    "least": ZS_LEAST,
    "greatest": ZS_GREATEST,
    "counts": ZS_COUNTS,
    "moments": ZS_MOMENTS,
    "spread": ZS_SPREAD,
    "first_least": ZS_FIRST_LEAST,
    "first_greatest": ZS_FIRST_GREATEST,
}
SKIPS = {"none": ZS_PLAIN, "value": ZS_SKIP_VALUE, "nan": ZS_SKIP_NAN}


cdef int put_dims(zs_fold_job *job, tuple shape, tuple cells, tuple labels, tuple numbers) except -1:
    """Set the job's dimensions; those that can be traversed as one are merged."""
    cdef int d, at
    cdef int64_t size
    job.dims = 0
    for d in range(len(shape)):
        size = shape[d]
        if size == 1:
            continue
        at = job.dims - 1
        if (
            at >= 0
            and job.cell_step[at] == cells[d] * size
            and job.label_step[at] == labels[d] * size
            and job.number_step[at] == numbers[d] * size
        ):
            job.size[at] *= size
        else:
            at += 1
            job.dims += 1
            job.size[at] = size
        job.cell_step[at] = cells[d]
        job.label_step[at] = labels[d]
        job.number_step[at] = numbers[d]
    if job.dims == 0:
        job.dims = 1
        job.size[0] = 1
        # One item is a run of its own.
        job.cell_step[0] = job.label_step[0] = job.number_step[0] = 0
    return 0


def fold(
    items,
    tuple shape,
    a,
    b,
    count,
    labels,
    *,
    int method,
    int item_type,
    int skip,
    bytes nodata,
    tuple cell_steps,
    tuple label_steps,
    tuple number_steps,
    int64_t groups=1,
    int64_t group_step=0,
    int64_t first_number=0,
):
    """Fold `items`, a box of `shape`, into the cells in `a`, `b` and `count`, each contiguous.

    What the cells hold depends on the method (`fold.h`); `b` and `count` are None where it has no use for
    them, and `count` also where no item is left out. `labels` is None, or int32.
    """
    cdef Py_buffer buffers[5]
    cdef zs_fold_job job
    cdef zs_folding folding
    cdef int held = 0, d
    cdef int64_t wanted = 1, last = 0, last_label = 0, a_size
    if not 0 <= method < ZS_FOLD_COUNT or not 0 <= item_type < 10 or zs_foldings[method][item_type] == NULL:
        raise TypeError(f"no fold for method {method} and item type {item_type}")
    if skip not in (ZS_PLAIN, ZS_SKIP_VALUE, ZS_SKIP_NAN) or (skip == ZS_SKIP_NAN and item_type < 8):
        raise ValueError(f"skip is {skip}, which item type {item_type} does not take")
    if not len(shape) == len(cell_steps) == len(label_steps) == len(number_steps) < ZS_FOLD_DIMS:
        raise ValueError(f"there are {len(shape)} lengths and other numbers of steps, or too many")
    if len(nodata) > 8 or groups < 0 or group_step < 0:
        raise ValueError("nodata has more than 8 bytes, or groups are negative")
    for d in range(len(shape)):
        if shape[d] < 0 or cell_steps[d] < 0 or label_steps[d] < 0:
            raise ValueError(f"length or step {d} is negative")
        wanted *= shape[d]
        last += (shape[d] - 1) * cell_steps[d]
        last_label += (shape[d] - 1) * label_steps[d]
    if wanted == 0:
        return
    if labels is not None:
        last += (groups - 1) * group_step
    memset(&job, 0, sizeof(job))
    # What a cell takes in each of its places.
    a_size = zs_fold_item_size[item_type]
    if method == ZS_WIDE_SUM or (method == ZS_SUM and item_type in (6, 7)):
        a_size = 16
    elif method in (ZS_SUM, ZS_MOMENTS, ZS_SPREAD):
        a_size = 8
    elif method in (ZS_NARROW_SUM, ZS_COUNTS):
        a_size = 4
    needs_b = method in (ZS_MOMENTS, ZS_SPREAD, ZS_FIRST_LEAST, ZS_FIRST_GREATEST) or (
        method == ZS_SUM and item_type >= 8
    )
    has_extremes = method in (ZS_LEAST, ZS_GREATEST, ZS_FIRST_LEAST, ZS_FIRST_GREATEST)
    needs_count = method == ZS_SPREAD or (skip != ZS_PLAIN and not has_extremes)
    try:
        for item, flags in ((items, 0), (a, PyBUF_WRITABLE), (b, PyBUF_WRITABLE), (count, PyBUF_WRITABLE), (labels, 0)):
            if item is None:
                item = bytearray()
            PyObject_GetBuffer(item, &buffers[held], PyBUF_C_CONTIGUOUS | <int> flags)
            held += 1
        if buffers[0].len != wanted * zs_fold_item_size[item_type]:
            raise ValueError(f"items have {buffers[0].len} bytes, expected {wanted} items")
        if buffers[1].len < (last + 1) * a_size or (needs_b and buffers[2].len < (last + 1) * 8):
            raise ValueError("there are fewer cells than items go to")
        if needs_count and buffers[3].len < (last + 1) * 4:
            raise ValueError("there are fewer counts than items go to")
        if labels is not None and buffers[4].len < (last_label + 1) * 4:
            raise ValueError("there are fewer labels than items have")
        if a_size == 16 and <uintptr_t> buffers[1].buf % 16:
            raise ValueError("cells of 16 bytes lie at an odd place")
        job.items = <const char *> buffers[0].buf
        job.a = <char *> buffers[1].buf
        job.b = <char *> buffers[2].buf
        job.count = <uint32_t *> buffers[3].buf
        job.labels = <const int32_t *> buffers[4].buf if labels is not None else NULL
        job.groups = groups
        job.group_step = group_step
        job.first_number = first_number
        job.skip = skip
        memcpy(&job.nodata, <const char *> nodata, len(nodata))
        put_dims(&job, shape, cell_steps, label_steps, number_steps)
        folding = zs_foldings[method][item_type]
        with nogil:
            folding(&job)
    finally:
        for d in range(held):
            PyBuffer_Release(&buffers[d])
