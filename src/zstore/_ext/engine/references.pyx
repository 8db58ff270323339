"""Kerchunk's references as they stand in JSON: chunk numbers, offsets and sizes, without an object for each."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

cdef enum:
    MOST_NDIM = 32
    MOST_DIGITS = 18
    WHOLE = -1


cdef inline const char *skip_space(const char *at, const char *end) noexcept nogil:
    while at < end and (at[0] == c" " or at[0] == c"\n" or at[0] == c"\r" or at[0] == c"\t"):
        at += 1
    return at


cdef inline const char *skip_mark(const char *at, const char *end, char mark) noexcept nogil:
    """Behind a mark and the space around it; NULL: something else is there."""
    if at == NULL:
        return NULL
    at = skip_space(at, end)
    return skip_space(at + 1, end) if at < end and at[0] == mark else NULL


cdef inline const char *skip_text(const char *at, const char *end, bytes text) noexcept:
    """Behind a text; NULL: something else is there."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    return at + size if end - at >= size and not memcmp(at, PyBytes_AS_STRING(text), size) else NULL


cdef inline const char *take_number(const char *at, const char *end, int64_t *number) noexcept nogil:
    """Behind the digits of a number from 0 to 10^18 - 1, as it is written with no digit too many; NULL: none."""
    cdef const char *begin = at
    if at == NULL:
        return NULL
    number[0] = 0
    while at < end and c"0" <= at[0] <= c"9" and at - begin < MOST_DIGITS:
        number[0] = 10 * number[0] + (at[0] - c"0")
        at += 1
    if at == begin or (begin[0] == c"0" and at - begin > 1) or (at < end and c"0" <= at[0] <= c"9"):
        return NULL
    return at


cdef inline const char *end_of_text(const char *at, const char *end) noexcept nogil:
    """The quote at which a text ends; NULL: it has no end."""
    while at < end and at[0] != c'"':
        at += 2 if at[0] == c"\\" else 1
    return at if at < end else NULL


cdef class References:
    """The members of a JSON object that are `"key": ["address", offset, size],`, taken from a text in its order.

    Of `"key": ["address"],` the offset is 0 and the size -1: all of what is there.

    `number_of` gives the number of an address that is met for the first time, by its bytes as they stand there.
    """

    cdef Py_buffer text
    cdef object number_of
    cdef dict known
    cdef const char *last
    cdef Py_ssize_t last_size
    cdef int32_t last_number

    def __cinit__(self, text, number_of):
        PyObject_GetBuffer(text, &self.text, PyBUF_SIMPLE)
        self.number_of = number_of
        self.known = {}

    def __dealloc__(self):
        PyBuffer_Release(&self.text)

    def take(self, Py_ssize_t at, bytes start, bytes separator, tuple grid, columns, Py_ssize_t row):
        """Fill the rows of `columns`, from `row` on, with the members at `at` that are chunks of one array.

        Their keys are `start` and then the numbers of a chunk inside `grid`, with `separator` between them, both as
        they stand in the text.
        `columns` are int64, int32, int64, int64: the chunk's place in the grid in order C, the number of the
        address, offset and size. Gives the first row that was not filled, and where the member is that ended it:
        one of another kind, the last one of the object (no comma follows it), or one for which there is no room.
        """
        cdef Py_buffer views[4]
        cdef Py_ssize_t k, held = 0, room = 0
        cdef int64_t shape[MOST_NDIM]
        if not 0 < len(grid) <= MOST_NDIM or not separator or not 0 <= at <= self.text.len:
            raise ValueError(f"cannot take chunks of the grid {grid} at {at}")
        for k in range(len(grid)):
            shape[k] = grid[k]
        try:
            for k in range(4):
                PyObject_GetBuffer(columns[k], &views[k], PyBUF_SIMPLE | PyBUF_WRITABLE)
                held += 1
                if views[k].itemsize != (4 if k == 1 else 8):
                    raise ValueError(f"column {k} has items of {views[k].itemsize} bytes")
                room = views[k].len // views[k].itemsize if k == 0 else min(room, views[k].len // views[k].itemsize)
            if row < 0:
                raise ValueError(f"there is no row {row}")
            return self.fill(at, start, separator, len(grid), shape, views, row, room)
        finally:
            for k in range(held):
                PyBuffer_Release(&views[k])

    cdef tuple fill(self, Py_ssize_t at, bytes start, bytes separator, Py_ssize_t ndim, const int64_t *shape,
                    Py_buffer *views, Py_ssize_t row, Py_ssize_t room):
        cdef const char *text = <const char *> self.text.buf
        cdef const char *end = text + self.text.len
        cdef const char *member = text + at
        cdef const char *p
        cdef const char *address
        cdef Py_ssize_t k, address_size
        cdef int64_t number, cell, offset = 0, size = 0
        while row < room:
            p = skip_space(member, end)
            p = skip_text(p + 1, end, start) if p < end and p[0] == c'"' else NULL
            if p == NULL:
                break
            number = 0
            for k in range(ndim):
                if k:
                    p = skip_text(p, end, separator)
                p = take_number(p, end, &cell)
                if p == NULL or cell >= shape[k]:
                    p = NULL
                    break
                number = number * shape[k] + cell
            if p == NULL or p >= end or p[0] != c'"':
                break
            p = skip_mark(skip_mark(p + 1, end, c":"), end, c"[")
            if p == NULL or p >= end or p[0] != c'"':
                break
            address = p + 1
            p = end_of_text(address, end)
            if p == NULL:
                break
            address_size = p - address
            p = skip_space(p + 1, end)
            offset, size = 0, WHOLE
            if p < end and p[0] == c",":
                p = skip_mark(take_number(skip_mark(p, end, c","), end, &offset), end, c",")
                p = take_number(p, end, &size)
            p = skip_mark(skip_mark(p, end, c"]"), end, c",")
            if p == NULL:
                break
            if address_size != self.last_size or self.last == NULL or memcmp(address, self.last, address_size):
                self.last_number = self.find(address, address_size)
                self.last, self.last_size = address, address_size
            (<int64_t *> views[0].buf)[row] = number
            (<int32_t *> views[1].buf)[row] = self.last_number
            (<int64_t *> views[2].buf)[row] = offset
            (<int64_t *> views[3].buf)[row] = size
            row += 1
            member = p
        return row, member - text

    cdef int32_t find(self, const char *address, Py_ssize_t size) except -1:
        cdef bytes key = PyBytes_FromStringAndSize(address, size)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.number_of(key)
        return found
