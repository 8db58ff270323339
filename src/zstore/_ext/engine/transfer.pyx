"""Batches of reads and writes: from file ranges or buffers to decoded items and back, without the GIL."""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from zstore._ext.engine.select cimport Layout, Plan, outer_cell, zs_groups, zs_layout, zs_plan, zs_points


cdef extern from "Python.h":
    int PyErr_CheckSignals()  # what a handler raised stays pending, where cpython.exc would raise it there and then


cdef extern from "read.h" nogil:
    enum:
        ZS_FAULT_SIGNAL
    const int64_t ZS_LONG_SIZE

    ctypedef struct zs_fault:
        int code, error_number, step, has_inner
        int64_t part
        int64_t got, expected
        int64_t cell[32]
        int64_t inner[32]

    ctypedef struct zs_bytes:
        const char *data
        int64_t size

    ctypedef struct zs_cache:
        int64_t bytes
        int64_t limit
        int64_t hits, misses, evictions, thrash

    ctypedef struct zs_owner:
        int64_t id
        int has_kept

    ctypedef struct zs_identity:
        int64_t device, inode

    ctypedef struct zs_place:
        int directory
        const char *document
        int is_durable
        const char *root
        const char *path
        const char *allowed
        const zs_identity *known

    ctypedef struct file_status "struct stat":
        pass

    zs_identity zs_identify(const file_status *)
    int zs_is_settled(const zs_identity *)
    int AT_FDCWD
    int fstatat(int directory, const char *name, file_status *, int flags)

    ctypedef struct zs_origin:
        const char *name
        int directory
        int64_t size, modified

    ctypedef struct zs_stretches:
        int ndim
        int64_t grid[32]
        int64_t n
        const int64_t *number
        const int *file
        const int64_t *offset
        const int64_t *size
        const zs_origin *origin
        const char *data

    ctypedef struct zs_batch:
        const zs_layout *layout
        const zs_plan *plan
        const zs_points *points
        char *memory
        int64_t stride[32]
        zs_place place
        const zs_stretches *stretches
        const zs_bytes *outer
        const zs_bytes *inner
        zs_cache *cache
        int keeps_chunks, missing_is_fault
        zs_owner *owner
        int (*poll)() noexcept
        int64_t n_tasks
        int64_t next
        zs_fault fault

    zs_cache *zs_cache_make(int64_t limit)
    void zs_cache_free(zs_cache *)
    void zs_cache_forget(zs_cache *, int64_t base)
    void zs_cache_limit(zs_cache *, int64_t limit)
    zs_cache zs_shared
    int64_t zs_owner_next()
    int zs_folder_is_gone(int directory)
    void zs_leave_scratch(int directory)
    int zs_close "close" (int file)
    int zs_covers_outer(const zs_batch *, const int64_t *cell)
    void zs_read_run(zs_batch *, int threads)

    enum:
        ZS_BRIEF_OPEN, ZS_BRIEF_READ, ZS_BRIEF_WRITE, ZS_BRIEF_KINDS

    ctypedef struct zs_brief_calls:
        int64_t calls, nanoseconds, chunks, bytes

    zs_brief_calls zs_brief[ZS_BRIEF_KINDS]
    int64_t zs_tick()
    void zs_brief_count(int kind, int64_t nanoseconds, int64_t chunks, int64_t bytes)


cdef extern from "write.h" nogil:
    void zs_say(int *flag)
    enum:
        ZS_REPLACED, ZS_REMOVED

    ctypedef struct zs_result:
        int kind
        char *data
        int64_t size

    ctypedef struct zs_write_job:
        zs_batch batch
        int skip_empty
        zs_result *result

    void zs_write_run(zs_write_job *, int threads)


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


cdef extern from "join.h" nogil:
    ctypedef struct zs_join:
        zs_batch batch
        int64_t n
        const zs_batch *part
        const int64_t *start

    int zs_is_alike(const zs_layout *, const zs_layout *)
    void zs_join_run(zs_join *, int threads)


