"""The kernel of samples: windows of an array, copied out of blocks of it in memory, without the GIL."""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free


cdef extern from "gather.h" nogil:
    enum:
        ZS_MAX_NDIM
    ctypedef struct zs_side:
        int64_t count
        const int64_t *borders
        int64_t length, to
    ctypedef struct zs_windows:
        int ndim
        int64_t item
        zs_side side[32]
        int64_t n_blocks
        const int64_t *numbers
        char **blocks
    int64_t zs_block_size(const zs_windows *w, int64_t number)
    int64_t zs_gather(const zs_windows *w, const int64_t *start, char *out)


@cython.internal
cdef class Held:
    """Buffers of objects, released when this goes."""

    cdef Py_buffer *views
    cdef int64_t count, most

    def __cinit__(self, int64_t most):
        self.most = most
        self.views = <Py_buffer *> calloc(<size_t> most, sizeof(Py_buffer))
        if self.views == NULL:
            raise MemoryError

    cdef Py_buffer *hold(self, object source, int flags) except NULL:
        assert self.count < self.most
        PyObject_GetBuffer(source, &self.views[self.count], flags)
        self.count += 1
        return &self.views[self.count - 1]

    cdef Py_buffer *integers(self, object source, int ndim) except NULL:
        cdef Py_buffer *view = self.hold(source, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        if view.ndim != ndim or view.itemsize != 8 or view.format[0] not in (b"l", b"q"):
            raise TypeError(f"expected int64 in {ndim} dimensions")
        return view

    def __dealloc__(self):
        cdef int64_t n
        for n in range(self.count):
            PyBuffer_Release(&self.views[n])
        free(self.views)


def gather(list blocks, numbers, tuple borders, starts, out):
    """Copy the windows at `starts` (n, dimensions) to `out` (n, lengths of a window).

    blocks   the items of some cells of a grid, each contiguous
    numbers  of these cells, in C order, ascending
    borders  of the cells, along each dimension of the array

    Raises
        ValueError: a window lies outside the grid, or in a cell that is not among the blocks; or a block has
            another size than its cell.
    """
    cdef zs_windows w
    cdef int d, ndim = len(borders)
    cdef int64_t n, count, missing = -1
    cdef Py_buffer *view
    cdef Py_buffer *to
    cdef const int64_t *start
    cdef Held held = Held(len(blocks) + ndim + 3)
    if ndim > ZS_MAX_NDIM:
        raise ValueError(f"{ndim} dimensions; expected {ZS_MAX_NDIM} at most")
    to = held.hold(out, PyBUF_STRIDES | PyBUF_WRITABLE)
    view = held.integers(starts, 2)
    count, start = view.shape[0], <const int64_t *> view.buf
    if to.ndim != ndim + 1 or view.shape[1] != ndim or to.shape[0] != count:
        raise ValueError(f"{count} starts and {to.ndim} dimensions of memory; expected those of {ndim} borders")
    w.ndim, w.item = ndim, to.itemsize
    for d in range(ndim):
        view = held.integers(borders[d], 1)
        w.side[d].count, w.side[d].borders = view.shape[0] - 1, <const int64_t *> view.buf
        w.side[d].length, w.side[d].to = to.shape[d + 1], to.strides[d + 1]
        if w.side[d].count < 0:
            raise ValueError(f"no borders along dimension {d}")
        for n in range(w.side[d].count):
            if w.side[d].borders[n] > w.side[d].borders[n + 1]:
                raise ValueError(f"borders along dimension {d} do not ascend")
        if w.side[d].length == 0:
            count = 0
    view = held.integers(numbers, 1)
    w.n_blocks, w.numbers = view.shape[0], <const int64_t *> view.buf
    if w.n_blocks != len(blocks):
        raise ValueError(f"{len(blocks)} blocks have {w.n_blocks} numbers")
    w.blocks = <char **> calloc(<size_t> w.n_blocks + 1, sizeof(char *))
    if w.blocks == NULL:
        raise MemoryError
    try:
        for n in range(w.n_blocks):
            view = held.hold(blocks[n], PyBUF_SIMPLE)
            if view.len != zs_block_size(&w, w.numbers[n]):
                raise ValueError(f"block {w.numbers[n]} has {view.len} bytes; expected those of its cell")
            w.blocks[n] = <char *> view.buf
        with nogil:
            for n in range(count):
                missing = zs_gather(&w, start + n * ndim, <char *> to.buf + n * to.strides[0])
                if missing != -1:
                    break
    finally:
        free(w.blocks)
    if missing == -2:
        raise ValueError(f"window {n} lies outside the grid")
    if missing != -1:
        raise ValueError(f"window {n} lies in block {missing}, which is not there")
