"""Down-sampling kernels: strided buffers in, strided buffers out, on threads of their own without the GIL."""

from cpython.buffer cimport PyBUF_STRIDES, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset


cdef extern from "resample_run.h" nogil:
    enum:
        ZR_MAX_OUTER
        ZR_NEAREST_METHOD
        ZR_AVERAGE_METHOD
        ZR_MODE_METHOD
        ZR_SUM_METHOD
        ZR_RMS_METHOD
        ZR_MAX_METHOD
        ZR_MIN_METHOD
        ZR_QUANTILE_METHOD
        ZR_OK
    ctypedef void (*zr_kernel)(const void *block, void *out)
    ctypedef union zr_value:
        uint64_t bits
    ctypedef struct zr_block:
        int skip
        int quarters
        zr_value nodata
        zr_value substitute
        int64_t item_size
    ctypedef struct zr_axis:
        int64_t source_size
        int64_t size
        int64_t factor
        int64_t source_stride
        int64_t stride
    ctypedef struct zr_job:
        const char *source
        char *out
        int outer_count
        zr_axis *outer
        zr_axis x
        zr_axis lane
        int64_t stored_size
        int64_t item_size
        int source_swapped
        int out_swapped
        int is_half
        zr_kernel kernel
        zr_block block
    zr_kernel zr_find_kernel(int method, int cell_type)
    int64_t zr_cell_size(int cell_type)
    int zr_run(zr_job *job, int threads)

METHODS = {
    "nearest": ZR_NEAREST_METHOD,
    "average": ZR_AVERAGE_METHOD,
    "mode": ZR_MODE_METHOD,
    "sum": ZR_SUM_METHOD,
    "rms": ZR_RMS_METHOD,
    "max": ZR_MAX_METHOD,
    "min": ZR_MIN_METHOD,
    "quantile": ZR_QUANTILE_METHOD,
}

cdef enum:
    LANE_LIMIT = 32  # a longer innermost dimension fills vectors by itself


cdef void put_axes(zr_job *job, const Py_buffer *source, const Py_buffer *out, object factors, bint any_order):
    """Merge what can be merged and tell outer dimensions, x and lanes apart."""
    cdef zr_axis axes[ZR_MAX_OUTER + 2]
    cdef zr_axis axis
    cdef zr_axis *last
    cdef int d, at, count = 0
    for d in range(source.ndim):
        axis.source_size = source.shape[d]
        axis.size = out.shape[d]
        axis.factor = min(<int64_t> factors[d], axis.source_size)
        axis.source_stride = source.strides[d]
        axis.stride = out.strides[d]
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
    int threads=1,
):
    """Fill `out` with the windows of `source`; the caller has checked shapes, types and factors."""
    cdef zr_job job
    cdef Py_buffer source_buffer, out_buffer
    cdef int status
    if method == ZR_QUANTILE_METHOD and not 1 <= quarters <= 3:
        raise ValueError(f"quarters is {quarters}, expected 1, 2 or 3")
    if len(nodata) > 8 or len(substitute) > 8:
        raise ValueError("nodata and substitute are at most 8 bytes")
    memset(&job, 0, sizeof(job))
    PyObject_GetBuffer(source, &source_buffer, PyBUF_STRIDES)
    try:
        PyObject_GetBuffer(out, &out_buffer, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            if (
                source_buffer.ndim != out_buffer.ndim
                or source_buffer.ndim != len(factors)
                or source_buffer.ndim > ZR_MAX_OUTER
                or source_buffer.itemsize != out_buffer.itemsize
            ):
                raise ValueError("source, out and factors differ in dimensions or item size")
            for d in range(source_buffer.ndim):
                if factors[d] < 1 or out_buffer.shape[d] != -(-source_buffer.shape[d] // factors[d]):
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
            job.block.skip = skip
            job.block.quarters = quarters
            memcpy(&job.block.nodata, <const char *> nodata, len(nodata))
            memcpy(&job.block.substitute, <const char *> substitute, len(substitute))
            job.block.item_size = job.item_size
            if method != ZR_NEAREST_METHOD and job.item_size != zr_cell_size(cell_type):
                raise ValueError(f"cells of {source_buffer.itemsize} bytes are not of cell type {cell_type}")
            job.kernel = zr_find_kernel(method, cell_type)
            if job.kernel == NULL:
                raise TypeError(f"no kernel for method {method} and cell type {cell_type}")
            put_axes(&job, &source_buffer, &out_buffer, factors, any_order)
            with nogil:
                status = zr_run(&job, threads)
            if status != ZR_OK:
                raise MemoryError("no memory for the rows of a window")
        finally:
            PyBuffer_Release(&out_buffer)
    finally:
        PyBuffer_Release(&source_buffer)