# In the order of the enum in layout.h.
cdef tuple FAULTS = ("", "store", "memory", "codec", "size", "missing", "short", "checksum", "entry", "long",
                     "changed", "beyond", "signal")


cdef int check_signals() noexcept with gil:
    return PyErr_CheckSignals() != 0


cdef int raise_pending() except -1:
    return -1


def limit_chunks(int64_t size):
    """Limit the cache of decoded chunks that all arrays share to `size` bytes."""
    zs_cache_limit(&zs_shared, size)


def kept_size():
    """Number of bytes in the cache of decoded chunks that all arrays share."""
    return zs_shared.bytes


def kept_counts():
    """Numbers of chunks that were taken from that cache, not there when part of one was read, dropped for others, and
    decoded again while there was no room."""
    return zs_shared.hits, zs_shared.misses, zs_shared.evictions, zs_shared.thrash


def brief_counts():
    """Numbers of brief calls that were counted, of their nanoseconds, chunks and bytes: opens, reads and writes."""
    return tuple([(zs_brief[k].calls, zs_brief[k].nanoseconds, zs_brief[k].chunks, zs_brief[k].bytes)
                  for k in range(ZS_BRIEF_KINDS)])


OPEN, WRITE = ZS_BRIEF_OPEN, ZS_BRIEF_WRITE


cdef class NearSpan:
    """A call of a kind in which nothing else is noted, as a context.

    One of fewer than `brief` nanoseconds is counted in `brief_counts`; of any other, and of one that fails, `note` is
    told: the kind, nanoseconds, the error's name or None, and what `note_later` was given.
    """

    cdef int kind
    cdef int64_t brief, chunks, size, begin
    cdef object note, make
    cdef tuple words

    def __init__(self, int kind, int64_t brief, note, int64_t chunks=0, int64_t size=0):
        if not 0 <= kind < ZS_BRIEF_KINDS:
            raise ValueError(f"kind is {kind}, expected one below {ZS_BRIEF_KINDS}")
        self.kind, self.brief, self.note, self.chunks, self.size = kind, brief, note, chunks, size
        self.words = ()

    def __enter__(self):
        self.begin = zs_tick()
        return self

    def __exit__(self, kind, error, traceback):
        cdef int64_t taken = zs_tick() - self.begin
        if kind is None and taken < self.brief:
            zs_brief_count(self.kind, taken, self.chunks, self.size)
        else:
            self.note(self.kind, taken, None if kind is None else kind.__name__, self.make, self.words)

    def note_later(self, make, *words):
        """Have `note` told of a function, and its arguments, that makes the attributes."""
        self.make, self.words = make, words


cdef int64_t thrash_limit = INT64_MAX
cdef object say_thrash = None


def hint_at_thrash(int64_t count, act):
    """Call `act` once, when `count` chunks were decoded again while there was no room, and fewer were taken from memory."""
    global thrash_limit, say_thrash
    thrash_limit, say_thrash = count, act


cdef hint():
    global thrash_limit
    if zs_shared.thrash > zs_shared.hits:
        thrash_limit = INT64_MAX
        say_thrash()


