"""The layout of an array, and plans: selections divided along its chunk grid."""

from cpython.buffer cimport PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memset
from cpython.pycapsule cimport PyCapsule_GetPointer

from numpy import ndarray

cdef extern from "Python.h":
    bint PyBool_Check(object)
    bint PyLong_CheckExact(object)
    bint PySlice_Check(object)
    bint PyIndex_Check(object)
    int PySlice_Unpack(object, Py_ssize_t *, Py_ssize_t *, Py_ssize_t *) except -1
    Py_ssize_t PySlice_AdjustIndices(Py_ssize_t, Py_ssize_t *, Py_ssize_t *, Py_ssize_t) nogil
    Py_ssize_t PyNumber_AsSsize_t(object, PyObject *) except? -1
    PyObject *PyExc_IndexError

cdef object ELLIPSIS = ...
cdef object TOO_MANY = "the selection touches more chunks than there is memory to plan for; expected a smaller one"


cdef class Layout:
    """The form of one array's chunks and their keys; see layout.h.

    form  equal for layouts of arrays and chunks of the same shape, whose items lie alike: plans for one of them are
          plans for the others
    """

    def __cinit__(self, *, tuple shape, tuple chunk_shape, tuple strides, int64_t item_size, int64_t swap_unit,
                  bytes fill_native, bytes fill, levels, steps, bint key_has_c, str separator):
        cdef zs_layout *c = &self.c
        cdef int d, k
        if len(shape) > ZS_MAX_NDIM or len(steps) > ZS_MAX_STEPS or len(levels) > ZS_MAX_LEVELS:
            raise ValueError(
                f"at most {ZS_MAX_NDIM} dimensions, {ZS_MAX_STEPS} codecs and {ZS_MAX_LEVELS} levels of shards"
            )
        c.ndim = len(shape)
        c.item = item_size
        c.unit = swap_unit
        c.chunk_size = item_size
        for d in range(c.ndim):
            c.shape[d] = shape[d]
            c.chunk[d] = chunk_shape[d]
            c.stride[d] = strides[d]
            c.per_outer[d] = 1
            c.chunk_size *= c.chunk[d]
        c.n_levels = len(levels)
        for k, (counts, at_start, has_checksum, is_big) in enumerate(levels):
            c.level[k].n = 1
            c.level[k].index_at_start = at_start
            c.level[k].has_checksum = has_checksum
            c.level[k].index_is_big = is_big
            for d in range(c.ndim):
                c.level[k].count[d] = counts[d]
                c.level[k].n *= counts[d]
                c.per_outer[d] *= counts[d]
        self.form = shape, chunk_shape, strides, item_size, tuple([counts for counts, _, _, _ in levels])
        self.capsules = tuple(steps)
        c.n_steps = len(steps)
        c.bound[0] = c.chunk_size
        for k in range(c.n_steps):
            c.step[k] = <const zstore_codec *> PyCapsule_GetPointer(self.capsules[k], "zstore.codec.v1")
            c.bound[k + 1] = <int64_t> c.step[k].encode_bound(c.step[k].state, <size_t> c.bound[k])
        if len(fill) != item_size or len(fill_native) != item_size:
            raise ValueError(f"fill value has {len(fill)} bytes, expected {item_size}")
        self.fill_bytes = fill
        self.fill_native_bytes = fill_native
        c.fill = PyBytes_AS_STRING(fill)
        c.fill_native = PyBytes_AS_STRING(fill_native)
        c.fill_is_zero = fill.count(0) == len(fill)
        c.key_has_c = key_has_c
        c.separator = <char> ord(separator)


