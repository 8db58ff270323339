"""GETs and PUTs of many values at once by libcurl, made by the calling thread without the interpreter's lock."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport getpid


cdef extern from *:
    """
    #include "batch.h"
    """
    enum:
        ZS_DONE, ZS_REFUSED, ZS_UNSIZED, ZS_UNRANGED, ZS_BROKEN, ZS_STALLED, ZS_SLOW, ZS_UNASKED

    ctypedef struct zs_body:
        char *data
        int64_t room

    ctypedef struct zs_request:
        const char *url
        const char *range
        void *headers
        int64_t limit
        int is_open
        const char *content
        int64_t content_size
        int is_sent
        int outcome, status, failure
        int64_t begin, end, total
        const char *tag
        const char *version
        const char *kind
        const char *packing
        zs_body body
        int64_t size, held
        void *easy
        double asked, ended

    ctypedef struct zs_connections:
        const char *authorities
        int count

    ctypedef struct zs_terms:
        int most
        double connect_time, read_time, total_time
        int64_t progress_size

    ctypedef struct zs_batch:
        zs_connections *at
        zs_terms terms
        zs_request *requests
        int count, active, done, allowed
        int64_t most_size, held_size

    const char *zs_curl_trouble() nogil
    const char *zs_curl_version() nogil
    int zs_curl_puts() nogil
    const char *zs_curl_reason(int code) nogil
    void *zs_header_added(void *headers, const char *line) nogil
    void zs_headers_freed(void *headers) nogil
    void zs_begin(zs_batch *) nogil
    int zs_go_on(zs_batch *, double seconds) nogil
    int zs_room(zs_batch *) nogil
    void zs_ask(zs_batch *, zs_request *) nogil
    void zs_end(zs_batch *, zs_request *) nogil
    void zs_leave(zs_batch *) nogil
    void zs_body_give(zs_body *) nogil
    int zs_connections_open(zs_connections *) nogil
    void zs_connections_close(zs_connections *) nogil


# The outcomes of a request.
DONE = ZS_DONE
REFUSED = ZS_REFUSED
UNSIZED = ZS_UNSIZED
UNRANGED = ZS_UNRANGED
BROKEN = ZS_BROKEN
STALLED = ZS_STALLED
SLOW = ZS_SLOW
UNASKED = ZS_UNASKED

# Bytes of bodies that a stream gives at a time.
cdef enum:
    TAKEN_SIZE = 1048576
# Seconds between calls of `check` while answers are waited for.
cdef double HEARING = 0.05


def trouble():
    """Why libcurl cannot be used; "" if it can."""
    cdef const char *reason = zs_curl_trouble()
    return "" if reason is NULL else reason.decode()


def version():
    """The version of libcurl and of the libraries below it; "" if it cannot be used."""
    return "" if zs_curl_trouble() is not NULL else zs_curl_version().decode("utf-8", "replace")


def puts():
    """Whether libcurl can put values so that each is sent once."""
    return zs_curl_trouble() is NULL and bool(zs_curl_puts())


def reason_of(int code):
    """The words of libcurl for one of its codes."""
    return zs_curl_reason(code).decode("utf-8", "replace")


cdef class Answer:
    """What became of a request; its bytes are the body that came.

    outcome     one of those above
    size        of the body
    begin       where the body begins in the value, which has `total_size` bytes
    code        libcurl's
    seconds     since it was asked
    is_sent     whether a value to put was sent, and may be there
    """
    cdef zs_body memory
    cdef readonly Py_ssize_t size
    cdef readonly int outcome, status, code
    cdef readonly int64_t begin, total_size
    cdef readonly bytes tag, version, content_type, content_encoding
    cdef readonly double seconds
    cdef readonly bint is_sent

    @property
    def body(self):
        return memoryview(self)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory.data, self.size, 1, flags)

    def __dealloc__(self):
        zs_body_give(&self.memory)


cdef class Headers:
    """The header lines of requests, which may have them in common."""
    cdef void *lines

    def __cinit__(self, lines):
        cdef bytes line
        for line in lines:
            if zs_curl_trouble() is not NULL:
                raise OSError(f"libcurl: {trouble()}")
            self.lines = zs_header_added(self.lines, line)

    def __dealloc__(self):
        if self.lines is not NULL:
            zs_headers_freed(self.lines)


cdef class Connections:
    """Connections to one server that stay open between batches; of one thread at a time.

    authorities  the file with the certificates of those who sign servers' certificates; None: libcurl's own
    """
    cdef zs_connections at
    cdef bytes authorities
    cdef int process

    def __cinit__(self, bytes authorities=None):
        if zs_curl_trouble() is not NULL:
            raise OSError(f"libcurl: {trouble()}")
        self.authorities = authorities
        self.process = getpid()
        if authorities is not None:
            self.at.authorities = authorities
        if zs_connections_open(&self.at):
            raise MemoryError

    def __dealloc__(self):
        # Those of a forked process are its parent's, which goes on with them.
        if self.process == getpid():
            zs_connections_close(&self.at)

    @property
    def count(self):
        """The number of connections that are open, at most."""
        return self.at.count


@cython.no_gc_clear
cdef class Stream:
    """Requests that are given one by one, and whose answers are taken as they come, by one thread at a time.

    connections  that it uses; nobody else may meanwhile
    terms        (requests at once in this process, and seconds: for connecting, in which something must come,
                 and for each request; bytes of which each gives a body another such time, 0: any time)
    allowed      requests at once at the beginning; with each answer one more, as long as no body has to wait
    most_size    bytes of bodies that have begun to come and were not taken: others wait at the server, but for one
    places       requests that are under way or whose answers were not taken, at most
    """
    cdef Connections connections
    cdef zs_batch batch
    cdef list given, free

    def __cinit__(
        self, Connections connections not None, tuple terms, int allowed, int64_t most_size, int places=128
    ):
        self.connections = connections
        self.given, self.free = [None] * places, [*range(places)]
        prepare(&self.batch, &connections.at, places, terms)
        self.batch.allowed, self.batch.most_size = max(1, allowed), most_size
        zs_begin(&self.batch)

    def __dealloc__(self):
        self.leave()

    @property
    def room(self):
        """How many requests may begin now."""
        return min(len(self.free), zs_room(&self.batch))

    def ask(self, object name, tuple request, bytes content=None, bint is_open=False):
        """Begin a request; `name` is given back with its answer.

        request  (URL, range as "0-9", "10-" or "-10" or None, headers, most bytes of a whole value or -1)
        content  what it puts there, once at most: where that breaks off, whoever asked decides what it means
        is_open  whether the answer need not say how long it is
        """
        cdef int place = self.free.pop()
        cdef zs_request *one = &self.batch.requests[place]
        memset(one, 0, sizeof(zs_request))
        self.given[place] = name, request, content
        fill(one, request)
        one.is_open = is_open and one.limit >= 0
        if content is not None:
            one.content, one.content_size = content, len(content)
        zs_ask(&self.batch, one)

    def send(self):
        """Send what was asked for, as far as it goes without waiting."""
        with nogil:
            zs_go_on(&self.batch, 0)

    def take(self, check):
        """(name, answer) of some requests that have ended; none if none is under way.

        check  is called some times a second; after what it raises, requests are still under way

        Of bodies they bring no more than TAKEN_SIZE, but for one.
        """
        cdef int place, is_over = 0
        cdef int64_t size = 0
        cdef zs_request *one
        cdef list found = []
        while self.batch.active or self.batch.done:
            for place in range(self.batch.count):
                one = &self.batch.requests[place]
                if self.given[place] is not None and one.easy is NULL and (not found or size + one.size <= TAKEN_SIZE):
                    size += one.size
                    found.append(self.taken(place))
            if found:
                break
            with nogil:
                is_over = zs_go_on(&self.batch, HEARING)
            if is_over < 0:  # libcurl cannot go on: all that is under way is asked in another way
                for place in range(self.batch.count):
                    if self.batch.requests[place].easy is not NULL:
                        zs_end(&self.batch, &self.batch.requests[place])
            if not is_over:
                check()
        return found

    cdef tuple taken(self, int place):
        cdef zs_request *one = &self.batch.requests[place]
        name = self.given[place][0]
        answer = answer_of(one)
        self.batch.done -= 1
        self.batch.held_size -= one.held
        self.given[place] = None
        self.free.append(place)
        return name, answer

    cpdef void leave(self) noexcept:
        """End all requests; the connections of those that are under way are closed. Nothing may be asked after it."""
        cdef int place
        if self.batch.requests is NULL or self.connections.process != getpid():
            return
        with nogil:
            zs_leave(&self.batch)
            for place in range(self.batch.count):
                zs_body_give(&self.batch.requests[place].body)
            free(self.batch.requests)
        self.batch.requests = NULL


cdef void prepare(zs_batch *batch, zs_connections *at, int count, tuple terms) except *:
    memset(batch, 0, sizeof(zs_batch))
    batch.at = at
    batch.count = count
    batch.terms.most, batch.terms.connect_time, batch.terms.read_time = terms[:3]
    batch.terms.total_time, batch.terms.progress_size = terms[3:]
    batch.requests = <zs_request *>calloc(max(count, 1), sizeof(zs_request))
    if batch.requests is NULL:
        raise MemoryError


cdef void fill(zs_request *request, tuple given) except *:
    """Set what is asked for; the texts stay those of `given`."""
    cdef bytes url, span
    cdef Headers headers
    url, span, headers, request.limit = given
    request.url, request.headers = url, headers.lines
    if span is not None:
        request.range = span


cdef Answer answer_of(zs_request *request):
    cdef Answer answer = Answer.__new__(Answer)
    answer.memory, answer.size = request.body, request.size
    memset(&request.body, 0, sizeof(zs_body))
    answer.outcome = request.outcome if request.outcome >= ZS_DONE else ZS_UNASKED
    answer.status, answer.code = request.status, request.failure
    answer.begin, answer.total_size = request.begin, request.total
    answer.tag, answer.version = request.tag, request.version
    answer.content_type, answer.content_encoding = request.kind, request.packing
    answer.seconds = request.ended - request.asked if request.ended > 0 else 0.0
    answer.is_sent = request.is_sent
    return answer