cdef class Stretches:
    """Where the chunks of an array lie in other files: `zstore.storage.base.Stretches` in the kernels' form."""

    cdef zs_stretches c
    cdef zs_origin *origins
    cdef Py_buffer views[5]
    cdef int n_views, n_places
    cdef int *directories
    cdef list places
    cdef list names

    def __cinit__(self, tuple grid, number, file, offset, size, data, list places, list origins):
        cdef Py_ssize_t k
        self.places = places
        self.names = [os.fsencode(name) for _, name, _, _ in origins]
        self.origins = <zs_origin *> calloc(len(origins) + 1, sizeof(zs_origin))
        self.directories = <int *> calloc(len(places) + 1, sizeof(int))
        if self.origins == NULL or self.directories == NULL:
            raise MemoryError
        for k, (place, _, total, modified) in enumerate(origins):
            if not 0 <= place < len(places) or b"\0" in <bytes> self.names[k]:
                raise ValueError(f"{origins[k]!r} is no file below one of {len(places)} places")
            self.origins[k].name = <bytes> self.names[k]
            self.origins[k].directory = place
            self.origins[k].size = total
            self.origins[k].modified = modified
        if len(grid) > 32:
            raise ValueError(f"{len(grid)} dimensions, expected 32 at most")
        self.c.ndim = len(grid)
        self.c.n = 1
        for k in range(self.c.ndim):
            self.c.grid[k] = grid[k]
            self.c.n *= self.c.grid[k]
        if number is not None:
            self.c.n = len(number)
            self.c.number = <const int64_t *> self.take(number, 8)
        self.c.file = <const int *> self.take(file, 4)
        self.c.offset = <const int64_t *> self.take(offset, 8)
        self.c.size = <const int64_t *> self.take(size, 8)
        PyObject_GetBuffer(data, &self.views[self.n_views], PyBUF_SIMPLE)
        self.c.data = <const char *> self.views[self.n_views].buf
        self.n_views += 1
        for k in range(self.c.n):
            if self.c.file[k] < -2 or self.c.file[k] >= len(origins) or self.c.offset[k] < 0 or self.c.size[k] < -1:
                raise ValueError(f"row {k} of {self.c.n} names no stretch of {len(origins)} files")
            if self.c.file[k] == -2 and (
                self.c.size[k] < 0 or self.c.offset[k] > self.views[self.n_views - 1].len - self.c.size[k]
            ):
                raise ValueError(f"row {k} of {self.c.n} lies outside of the bytes in memory")
        for k in range(len(places)):
            self.directories[k] = os.open(places[k], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.n_places += 1
        self.settle(len(origins))

    cdef int settle(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t k
        for k in range(count):
            self.origins[k].directory = self.directories[self.origins[k].directory]
        self.c.origin = self.origins
        return 0

    cdef const void *take(self, values, Py_ssize_t item) except NULL:
        """Borrow the memory of `n` integers for the lifetime of this object."""
        cdef Py_buffer *view = &self.views[self.n_views]
        PyObject_GetBuffer(values, view, PyBUF_SIMPLE)
        self.n_views += 1
        if view.itemsize != item or view.len != self.c.n * item:
            raise ValueError(f"{view.len} bytes given, expected {self.c.n} integers of {item}")
        return view.buf

    def __dealloc__(self):
        cdef Py_ssize_t k
        for k in range(self.n_views):
            PyBuffer_Release(&self.views[k])
        for k in range(self.n_places):
            zs_close(self.directories[k])
        free(self.directories)
        free(self.origins)


cdef int open_directory(str path) except -1:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


cdef class Folder:
    """The directory of one array, kept open, and the cache of what was read from it: shard indexes, and with
    `keeps_chunks` decoded chunks too, of at most `cache_size` bytes. Other decoded chunks are in the shared cache.

    `key` is the end of `path`: the array's path in its store, which is a directory above. `allowed` are directories
    elsewhere that links may lead into (see `Tree`).

    With `stretches` there is no directory: the chunks are byte ranges of the files it names."""

    cdef readonly str path
    cdef bytes root, key, allowed, name
    cdef int directory
    cdef int has_written
    cdef bint keeps_chunks
    cdef zs_cache *cache
    cdef zs_owner owner
    cdef Stretches stretches
    cdef zs_identity document
    cdef readonly bint knows_document

    def __cinit__(self, str path, str key="", *, int64_t cache_size=32 << 20, bint keeps_chunks=False,
                  Stretches stretches=None, bytes allowed=None):
        self.owner.id = zs_owner_next()
        self.path, self.name = path, os.fsencode(path)
        if key and path.endswith(f"/{key}"):
            self.root, self.key = os.fsencode(path[:-len(key)]), os.fsencode(key)
        self.stretches = stretches
        self.allowed = allowed
        self.keeps_chunks = keeps_chunks
        self.directory = -1
        self.cache = zs_cache_make(cache_size)
        if self.cache == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.cache != NULL and self.directory >= 0:
            if self.has_written:
                zs_leave_scratch(self.directory)
            zs_close(self.directory)
        zs_cache_free(self.cache)
        if self.owner.has_kept:
            zs_cache_forget(&zs_shared, -self.owner.id)

    cdef int descriptor(self) except -1:
        """The open directory; the same number is that of the new one if it was removed and made anew in the meantime.

        Other threads may be writing by that number: were it closed, it could soon be that of another directory."""
        with cython.critical_section(self):
            if self.directory < 0 or zs_folder_is_gone(self.directory):
                self.renew(open_directory(self.path))
            return self.directory

    cdef int follow(self) except -1:
        """Open the directory that has the name now, where the open one was moved away: nobody finds what is there."""
        cdef file_status named, held
        cdef zs_identity now, then
        if self.directory < 0 or fstatat(self.directory, b".", &held, 0):
            return 0
        then = zs_identify(&held)
        if fstatat(AT_FDCWD, self.name, &named, 0) == 0:
            now = zs_identify(&named)
            if now.device == then.device and now.inode == then.inode:
                return 0
        with cython.critical_section(self):
            self.renew(open_directory(self.path))
        return 0

    def look(self, str document):
        """The identity and state of the array's document at this moment; None where there is none."""
        cdef file_status status
        cdef zs_identity found
        cdef bytes name = os.fsencode(document)
        if fstatat(self.descriptor(), name, &status, 0):
            return None
        found = zs_identify(&status)
        return (<char *> &found)[:sizeof(found)]

    def know(self, bytes document):
        """Keep what `look` gave before the document was read: writes are refused, with ESTALE, where it is another.

        Where it was written just now, a later change might not be seen, and it is not known for long."""
        cdef zs_identity found
        if len(document) != sizeof(found):
            raise ValueError(f"{len(document)} bytes, expected {sizeof(found)}")
        memcpy(&found, <const char *> document, sizeof(found))
        with cython.critical_section(self):
            self.document = found
            self.knows_document = zs_is_settled(&found)

    cdef int renew(self, int opened) except -1:
        if self.directory < 0:  # else another thread may have been faster, while this one opened it
            self.directory = opened
            return 0
        try:
            os.dup2(opened, self.directory, inheritable=False)
        finally:
            zs_close(opened)
        return 0


cdef class Buffers:
    """Memory borrowed from several objects, for the lifetime of this one."""

    cdef Py_buffer *views
    cdef zs_bytes *items
    cdef Py_ssize_t count

    def __cinit__(self, list values, Py_ssize_t n):
        if len(values) != n:
            raise ValueError(f"{len(values)} chunks given, expected {n}")
        self.views = <Py_buffer *> calloc(n + 1, sizeof(Py_buffer))
        self.items = <zs_bytes *> calloc(n + 1, sizeof(zs_bytes))
        if self.views == NULL or self.items == NULL:
            raise MemoryError
        for value in values:
            if value is not None:
                PyObject_GetBuffer(value, &self.views[self.count], PyBUF_SIMPLE)
                self.items[self.count].data = <const char *> self.views[self.count].buf
                self.items[self.count].size = self.views[self.count].len
            self.count += 1

    def __dealloc__(self):
        cdef Py_ssize_t k
        for k in range(self.count):
            if self.items[k].data != NULL:
                PyBuffer_Release(&self.views[k])
        free(self.views)
        free(self.items)


cdef int strides_of(Plan plan, Py_buffer *view, char **base, int64_t *stride) except -1:
    """The caller's memory in the array's dimensions: the address of the plan's first item, and byte strides."""
    cdef int d, r
    if view.itemsize != plan.layout.c.item:
        raise ValueError(f"items of {view.itemsize} bytes, expected {plan.layout.c.item}")
    shape = tuple([view.shape[d] for d in range(view.ndim)])
    if shape != plan.shape:
        raise ValueError(f"memory of shape {shape}, expected {plan.shape}")
    base[0] = <char *> view.buf
    if plan.has_points:
        stride[0] = view.strides[0] if view.ndim else 0
        return 0
    for d in range(plan.c.ndim):
        r = plan.result_dim[d]
        stride[d] = view.strides[r] if r >= 0 else 0
        if plan.c.axis[d].flip:
            base[0] += (view.shape[r] - 1) * stride[d]
            stride[d] = -stride[d]
    return 0


cdef object fault_of(const zs_fault *fault, int ndim):
    """(kind, errno, step, got, expected, outer cell, inner cell or None), or None when all went well."""
    if fault.code == 0:
        return None
    if fault.code == ZS_FAULT_SIGNAL:
        raise_pending()
    cell = tuple([fault.cell[d] for d in range(ndim)])
    inner = tuple([fault.inner[d] for d in range(ndim)]) if fault.has_inner else None
    return FAULTS[fault.code], fault.error_number, fault.step, fault.got, fault.expected, cell, inner


# Below so many decoded bytes, waking another thread takes longer than the work.
cdef int64_t ALONE_SIZE = 131072


cdef int prepare(zs_batch *batch, Plan plan, tuple window) except -1:
    """Set up a batch of the plan's outer chunks `window`, from first to last (None: all of them)."""
    cdef const int64_t *start = plan.points.groups.outer_start if plan.has_points else plan.c.outer_start
    memset(batch, 0, sizeof(batch[0]))
    batch.layout = &plan.layout.c
    batch.plan = &plan.c
    batch.points = &plan.points if plan.has_points else NULL
    batch.place.directory = -1
    batch.poll = check_signals
    batch.n_tasks = plan.task_count
    if window is not None:
        if not 0 <= window[0] <= window[1] <= plan.outer_count:
            raise ValueError(f"outer chunks {window} of {plan.outer_count}")
        batch.next, batch.n_tasks = window
        if start != NULL and plan.task_count:
            batch.next, batch.n_tasks = start[batch.next], start[batch.n_tasks]
    return 0


cdef Buffers attach(zs_batch *batch, Folder folder, list outer, int64_t first, int64_t last):
    """Let a batch work on the files of `folder`, or on borrowed bytes of the outer chunks `first` to `last`."""
    if folder is None:
        given = Buffers(outer, last - first)
        batch.outer = given.items - first
        return given
    if folder.stretches is None:
        batch.place.directory = folder.descriptor()
        if folder.root is not None:
            batch.place.root, batch.place.path = folder.root, folder.key
        if folder.allowed is not None:
            batch.place.allowed = folder.allowed
    else:
        batch.stretches = &folder.stretches.c
    batch.cache = folder.cache
    batch.keeps_chunks = folder.keeps_chunks
    batch.owner = &folder.owner
    return None


cdef int useful(const zs_batch *batch, int threads) noexcept nogil:
    """The number of threads that pays off."""
    return 1 if (batch.n_tasks - batch.next) * batch.layout.chunk_size < ALONE_SIZE else threads


def covers_outer(Plan plan, tuple cell):
    """How much of the outer chunk at `cell` the plan covers: 2 all of it, 1 all that lies in the array, 0 less."""
    cdef zs_batch batch
    cdef int64_t place[32]
    cdef int d
    prepare(&batch, plan, None)
    for d in range(plan.layout.c.ndim):
        place[d] = cell[d]
    return zs_covers_outer(&batch, place)


def read(Plan plan, out, *, Folder folder=None, list outer=None, list inner=None, tuple window=None, int threads=1,
         bint missing_is_fault=False, int64_t brief=0):
    """Fill `out` (of the plan's shape; for points 1-d) from files of `folder`, or from given bytes.

    `outer` holds the bytes of every outer chunk in the plan's order, `inner` those of every inner chunk; None stands
    for a missing chunk. `window` limits the work (and both lists) to those outer chunks of the plan. Returns None, or
    the first fault. With `brief`, a read of fewer nanoseconds is counted in `brief_counts`, and of any other they are
    returned.
    """
    cdef zs_batch batch
    cdef Py_buffer view
    cdef Buffers given
    cdef int64_t first, last, taken
    cdef int64_t begin = zs_tick() if brief else 0
    first, last = window or (0, plan.outer_count)
    prepare(&batch, plan, window)
    if batch.n_tasks == batch.next:
        if brief:
            zs_brief_count(ZS_BRIEF_READ, 0, 0, 0)
        return None
    batch.missing_is_fault = missing_is_fault
    if inner is None:
        given = attach(&batch, folder, outer, first, last)
    else:
        given = Buffers(inner, batch.n_tasks - batch.next)
        batch.inner = given.items - batch.next
    PyObject_GetBuffer(out, &view, PyBUF_STRIDES | PyBUF_WRITABLE)
    try:
        strides_of(plan, &view, &batch.memory, batch.stride)
        with nogil:
            zs_read_run(&batch, useful(&batch, threads))
        if zs_shared.thrash >= thrash_limit:
            hint()
        if not begin or batch.fault.code:
            return fault_of(&batch.fault, plan.layout.c.ndim)
        taken = zs_tick() - begin
        if taken >= brief:
            return taken
        zs_brief_count(ZS_BRIEF_READ, taken, batch.n_tasks, view.len)
    finally:
        PyBuffer_Release(&view)


cdef class Bundle:
    """Several plans for one layout, and the chunks that they touch, each once.

    Raises
        OverflowError: the plans touch more chunks than can be numbered.
    """

    cdef zs_bundle c
    cdef zs_batch *part
    cdef list plans
    cdef Layout layout

    def __cinit__(self, list plans):
        cdef Plan plan
        cdef Py_ssize_t k, n = len(plans)
        cdef int code
        self.plans = plans
        self.layout = (<Plan?> plans[0]).layout
        self.part = <zs_batch *> calloc(n, sizeof(zs_batch))
        if self.part == NULL:
            raise MemoryError
        for k in range(n):
            plan = <Plan?> plans[k]
            if plan.layout is not self.layout:
                raise ValueError("plans for different layouts")
            prepare(&self.part[k], plan, None)
        with nogil:
            code = zs_bundle_make(&self.layout.c, self.part, n, &self.c)
        if code == -1:
            raise MemoryError
        if code == -2:
            raise OverflowError("the selections lie in more chunks than can be numbered")

    def __dealloc__(self):
        zs_bundle_free(&self.c)
        free(self.part)

    @property
    def outer_count(self):
        """Number of outer chunks touched."""
        return self.c.groups.n_outer

    def outer_cells(self):
        """Grid coordinates of every outer chunk touched, in ascending order."""
        cdef int64_t o
        return [outer_cell(&self.c.groups, &self.layout.c, o) for o in range(self.c.groups.n_outer)]

    def outer_tasks(self):
        """The first inner chunk of every outer chunk, and one past the last inner chunk."""
        cdef int64_t o
        return [self.c.groups.outer_start[o] for o in range(self.c.groups.n_outer + 1)]

    def inner_cell(self, int64_t task):
        """Grid coordinates of an inner chunk."""
        if not 0 <= task < self.c.groups.n:
            raise IndexError(f"inner chunk {task} of {self.c.groups.n}")
        cdef int d, n = self.layout.c.ndim
        return tuple([self.c.groups.cell[task * n + d] for d in range(n)])


def read_many(Bundle bundle, list outs, *, Folder folder=None, list outer=None, list inner=None, tuple window=None,
              int threads=1, bint missing_is_fault=False):
    """Fill each of `outs` with the items of its plan, as `read` does; every chunk is fetched and decoded once.

    `outer` holds the bytes of every outer chunk, in the order of `Bundle.outer_cells`, `inner` those of every inner
    chunk; `window` limits the work (and both lists) to some outer chunks.
    """
    cdef zs_many job
    cdef Buffers given
    cdef Py_ssize_t k, have = 0, n = len(bundle.plans)
    cdef int64_t first, last
    cdef Py_buffer *views = NULL
    cdef zs_batch *part = NULL
    first, last = (0, bundle.c.groups.n_outer) if window is None else window
    if len(outs) != n or not 0 <= first <= last <= bundle.c.groups.n_outer:
        raise ValueError(f"{len(outs)} results of {n}, outer chunks {first} to {last} of {bundle.c.groups.n_outer}")
    if first == last:
        return None
    memset(&job, 0, sizeof(job))
    job.bundle = &bundle.c
    job.batch.layout = &bundle.layout.c
    job.batch.place.directory = -1
    job.batch.poll = check_signals
    job.batch.next, job.batch.n_tasks = bundle.c.groups.outer_start[first], bundle.c.groups.outer_start[last]
    job.batch.missing_is_fault = missing_is_fault
    if inner is None:
        given = attach(&job.batch, folder, outer, first, last)
    else:
        given = Buffers(inner, job.batch.n_tasks - job.batch.next)
        job.batch.inner = given.items - job.batch.next
    views = <Py_buffer *> calloc(n, sizeof(Py_buffer))
    part = <zs_batch *> malloc(n * sizeof(zs_batch))
    try:
        if views == NULL or part == NULL:
            raise MemoryError
        memcpy(part, bundle.part, n * sizeof(zs_batch))
        job.part = part
        for k in range(n):
            PyObject_GetBuffer(outs[k], &views[k], PyBUF_STRIDES | PyBUF_WRITABLE)
            have += 1
            if part[k].n_tasks:
                strides_of(<Plan> bundle.plans[k], &views[k], &part[k].memory, part[k].stride)
            part[k].cache = job.batch.cache
            part[k].keeps_chunks = job.batch.keeps_chunks
            part[k].owner = job.batch.owner
        with nogil:
            zs_many_run(&job, useful(&job.batch, threads))
        if zs_shared.thrash >= thrash_limit:
            hint()
        return fault_of(&job.batch.fault, bundle.layout.c.ndim)
    finally:
        for k in range(have):
            PyBuffer_Release(&views[k])
        free(views)
        free(part)


def read_joined(list parts, *, int threads=1):
    """Fill memory with items of several arrays, as `read` does, in one batch.

    Each part is (plan, layout, folder, out, missing_is_fault, anything); its plan may be one for another layout of the
    same form (see `Layout.form`). Returns None, or a part and its first fault, or the OSError of its folder.
    """
    cdef zs_join job
    cdef Plan plan
    cdef Layout layout
    cdef Py_ssize_t k, have = 0, n = len(parts)
    cdef int64_t size = 0
    cdef Py_buffer *views = <Py_buffer *> calloc(n + 1, sizeof(Py_buffer))
    cdef zs_batch *part = <zs_batch *> malloc((n + 1) * sizeof(zs_batch))
    cdef int64_t *start = <int64_t *> malloc((n + 1) * sizeof(int64_t))
    memset(&job, 0, sizeof(job))
    try:
        if views == NULL or part == NULL or start == NULL:
            raise MemoryError
        start[0] = 0
        for k in range(n):
            own, form, folder, out, missing_is_fault, _ = <tuple?> parts[k]
            plan, layout = own, form
            if plan.layout is not layout and not zs_is_alike(&plan.layout.c, &layout.c):
                raise ValueError("a plan for chunks of another form")
            if layout.c.chunk_size >= ZS_LONG_SIZE:
                raise ValueError(f"chunks of {layout.c.chunk_size} bytes, expected fewer than {ZS_LONG_SIZE}")
            prepare(&part[k], plan, None)
            part[k].layout = &layout.c
            part[k].missing_is_fault = missing_is_fault
            start[k + 1] = start[k] + part[k].n_tasks
            if part[k].n_tasks == 0:
                continue
            try:
                attach(&part[k], folder, None, 0, 0)
            except OSError as error:
                return parts[k], error
            PyObject_GetBuffer(out, &views[k], PyBUF_STRIDES | PyBUF_WRITABLE)
            have = k + 1
            strides_of(plan, &views[k], &part[k].memory, part[k].stride)
            size += part[k].n_tasks * layout.c.chunk_size
        if start[n] == 0:
            return None
        job.n, job.part, job.start = n, part, start
        job.batch.layout = part.layout
        job.batch.poll = check_signals
        job.batch.n_tasks = start[n]
        with nogil:
            zs_join_run(&job, 1 if size < ALONE_SIZE else threads)
        if zs_shared.thrash >= thrash_limit:
            hint()
        fault = fault_of(&job.batch.fault, part[job.batch.fault.part].layout.ndim)
        return None if fault is None else (parts[job.batch.fault.part], fault)
    finally:
        for k in range(have):
            PyBuffer_Release(&views[k])  # does nothing where none was taken
        free(views)
        free(part)
        free(start)


def write(Plan plan, value, *, Folder folder=None, list outer=None, str document="", bint durable=False,
          bint skip_empty=True, tuple window=None, int threads=1, bint is_known=False):
    """Store `value` (of the plan's shape; for points 1-d) in the files of `folder`, or over given bytes.

    `document` is the array's metadata document in `folder`, through which chunks are locked ("": no locks); with
    `is_known`, the fault ESTALE says that it is another one than the folder knows. Without a folder, `outer` holds
    the stored bytes of every outer chunk (None: missing, or replaced whole). `window` limits
    the work (and that list) to those outer chunks of the plan. Returns (fault, results): the first fault or None, and
    per outer chunk None (unchanged), bytes (its new value) or False (to be removed).
    """
    cdef zs_write_job job
    cdef Py_buffer view
    cdef Buffers given
    cdef bytes name = os.fsencode(document)
    cdef zs_identity known
    cdef int64_t k, first, last
    cdef zs_result *made = NULL
    cdef list results = []
    first, last = window or (0, plan.outer_count)
    memset(&job, 0, sizeof(job))
    prepare(&job.batch, plan, window)
    if job.batch.n_tasks == job.batch.next:
        return None, results
    job.skip_empty = skip_empty
    job.batch.place.document = name
    job.batch.place.is_durable = durable
    if is_known and folder is not None and folder.stretches is None:
        folder.follow()
    given = attach(&job.batch, folder, outer, first, last)
    if folder is not None:
        if folder.stretches is not None:
            raise ValueError("chunks that are stretches of files cannot be written")
        zs_say(&folder.has_written)
        if is_known:
            with cython.critical_section(folder):
                known = folder.document
            job.batch.place.known = &known
    else:
        made = <zs_result *> calloc(last - first + 1, sizeof(zs_result))
        if made == NULL:
            raise MemoryError
        job.result = made - first
    try:
        PyObject_GetBuffer(value, &view, PyBUF_STRIDES)
        try:
            strides_of(plan, &view, &job.batch.memory, job.batch.stride)
            with nogil:
                zs_write_run(&job, useful(&job.batch, threads))
        finally:
            PyBuffer_Release(&view)
        if made != NULL:
            for k in range(last - first):
                if made[k].kind == ZS_REPLACED and made[k].data != NULL:
                    results.append(PyBytes_FromStringAndSize(made[k].data, made[k].size))
                else:
                    results.append(False if made[k].kind == ZS_REMOVED else None)
        return fault_of(&job.batch.fault, plan.layout.c.ndim), results
    finally:
        if made != NULL:
            for k in range(last - first):
                free(made[k].data)
            free(made)