cdef class Plan:
    """A selection as tables of chunks and boxes, or as sorted points; see plan.h."""

    def __cinit__(self, Layout layout):
        self.layout = layout
        self.c.ndim = layout.c.ndim
        memset(self.c.axis, 0, sizeof(self.c.axis[0]) * self.c.ndim)

    def __dealloc__(self):
        zs_plan_free(&self.c)
        if self.has_points:
            zs_points_free(&self.points)

    cdef int add_slice(self, int d, int64_t start, int64_t count, int64_t step, int result_dim) except -1:
        cdef zs_axis *axis = &self.c.axis[d]
        if step < 0:
            start += (count - 1) * step
            step = -step
            axis.flip = 1
        if count == 0:
            start, step = 0, 1
        if zs_axis_slice(axis, start, count, step, self.layout.c.chunk[d], self.layout.c.per_outer[d]):
            raise MemoryError(TOO_MANY)
        self.result_dim[d] = result_dim
        return 0

    cdef int finish(self, tuple shape) except -1:
        self.shape = shape
        if zs_plan_finish(&self.c, self.layout.c.n_levels > 0):
            raise MemoryError(TOO_MANY)
        return 0

    @property
    def task_count(self):
        """Number of inner chunks that the selection touches."""
        return self.points.groups.n if self.has_points else self.c.n_chunks

    @property
    def decoded_size(self):
        """Number of decoded bytes of these chunks."""
        return self.task_count * self.layout.c.chunk_size

    @property
    def outer_count(self):
        """Number of outer chunks (those with a key) that the selection touches."""
        return self.points.groups.n_outer if self.has_points else self.c.n_outer

    def inner_cell(self, int64_t task):
        """Grid coordinates of the inner chunk of a task."""
        cdef int64_t segment[32]
        cdef int64_t cell[32]
        cdef int d, n = self.c.ndim
        if not 0 <= task < self.task_count:
            raise IndexError(f"task {task} of {self.task_count}")
        if self.has_points:
            return tuple([self.points.groups.cell[task * n + d] for d in range(n)])
        zs_plan_task(&self.c, task, segment, cell)
        return tuple([self.c.axis[d].cell[segment[d]] for d in range(n)])

    def outer_cells(self):
        """Grid coordinates of every outer chunk touched, in the order of the plan."""
        cdef int64_t o, rest
        cdef int d, n = self.c.ndim
        cdef list cells = []
        if self.has_points:
            return [outer_cell(&self.points.groups, &self.layout.c, o) for o in range(self.points.groups.n_outer)]
        for o in range(self.c.n_outer):
            cell = [0] * n
            rest = o
            for d in range(n - 1, -1, -1):
                cell[d] = self.c.axis[d].outer_cell[rest % self.c.axis[d].n_outer]
                rest //= self.c.axis[d].n_outer
            cells.append(tuple(cell))
        return cells

    def outer_tasks(self):
        """The first task of every outer chunk, and one past the last task."""
        cdef int64_t o
        cdef const int64_t *start = self.points.groups.outer_start if self.has_points else self.c.outer_start
        return list(range(self.c.n_outer + 1)) if start == NULL else [start[o] for o in range(self.outer_count + 1)]


