"""Down-sampling kernels: strided buffers in, strided buffers out, on threads of their own without the GIL."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset


cdef extern from "weighted.h" nogil:
    enum:
        ZS_MAX_OUTER, ZS_MAX_WEIGHTED
        ZS_NEAREST_METHOD, ZS_AVERAGE_METHOD, ZS_MODE_METHOD, ZS_SUM_METHOD
        ZS_RMS_METHOD, ZS_MAX_METHOD, ZS_MIN_METHOD, ZS_QUANTILE_METHOD
        ZS_FILTERED, ZS_MEAN, ZS_ROOT_MEAN, ZS_SUM
        ZS_PLAIN, ZS_F32, ZS_F64, ZS_OK
    ctypedef void *zs_kernel
    ctypedef struct zs_axis:
        int64_t source_size, size, factor, source_stride, stride
        const int64_t *first
        const int64_t *count
    ctypedef struct zs_cells:
        const char *source
        char *out
        int outer_count
        zs_axis *outer
        zs_axis lane
        int64_t item_size
        int source_swapped, out_swapped, is_half, skip, stray_nan
        uint64_t nodata, substitute
    ctypedef struct zs_window_job:
        zs_cells cells
        zs_axis x
        zs_kernel kernel
        int quarters
    zs_kernel zs_find_kernel(int method, int cell_type)
    int64_t zs_cell_size(int cell_type)
    int zs_run_windows(zs_window_job *job, int threads)
    ctypedef struct zs_conversion:
        int purpose, through_float, nearest_square
    ctypedef struct zs_weighted_axis:
        int64_t source_size, size, source_stride, stride
        const int64_t *first
        const int64_t *count
        const int64_t *reach
        const double *weights
        const double *total
        int64_t taps, alike_begin, alike_end, step
    ctypedef void *zs_load_cells
    ctypedef void *zs_store_cells
    ctypedef struct zs_weighted_job:
        zs_cells cells
        int axis_count, needs_runs
        zs_weighted_axis *axes
        zs_conversion how
        zs_load_cells load
        zs_store_cells store
    zs_load_cells *zs_loads
    zs_store_cells *zs_stores
    int zs_run_weighted(zs_weighted_job *job, int threads)


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
    """The address of a contiguous table. The caller keeps `array` alive and unchanged."""
    cdef Py_buffer buffer
    cdef const void *table
    PyObject_GetBuffer(array, &buffer, PyBUF_C_CONTIGUOUS)
    table = buffer.buf
    if buffer.len != length * item_size or buffer.itemsize != item_size:
        PyBuffer_Release(&buffer)
        raise ValueError(f"a table has {buffer.len} bytes, expected {length} items of {item_size}")
    PyBuffer_Release(&buffer)
    return table


cdef int find_windows(
    object starts, object counts, int64_t most, int64_t size, int64_t source_size, const int64_t **first,
    const int64_t **count,
) except -1:
    """Check what the drivers rely on: windows of up to `most` cells, inside the source and in ascending order."""
    cdef int64_t i, begin, cells, last = 0, end = 0
    first[0] = <const int64_t *> find_table(starts, size, 8)
    count[0] = <const int64_t *> find_table(counts, size, 8)
    for i in range(size):
        begin, cells = first[0][i], count[0][i]
        if begin < last or cells < 1 or cells > source_size or begin > source_size - cells:
            raise ValueError(f"window {i} begins at {begin} and has {cells} of {source_size} cells")
        if begin + cells < end:
            raise ValueError(f"window {i} ends before the one before it")
        if cells > most:
            raise ValueError(f"window {i} has {cells} cells, expected at most {most}")
        last, end = begin, begin + cells
    return 0


cdef class Sides:
    """The memory of the source and of the output, borrowed for the lifetime of this object."""

    cdef Py_buffer source, out

    def __cinit__(self, source, out):
        PyObject_GetBuffer(source, &self.source, PyBUF_STRIDES)
        PyObject_GetBuffer(out, &self.out, PyBUF_STRIDES | PyBUF_WRITABLE)
        if (
            self.source.ndim != self.out.ndim
            or self.source.ndim > ZS_MAX_OUTER
            or self.source.itemsize != self.out.itemsize
        ):
            raise ValueError("source and out differ in dimensions or item size")

    def __dealloc__(self):
        PyBuffer_Release(&self.source)
        PyBuffer_Release(&self.out)

    cdef int put(
        self, zs_cells *cells, int cell_type, int64_t size, bint is_half, bint source_swapped, bint out_swapped,
        int skip, bytes nodata, bytes substitute,
    ) except -1:
        """Set the drivers' pointers to cells of `size` bytes, and the value that marks cells to leave out."""
        if self.source.itemsize != (2 if is_half else size):
            raise ValueError(f"cells of {self.source.itemsize} bytes are not of cell type {cell_type}")
        if len(nodata) > 8 or len(substitute) > 8:
            raise ValueError("nodata and substitute are at most 8 bytes")
        if not ZS_PLAIN <= skip <= STRAY_NAN or (skip == STRAY_NAN and cell_type not in (ZS_F32, ZS_F64)):
            raise ValueError(f"no way to skip {skip} cells of cell type {cell_type}")
        cells.source = <const char *> self.source.buf
        cells.out = <char *> self.out.buf
        cells.item_size = size
        cells.is_half = is_half
        cells.source_swapped = source_swapped
        cells.out_swapped = out_swapped
        cells.stray_nan = skip == STRAY_NAN
        cells.skip = ZS_PLAIN if cells.stray_nan else skip
        memcpy(&cells.nodata, <const char *> nodata, len(nodata))
        memcpy(&cells.substitute, <const char *> substitute, len(substitute))
        return 0


