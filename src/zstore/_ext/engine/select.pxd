from libc.stdint cimport int64_t


cdef extern from "plan.h" nogil:
    enum:
        ZS_MAX_NDIM, ZS_MAX_STEPS, ZS_MAX_LEVELS

    ctypedef struct zstore_codec:
        size_t struct_size
        size_t (*encode_bound)(const void *state, size_t src_size)
        void *state

    ctypedef struct zs_level:
        int64_t count[32]
        int64_t n
        int index_at_start, has_checksum, index_is_big

    ctypedef struct zs_layout:
        int ndim
        int64_t item, unit, chunk_size
        int64_t chunk[32]
        int64_t stride[32]
        int64_t per_outer[32]
        int64_t shape[32]
        int n_levels
        zs_level level[4]
        int n_steps
        const zstore_codec *step[16]
        int64_t bound[17]
        char *fill
        char *fill_native
        int fill_is_zero, key_has_c
        char separator

    ctypedef struct zs_axis:
        int64_t n, n_outer
        int64_t *cell
        int64_t *first
        int64_t *items
        int64_t *at
        int64_t *outer_cell
        int64_t *outer_from
        int64_t *inside
        int flip

    ctypedef struct zs_plan:
        int ndim
        int64_t n_outer, n_chunks
        int64_t *outer_start
        zs_axis axis[32]

    ctypedef struct zs_groups:
        int64_t n, n_outer
        int64_t *start
        int64_t *cell
        int64_t *outer_start

    ctypedef struct zs_points:
        zs_groups groups

    int zs_axis_slice(zs_axis *, int64_t, int64_t, int64_t, int64_t, int64_t)
    int zs_axis_table(zs_axis *, const int64_t *, int64_t, int64_t, int64_t, int64_t)
    int zs_plan_finish(zs_plan *, int)
    void zs_plan_free(zs_plan *)
    int64_t zs_plan_task(const zs_plan *, int64_t, int64_t *, int64_t *)
    int zs_points_make(const zs_layout *, const int64_t *const *, int64_t, zs_points *, int64_t *, int *)
    void zs_points_free(zs_points *)


cdef class Layout:
    cdef zs_layout c
    cdef readonly tuple form
    cdef object capsules
    cdef bytes fill_bytes
    cdef bytes fill_native_bytes


cdef class Plan:
    cdef zs_plan c
    cdef zs_points points
    cdef readonly Layout layout
    cdef readonly tuple shape
    cdef bint has_points
    cdef int result_dim[32]
    cdef int add_slice(self, int d, int64_t start, int64_t count, int64_t step, int result_dim) except -1
    cdef int finish(self, tuple shape) except -1


cdef inline tuple outer_cell(const zs_groups *groups, const zs_layout *layout, int64_t outer):
    """Grid coordinates of an outer chunk."""
    cdef int d
    cdef const int64_t *cell = groups.cell + groups.outer_start[outer] * layout.ndim
    return tuple([cell[d] // layout.per_outer[d] for d in range(layout.ndim)])