def plan_basic(Layout layout, selection):
    """Plan a selection of integers, slices, an ellipsis and new axes; None if it holds anything else.

    Raises
        IndexError: too many indices, an integer out of bounds, two ellipses.
        ValueError: a slice with step 0.
    """
    cdef tuple items = <tuple> selection if isinstance(selection, tuple) else (selection,)
    cdef Py_ssize_t k, n = PyTuple_GET_SIZE(items), used = 0
    cdef Py_ssize_t start, stop, step, position, length
    cdef int d = 0, result_dim = 0, ndim = layout.c.ndim
    cdef bint has_ellipsis = False
    for item in items:
        if item is ELLIPSIS:
            if has_ellipsis:
                raise IndexError("an index can only have a single ellipsis ('...')")
            has_ellipsis = True
        elif PySlice_Check(item):
            used += 1
        elif item is not None:
            if not PyLong_CheckExact(item) and (
                PyBool_Check(item) or not PyIndex_Check(item) or isinstance(item, ndarray)
            ):
                return None
            used += 1
    if used > ndim:
        raise IndexError(f"too many indices: array has {ndim} dimensions, but {used} were indexed")
    cdef Plan plan = Plan(layout)
    cdef list shape = []
    for k in range(n + (not has_ellipsis)):
        item = items[k] if k < n else ELLIPSIS
        if item is None:
            shape.append(1)
            result_dim += 1
        elif item is ELLIPSIS:
            for _ in range(ndim - used):
                plan.add_slice(d, 0, layout.c.shape[d], 1, result_dim)
                shape.append(layout.c.shape[d])
                d += 1
                result_dim += 1
        elif PySlice_Check(item):
            PySlice_Unpack(item, &start, &stop, &step)
            length = PySlice_AdjustIndices(layout.c.shape[d], &start, &stop, step)
            plan.add_slice(d, start, length, step, result_dim)
            shape.append(length)
            d += 1
            result_dim += 1
        else:
            position = PyNumber_AsSsize_t(item, PyExc_IndexError)
            if position < -layout.c.shape[d] or position >= layout.c.shape[d]:
                raise IndexError(f"index {position} is out of bounds for axis {d} with size {layout.c.shape[d]}")
            plan.add_slice(d, position + layout.c.shape[d] if position < 0 else position, 1, 1, -1)
            d += 1
    plan.finish(tuple(shape))
    return plan


def plan_orthogonal(Layout layout, list axes, list result_dims, tuple shape):
    """Plan one choice per dimension: (start, count, step), or a contiguous int64 array of positions.

    `result_dims` gives the dimension of the result that each one becomes, -1 for none (a single item).

    Raises
        IndexError: a position outside the array.
    """
    cdef Plan plan = Plan(layout)
    cdef int d
    cdef int64_t i, length, count
    cdef int64_t *position
    cdef Py_buffer view
    for d in range(layout.c.ndim):
        if isinstance(axes[d], tuple):
            plan.add_slice(d, axes[d][0], axes[d][1], axes[d][2], result_dims[d])
            continue
        length = layout.c.shape[d]
        PyObject_GetBuffer(axes[d], &view, PyBUF_STRIDES)
        try:
            count = view.len // 8
            position = <int64_t *> view.buf
            for i in range(count):
                if position[i] < 0 or position[i] >= length:
                    raise IndexError(f"index {position[i]} is out of bounds for axis {d} with size {length}")
            if zs_axis_table(&plan.c.axis[d], position, count, length, layout.c.chunk[d], layout.c.per_outer[d]):
                raise MemoryError
        finally:
            PyBuffer_Release(&view)
        plan.result_dim[d] = result_dims[d]
    plan.finish(shape)
    return plan


def plan_points(Layout layout, list indices, tuple shape):
    """Plan points: one contiguous int64 array of positions per dimension, all of the same length.

    Raises
        IndexError: a point outside the array.
    """
    cdef Plan plan = Plan(layout)
    cdef Py_buffer view[32]
    cdef const int64_t *index[32]
    cdef int d, have = 0, code, bad_dim = 0
    cdef int64_t n, bad = 0
    try:
        for d in range(layout.c.ndim):
            PyObject_GetBuffer(indices[d], &view[d], PyBUF_STRIDES)
            have += 1
            index[d] = <const int64_t *> view[d].buf
        n = view[0].len // 8
        with nogil:
            code = zs_points_make(&layout.c, index, n, &plan.points, &bad, &bad_dim)
        plan.has_points = code == 0
        if code == -1:
            raise MemoryError
        if code == -2:
            length = layout.c.shape[bad_dim]
            raise IndexError(f"index {index[bad_dim][bad]} is out of bounds for axis {bad_dim} with size {length}")
        if code == -3:
            raise OverflowError("the points lie in more chunks than can be numbered")
    finally:
        for d in range(have):
            PyBuffer_Release(&view[d])
    plan.shape = shape
    return plan