cdef int put_axes(
    zs_window_job *job, const Py_buffer *source, const Py_buffer *out, object factors, bint any_order, object windows
) except -1:
    """Merge dimensions where possible, and sort them into outer dimensions, x and lanes."""
    cdef zs_axis axes[ZS_MAX_OUTER + 2]
    cdef zs_axis axis
    cdef zs_axis *last
    cdef int d, at, count = 0
    for d in range(source.ndim):
        axis.source_size = source.shape[d]
        axis.size = out.shape[d]
        axis.factor = min(<int64_t> factors[d], axis.source_size)
        axis.source_stride = source.strides[d]
        axis.stride = out.strides[d]
        axis.first = axis.count = NULL
        if windows is not None and windows[d] is not None:
            starts, counts = windows[d]
            find_windows(starts, counts, axis.factor, axis.size, axis.source_size, &axis.first, &axis.count)
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
    axis.source_stride = axis.stride = job.cells.item_size
    axis.first = axis.count = NULL
    job.cells.lane = axis
    job.x = axis
    if count > 1 and axes[count - 1].factor == 1 and axes[count - 1].size < LANE_LIMIT and axes[count - 2].factor > 1:
        count -= 1
        job.cells.lane = axes[count]
    if count > 0:
        count -= 1
        job.x = axes[count]
    for d in range(count):
        job.cells.outer[d] = axes[d]
    job.cells.outer_count = count
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

    `windows` gives (first cell, cell count) per output for dimensions whose windows do not simply follow each other
    every `factor` cells; the factor is the greatest count then.
    """
    cdef zs_window_job job
    cdef Sides sides = Sides(source, out)
    cdef int64_t size
    cdef int d, status
    if method == ZS_QUANTILE_METHOD and not 1 <= quarters <= 3:
        raise ValueError(f"quarters is {quarters}, expected 1, 2 or 3")
    if len(factors) != sides.source.ndim:
        raise ValueError(f"there are {len(factors)} factors for {sides.source.ndim} dimensions")
    for d in range(sides.source.ndim):
        if factors[d] < 1 or (
            (windows is None or windows[d] is None)
            and sides.out.shape[d] != -(-sides.source.shape[d] // factors[d])
        ):
            raise ValueError(f"out has the wrong size along dimension {d}")
        if sides.source.shape[d] == 0:
            return
    memset(&job, 0, sizeof(job))
    # nearest moves cells of any type
    size = zs_cell_size(cell_type) if method != ZS_NEAREST_METHOD else 4 if is_half else sides.source.itemsize
    sides.put(&job.cells, cell_type, size, is_half, source_swapped, out_swapped, skip, nodata, substitute)
    job.quarters = quarters
    job.kernel = zs_find_kernel(method, cell_type)
    if job.kernel == NULL:
        raise TypeError(f"no kernel for method {method} and cell type {cell_type}")
    put_axes(&job, &sides.source, &sides.out, factors, any_order, windows)
    with nogil:
        status = zs_run_windows(&job, threads)
    if status != ZS_OK:
        raise MemoryError("no memory for the rows of a window")


cdef int put_weights(zs_weighted_job *job, const Py_buffer *source, const Py_buffer *out, object tables) except -1:
    """Sort the dimensions into resampled ones, lanes, and those that are only iterated over."""
    cdef zs_weighted_axis *axis
    cdef zs_axis plain
    cdef int d
    cdef int64_t size
    plain.source_size = plain.size = plain.factor = 1
    plain.source_stride = plain.stride = job.cells.item_size
    plain.first = plain.count = NULL
    job.cells.lane = plain
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
            if job.cells.lane.size == 1 or abs(plain.source_stride) < abs(job.cells.lane.source_stride):
                plain, job.cells.lane = job.cells.lane, plain
            if plain.size > 1:
                job.cells.outer[job.cells.outer_count] = plain
                job.cells.outer_count += 1
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
        find_windows(first, count, taps, size, axis.source_size, &axis.first, &axis.count)
        axis.reach = <const int64_t *> find_table(reach, size, 8)
        axis.weights = <const double *> find_table(weights, size * axis.taps, 8)
        axis.total = <const double *> find_table(total, size, 8)
        axis.alike_begin = alike_begin
        axis.alike_end = alike_end
        axis.step = step
        if not 0 <= axis.alike_begin <= axis.alike_end <= size or axis.step < 1:
            raise ValueError("outputs of equal weights lie outside the output")
        for i in range(axis.alike_begin + 1, axis.alike_end):
            if axis.first[i] != axis.first[i - 1] + axis.step or axis.count[i] != axis.count[i - 1]:
                raise ValueError(f"window {i} is not like the one before it")
    if job.axis_count and abs(job.cells.lane.source_stride) > abs(job.axes[job.axis_count - 1].source_stride):
        job.cells.outer[job.cells.outer_count] = job.cells.lane
        job.cells.outer_count += 1
        plain.size = plain.source_size = 1
        plain.source_stride = plain.stride = job.cells.item_size
        job.cells.lane = plain
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

    `tables` gives, per resampled dimension, (first cell, cell count, cells requested, weights, their sum, number of
    weights per output, first and last output of equal weights, cells between those); None elsewhere.
    """
    cdef zs_weighted_job job
    cdef Sides sides = Sides(source, out)
    cdef int d, status
    if not 0 <= purpose <= ZS_SUM or zs_cell_size(cell_type) == 0:
        raise ValueError(f"no purpose {purpose} or no cell type {cell_type}")
    if len(tables) != sides.source.ndim:
        raise ValueError(f"there are {len(tables)} tables for {sides.source.ndim} dimensions")
    for d in range(sides.source.ndim):
        if sides.out.shape[d] == 0:
            return
    memset(&job, 0, sizeof(job))
    sides.put(
        &job.cells, cell_type, zs_cell_size(cell_type), is_half, source_swapped, out_swapped, skip, nodata, substitute
    )
    job.needs_runs = needs_runs
    job.how.purpose = purpose
    job.how.through_float = through_float
    job.how.nearest_square = nearest_square
    job.load = zs_loads[cell_type]
    job.store = zs_stores[cell_type]
    put_weights(&job, &sides.source, &sides.out, tables)
    if job.axis_count == 0:
        raise ValueError("no dimension has weights")
    with nogil:
        status = zs_run_weighted(&job, threads)
    if status != ZS_OK:
        raise MemoryError("no memory for the tiles of a weighted window")
