"""Down-sampling kernels: strided buffers in, strided buffers out, on threads of their own without the GIL."""

from cpython.buffer cimport (
    Py_buffer,
    PyBUF_C_CONTIGUOUS,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset


METHODS = {
    "nearest": ZS_NEAREST_METHOD,
    "average": ZS_AVERAGE_METHOD,
    "mode": ZS_MODE_METHOD,
    "sum": ZS_SUM_METHOD,
    "rms": ZS_RMS_METHOD,
    "max": ZS_MAX_METHOD,
    "min": ZS_MIN_METHOD,
    "quantile": ZS_QUANTILE_METHOD,
}

PURPOSES = {"filter": ZS_FILTERED, "mean": ZS_MEAN, "root mean": ZS_ROOT_MEAN, "sum": ZS_SUM}

cdef enum:
    LANE_LIMIT = 32  # a longer innermost dimension fills vectors by itself
    STRAY_NAN = 3  # no nodata, but NaN is left out: beside the kernels' ways to skip


cdef const void *find_table(object array, int64_t length, int64_t item_size) except NULL:
    """Where a contiguous table lies. The caller keeps `array` alive and as it is."""
    cdef Py_buffer buffer
    cdef const void *table
    PyObject_GetBuffer(array, &buffer, PyBUF_C_CONTIGUOUS)
    table = buffer.buf
    if buffer.len != length * item_size or buffer.itemsize != item_size:
        PyBuffer_Release(&buffer)
        raise ValueError(f"a table has {buffer.len} bytes, expected {length} items of {item_size}")
    PyBuffer_Release(&buffer)
    return table


cdef int check_windows(const int64_t *first, const int64_t *count, int64_t size, int64_t source_size) except -1:
    """What the drivers rely on: windows with cells, inside the source, that only go forward."""
    cdef int64_t i, begin = 0, end = 0
    for i in range(size):
        if first[i] < begin or count[i] < 1 or count[i] > source_size or first[i] > source_size - count[i]:
            raise ValueError(f"window {i} begins at {first[i]} and has {count[i]} of {source_size} cells")
        if first[i] + count[i] < end:
            raise ValueError(f"window {i} ends before the one before it")
        begin = first[i]
        end = begin + count[i]
    return 0


cdef int check_skip(int skip, int cell_type, bytes nodata, bytes substitute) except -1:
    if len(nodata) > 8 or len(substitute) > 8:
        raise ValueError("nodata and substitute are at most 8 bytes")
    if not ZS_PLAIN <= skip <= STRAY_NAN or (skip == STRAY_NAN and cell_type not in (ZS_F32, ZS_F64)):
        raise ValueError(f"no way to skip {skip} cells of cell type {cell_type}")
    return 0


cdef int put_axes(
    zs_window_job *job, const Py_buffer *source, const Py_buffer *out, object factors, bint any_order, object windows
) except -1:
    """Merge what can be merged and tell outer dimensions, x and lanes apart."""
    cdef zs_axis axes[ZS_MAX_OUTER + 2]
    cdef zs_axis axis
    cdef zs_axis *last
    cdef int d, at, count = 0
    cdef int64_t i
    for d in range(source.ndim):
        axis.source_size = source.shape[d]
        axis.size = out.shape[d]
        axis.factor = min(<int64_t> factors[d], axis.source_size)
        axis.source_stride = source.strides[d]
        axis.stride = out.strides[d]
        axis.first = axis.count = NULL
        if windows is not None and windows[d] is not None:
            axis.first = <const int64_t *> find_table(windows[d][0], axis.size, 8)
            axis.count = <const int64_t *> find_table(windows[d][1], axis.size, 8)
            check_windows(axis.first, axis.count, axis.size, axis.source_size)
            for i in range(axis.size):
                if axis.count[i] > axis.factor:
                    raise ValueError(f"window {i} has {axis.count[i]} cells, expected at most {axis.factor}")
        if axis.source_size == 1:
            continue
        at = count
        while any_order and at > 0 and abs(axes[at - 1].source_stride) < abs(axis.source_stride):
            axes[at] = axes[at - 1]
            at -= 1
        axes[at] = axis
        count += 1
    at = 0
    for d in range(count):
        axis = axes[d]
        last = &axes[at - 1 if at > 0 else 0]
        if (
            at > 0
            and axis.factor == 1
            and last.factor == 1
            and last.source_stride == axis.source_stride * axis.source_size
            and last.stride == axis.stride * axis.size
        ):
            axis.source_size *= last.source_size
            axis.size *= last.size
            at -= 1
        axes[at] = axis
        at += 1
    count = at
    axis.source_size = axis.size = axis.factor = 1
    axis.source_stride = axis.stride = job.item_size
    axis.first = axis.count = NULL
    job.lane = axis
    job.x = axis
    if count > 1 and axes[count - 1].factor == 1 and axes[count - 1].size < LANE_LIMIT and axes[count - 2].factor > 1:
        count -= 1
        job.lane = axes[count]
    if count > 0:
        count -= 1
        job.x = axes[count]
    for d in range(count):
        job.outer[d] = axes[d]
    job.outer_count = count
    return 0


def downsample(
    source,
    out,
    factors,
    *,
    int method,
    int cell_type,
    bint is_half=False,
    bint source_swapped=False,
    bint out_swapped=False,
    int skip=0,
    int quarters=0,
    bytes nodata=b"",
    bytes substitute=b"",
    bint any_order=False,
    object windows=None,
    int threads=1,
):
    """Fill `out` with the windows of `source`; the caller has checked shapes, types and factors.

    `windows` gives, for dimensions where a window is not `factor` cells beside the last, (first cell, cell
    count) per output; the factor is the greatest count then.
    """
    cdef zs_window_job job
    cdef Py_buffer source_buffer, out_buffer
    cdef int status
    if method == ZS_QUANTILE_METHOD and not 1 <= quarters <= 3:
        raise ValueError(f"quarters is {quarters}, expected 1, 2 or 3")
    check_skip(skip, cell_type, nodata, substitute)
    memset(&job, 0, sizeof(job))
    PyObject_GetBuffer(source, &source_buffer, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(out, &out_buffer, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            if (
                source_buffer.ndim != out_buffer.ndim
                or source_buffer.ndim != len(factors)
                or source_buffer.ndim > ZS_MAX_OUTER
                or source_buffer.itemsize != out_buffer.itemsize
            ):
                raise ValueError("source, out and factors differ in dimensions or item size")
            for d in range(source_buffer.ndim):
                if factors[d] < 1 or (
                    (windows is None or windows[d] is None)
                    and out_buffer.shape[d] != -(-source_buffer.shape[d] // factors[d])
                ):
                    raise ValueError(f"out has the wrong size along dimension {d}")
                if source_buffer.shape[d] == 0:
                    return
            job.source = <const char *> source_buffer.buf
            job.out = <char *> out_buffer.buf
            if is_half and source_buffer.itemsize != 2:
                raise ValueError(f"half floats have 2 bytes, not {source_buffer.itemsize}")
            job.is_half = is_half
            job.stored_size = source_buffer.itemsize
            job.item_size = 4 if is_half else source_buffer.itemsize
            job.source_swapped = source_swapped
            job.out_swapped = out_swapped
            job.stray_nan = skip == STRAY_NAN
            job.block.skip = ZS_PLAIN if job.stray_nan else skip
            job.block.quarters = quarters
            memcpy(&job.block.nodata, <const char *> nodata, len(nodata))
            memcpy(&job.block.substitute, <const char *> substitute, len(substitute))
            job.block.item_size = job.item_size
            if method != ZS_NEAREST_METHOD and job.item_size != zs_cell_size(cell_type):
                raise ValueError(f"cells of {source_buffer.itemsize} bytes are not of cell type {cell_type}")
            job.kernel = zs_find_kernel(method, cell_type)
            if job.kernel == NULL:
                raise TypeError(f"no kernel for method {method} and cell type {cell_type}")
            put_axes(&job, &source_buffer, &out_buffer, factors, any_order, windows)
            with nogil:
                status = zs_run_windows(&job, threads)
            if status != ZS_OK:
                raise MemoryError("no memory for the rows of a window")
        finally:
            PyBuffer_Release(&out_buffer)
    finally:
        PyBuffer_Release(&source_buffer)


cdef int put_weights(zs_weighted_job *job, const Py_buffer *source, const Py_buffer *out, object tables) except -1:
    """Tell resampled dimensions, lanes and what is only walked through apart."""
    cdef zs_weighted_axis *axis
    cdef zs_axis plain
    cdef int d
    cdef int64_t size
    plain.source_size = plain.size = plain.factor = 1
    plain.source_stride = plain.stride = job.item_size
    plain.first = plain.count = NULL
    job.lane = plain
    for d in range(source.ndim):
        size = out.shape[d]
        if tables[d] is None:
            if source.shape[d] != size:
                raise ValueError(f"out has the wrong size along dimension {d}")
            if size == 1:
                continue
            plain.size = plain.source_size = size
            plain.source_stride = source.strides[d]
            plain.stride = out.strides[d]
            # the lane is the dimension whose cells lie closest; the others are walked through
            if job.lane.size == 1 or abs(plain.source_stride) < abs(job.lane.source_stride):
                plain, job.lane = job.lane, plain
            if plain.size > 1:
                job.outer[job.outer_count] = plain
                job.outer_count += 1
            continue
        if job.axis_count == ZS_MAX_WEIGHTED:
            raise ValueError(f"more than {ZS_MAX_WEIGHTED} dimensions with weights")
        axis = &job.axes[job.axis_count]
        job.axis_count += 1
        first, count, reach, weights, total, taps, alike_begin, alike_end, step = tables[d]
        axis.source_size = source.shape[d]
        axis.size = size
        axis.source_stride = source.strides[d]
        axis.stride = out.strides[d]
        axis.taps = taps
        axis.first = <const int64_t *> find_table(first, size, 8)
        axis.count = <const int64_t *> find_table(count, size, 8)
        axis.reach = <const int64_t *> find_table(reach, size, 8)
        axis.weights = <const double *> find_table(weights, size * axis.taps, 8)
        axis.total = <const double *> find_table(total, size, 8)
        axis.alike_begin = alike_begin
        axis.alike_end = alike_end
        axis.step = step
        check_windows(axis.first, axis.count, size, axis.source_size)
        for i in range(size):
            if axis.count[i] > axis.taps:
                raise ValueError(f"window {i} has {axis.count[i]} cells and {axis.taps} weights")
        if not 0 <= axis.alike_begin <= axis.alike_end <= size or axis.step < 1:
            raise ValueError("outputs of equal weights lie outside the output")
        for i in range(axis.alike_begin + 1, axis.alike_end):
            if axis.first[i] != axis.first[i - 1] + axis.step or axis.count[i] != axis.count[i - 1]:
                raise ValueError(f"window {i} is not like the one before it")
    if job.axis_count and abs(job.lane.source_stride) > abs(job.axes[job.axis_count - 1].source_stride):
        job.outer[job.outer_count] = job.lane
        job.outer_count += 1
        plain.size = plain.source_size = 1
        plain.source_stride = plain.stride = job.item_size
        job.lane = plain
    return 0


def weigh(
    source,
    out,
    tables,
    *,
    int purpose,
    int cell_type,
    bint through_float=False,
    bint nearest_square=False,
    bint needs_runs=False,
    bint is_half=False,
    bint source_swapped=False,
    bint out_swapped=False,
    int skip=0,
    bytes nodata=b"",
    bytes substitute=b"",
    int threads=1,
):
    """Fill `out` with weighted windows of `source`; the caller has checked shapes and types.

    `tables` gives, per resampled dimension, (first cell, cell count, cells asked for, weights, their sum, how
    many weights per output, first and last output of equal weights, cells between those); None elsewhere.
    """
    cdef zs_weighted_job job
    cdef Py_buffer source_buffer, out_buffer
    cdef int status
    if not 0 <= purpose <= ZS_SUM or zs_cell_size(cell_type) == 0:
        raise ValueError(f"no purpose {purpose} or no cell type {cell_type}")
    check_skip(skip, cell_type, nodata, substitute)
    memset(&job, 0, sizeof(job))
    PyObject_GetBuffer(source, &source_buffer, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(out, &out_buffer, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            if (
                source_buffer.ndim != out_buffer.ndim
                or source_buffer.ndim != len(tables)
                or source_buffer.ndim > ZS_MAX_OUTER
                or source_buffer.itemsize != out_buffer.itemsize
            ):
                raise ValueError("source, out and tables differ in dimensions or item size")
            for d in range(source_buffer.ndim):
                if out_buffer.shape[d] == 0:
                    return
            job.source = <const char *> source_buffer.buf
            job.out = <char *> out_buffer.buf
            job.is_half = is_half
            job.stored_size = source_buffer.itemsize
            job.item_size = zs_cell_size(cell_type)
            if job.stored_size != (2 if is_half else job.item_size):
                raise ValueError(f"cells of {source_buffer.itemsize} bytes are not of cell type {cell_type}")
            job.source_swapped = source_swapped
            job.out_swapped = out_swapped
            job.needs_runs = needs_runs
            job.how.purpose = purpose
            job.how.through_float = through_float
            job.how.nearest_square = nearest_square
            job.stray_nan = skip == STRAY_NAN
            job.how.skip = ZS_PLAIN if job.stray_nan else skip
            memcpy(&job.how.nodata, <const char *> nodata, len(nodata))
            memcpy(&job.how.substitute, <const char *> substitute, len(substitute))
            job.load = zs_loads[cell_type]
            job.store = zs_stores[cell_type]
            put_weights(&job, &source_buffer, &out_buffer, tables)
            if job.axis_count == 0:
                raise ValueError("no dimension has weights")
            with nogil:
                status = zs_run_weighted(&job, threads)
            if status != ZS_OK:
                raise MemoryError("no memory for the tiles of a weighted window")
        finally:
            PyBuffer_Release(&out_buffer)
    finally:
        PyBuffer_Release(&source_buffer)
