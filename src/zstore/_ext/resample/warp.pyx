"""The sampling kernel: contiguous buffers in, contiguous buffers out, on the pool's threads without the GIL."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset


cdef extern from "warp.h" nogil:
    enum:
        ZS_NEAREST, ZS_BILINEAR, ZS_CUBIC, ZS_AVERAGE, ZS_MODE
    ctypedef struct zs_warp_job:
        int method, is_whole
        int64_t layers, height, width, out_height, out_width, item_size
        const char *cells
        const uint8_t *valid
        const double *columns
        const double *rows
        double left, top, x_scale, y_scale, least, most
        char *out
        uint8_t *found
    int zs_run_warp(zs_warp_job *job, int threads)


METHODS = {
    "nearest": ZS_NEAREST, "bilinear": ZS_BILINEAR, "cubic": ZS_CUBIC, "average": ZS_AVERAGE, "mode": ZS_MODE,
}


def sample(
    source,
    valid,
    columns,
    rows,
    out,
    found,
    *,
    int method,
    double left=0,
    double top=0,
    double x_scale=1,
    double y_scale=1,
    limits=None,
    int threads=1,
):
    """Fill `out` with `source` at the positions (`columns`, `rows`), and `found` with whether there is a value.

    source (n, h, w) and out (n, H, W): float64, or for nearest and mode items of one size, for mode of up to 8 bytes;
    valid (n, h, w) uint8 or None; positions (H, W) float64, for average and mode those of the cells' corners
    (H + 1, W + 1), the source's corner at (`left`, `top`); found (n, H, W) uint8.
    With `limits` (least, greatest), results are rounded, halves up, and clipped to them; NaN becomes 0.
    """
    cdef Py_buffer buffers[6]
    cdef zs_warp_job job
    cdef int count = 0, status
    cdef int64_t more = 1 if method in (ZS_AVERAGE, ZS_MODE) else 0
    if method not in (ZS_NEAREST, ZS_BILINEAR, ZS_CUBIC, ZS_AVERAGE, ZS_MODE):
        raise ValueError(f"no method {method}")
    if not (1e-6 < x_scale < 1e12 and 1e-6 < y_scale < 1e12):
        raise ValueError(f"scales are {x_scale} and {y_scale}, expected positive numbers")
    memset(&job, 0, sizeof(job))
    try:
        for item in (source, columns, rows, out, found, valid):
            if item is None:
                continue
            PyObject_GetBuffer(item, &buffers[count], PyBUF_C_CONTIGUOUS | (PyBUF_WRITABLE if 3 <= count <= 4 else 0))
            count += 1
        if buffers[0].ndim != 3 or buffers[3].ndim != 3 or buffers[4].ndim != 3 or count < 5:
            raise ValueError("source, out and found have three dimensions")
        job.layers, job.height, job.width = buffers[0].shape[0], buffers[0].shape[1], buffers[0].shape[2]
        job.out_height, job.out_width = buffers[3].shape[1], buffers[3].shape[2]
        job.item_size = buffers[0].itemsize
        if buffers[3].shape[0] != job.layers or buffers[3].itemsize != job.item_size:
            raise ValueError("source and out differ in layers or item size")
        if method not in (ZS_NEAREST, ZS_MODE) and job.item_size != 8:
            raise ValueError(f"cells have {job.item_size} bytes, expected float64")
        if method == ZS_MODE and job.item_size > 8:
            raise ValueError(f"cells have {job.item_size} bytes, expected up to 8")
        for at in (1, 2):
            if (
                buffers[at].ndim != 2
                or buffers[at].itemsize != 8
                or buffers[at].shape[0] != job.out_height + more
                or buffers[at].shape[1] != job.out_width + more
            ):
                raise ValueError("places do not fit the result")
        if buffers[4].itemsize != 1 or buffers[4].len * job.item_size != buffers[3].len:
            raise ValueError("found does not fit the result")
        if count == 6 and (buffers[5].itemsize != 1 or buffers[5].len * job.item_size != buffers[0].len):
            raise ValueError("valid does not fit the source")
        if buffers[3].len == 0:
            return
        if buffers[0].len == 0:
            raise ValueError("source has no cells")
        job.method = method
        job.cells = <const char *> buffers[0].buf
        job.columns = <const double *> buffers[1].buf
        job.rows = <const double *> buffers[2].buf
        job.out = <char *> buffers[3].buf
        job.found = <uint8_t *> buffers[4].buf
        job.valid = <const uint8_t *> buffers[5].buf if count == 6 else NULL
        job.left = left
        job.top = top
        job.x_scale = x_scale
        job.y_scale = y_scale
        if limits is not None:
            job.is_whole = 1
            job.least, job.most = limits
        with nogil:
            status = zs_run_warp(&job, threads)
        if status:
            raise MemoryError("no memory for the weights of a window")
    finally:
        for at in range(count):
            PyBuffer_Release(&buffers[at])
