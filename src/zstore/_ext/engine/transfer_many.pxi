# Many selections in one batch; a part of transfer.pyx, whose threads and scratch memory it shares.

cdef extern from "many.h" nogil:
    ctypedef struct zs_bundle:
        zs_groups groups

    ctypedef struct zs_many:
        zs_batch batch
        const zs_bundle *bundle
        const zs_batch *part

    int zs_bundle_make(const zs_layout *, const zs_batch *, int64_t n, zs_bundle *)
    void zs_bundle_free(zs_bundle *)
    void zs_many_run(zs_many *, int threads)


cdef class Bundle:
    """Several plans for one layout, and the chunks that they touch, each once.

    Raises
        OverflowError: the plans lie in more chunks than can be numbered.
    """

    cdef zs_bundle c
    cdef zs_batch *part
    cdef list plans
    cdef Layout layout

    def __cinit__(self, list plans):
        cdef Plan plan
        cdef Py_ssize_t k, n = len(plans)
        cdef int64_t first, count
        cdef int code, threads = 1
        self.plans = plans
        self.layout = (<Plan?> plans[0]).layout
        self.part = <zs_batch *> calloc(n, sizeof(zs_batch))
        if self.part == NULL:
            raise MemoryError
        for k in range(n):
            plan = <Plan?> plans[k]
            if plan.layout is not self.layout:
                raise ValueError("plans for different layouts")
            prepare(&self.part[k], plan, None, &threads, &first, &count)
        with nogil:
            code = zs_bundle_make(&self.layout.c, self.part, n, &self.c)
        if code == -1:
            raise MemoryError
        if code == -2:
            raise OverflowError("the selections lie in more chunks than can be numbered")

    def __dealloc__(self):
        zs_bundle_free(&self.c)
        free(self.part)

    def outer_cells(self):
        """Grid coordinates of every outer chunk touched, in ascending order."""
        cdef int64_t o
        return [outer_cell(&self.c.groups, &self.layout.c, o) for o in range(self.c.groups.n_outer)]


def read_many(Bundle bundle, list outs, *, Folder folder=None, list outer=None, tuple window=None, int threads=1,
              bint missing_is_fault=False):
    """Fill each of `outs` with what its plan selects, as `read` does; every chunk is fetched and decoded once.

    `outer` holds the bytes of every outer chunk, in the order of `Bundle.outer_cells`; `window` limits the work
    (and that list) to some of them.
    """
    cdef zs_many job
    cdef Buffers given
    cdef Py_ssize_t k, have = 0, n = len(bundle.plans)
    cdef int64_t first, last
    cdef Py_buffer *views = NULL
    first, last = (0, bundle.c.groups.n_outer) if window is None else window
    if len(outs) != n or not 0 <= first <= last <= bundle.c.groups.n_outer:
        raise ValueError(f"{len(outs)} results of {n}, outer chunks {first} to {last} of {bundle.c.groups.n_outer}")
    if first == last:
        return None
    memset(&job, 0, sizeof(job))
    job.bundle = &bundle.c
    job.part = bundle.part
    job.batch.layout = &bundle.layout.c
    job.batch.place.directory = -1
    job.batch.poll = check_signals
    job.batch.next, job.batch.n_tasks = bundle.c.groups.outer_start[first], bundle.c.groups.outer_start[last]
    job.batch.missing_is_fault = missing_is_fault
    if folder is not None:
        job.batch.place.directory = folder.descriptor()
        job.batch.cache = folder.cache
        job.batch.keeps_chunks = folder.keeps_chunks
        job.batch.owner = &folder.owner
    else:
        given = Buffers(outer, last - first)
        job.batch.outer = given.items - first
    if (job.batch.n_tasks - job.batch.next) * bundle.layout.c.chunk_size < ALONE_SIZE:
        threads = 1
    views = <Py_buffer *> calloc(n, sizeof(Py_buffer))
    if views == NULL:
        raise MemoryError
    try:
        for k in range(n):
            PyObject_GetBuffer(outs[k], &views[k], PyBUF_STRIDES | PyBUF_WRITABLE)
            have += 1
            if bundle.part[k].n_tasks:
                strides_of(<Plan> bundle.plans[k], &views[k], &bundle.part[k].memory, bundle.part[k].stride)
            bundle.part[k].cache = job.batch.cache
            bundle.part[k].keeps_chunks = job.batch.keeps_chunks
            bundle.part[k].owner = job.batch.owner
        with nogil:
            zs_many_run(&job, threads)
        return fault_of(&job.batch.fault, bundle.layout.c.ndim)
    finally:
        for k in range(have):
            PyBuffer_Release(&views[k])
        free(views)
