"""Files below one directory as values: read, and replaced atomically, without following links out of it."""

import errno
import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, errno as error_number
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memchr, memcpy


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bytes PyUnicode_EncodeFSDefault(object text)

cdef extern from *:
    """
    #include "put.h"
    """
    enum:
        O_NONBLOCK, O_RDONLY, PATH_MAX, ZS_PLACE
    const char *ZS_SCRATCH

    struct stat:
        int64_t st_size
        unsigned int st_mode

    ctypedef struct zs_place:
        int directory
        const char *document
        int is_durable
        const char *root
        const char *path
        const char *allowed

    ctypedef struct zs_parent:
        int file
        int has_used_scratch
        int is_new
        int is_there

    ctypedef struct zs_part:
        const char *data
        int64_t start "from"
        int64_t size

    int zs_has_no_openat2
    int zs_stat(const char *path, stat *) nogil
    bint S_ISREG(unsigned int) nogil
    bint S_ISDIR(unsigned int) nogil
    int zs_close "close" (int file) nogil
    int zs_open_root(const char *path, int flags) nogil
    int zs_make_root(const char *path) nogil
    int zs_open_directory(const zs_place *, const char *path) nogil
    int zs_open_linked(const zs_place *, const char *key, int flags) nogil
    int zs_open_value(const zs_place *, const char *key, int flags, int is_alone, zs_parent *, stat *) nogil
    int64_t zs_pread(int file, char *to, int64_t size, int64_t offset) nogil
    int zs_put(const zs_place *, const char *key, const zs_part *, int n, int old, zs_parent *) nogil
    int zs_remove(const zs_place *, const char *key, zs_parent *) nogil
    void zs_prune(const zs_place *, char *key, zs_parent *) nogil
    void zs_parent_close(zs_parent *) nogil
    void zs_leave_scratch(int directory) nogil
    int64_t zs_lock_offset(const char *key) nogil
    ctypedef struct flock_range "struct flock":
        pass
    flock_range zs_lock_range(int is_held, int64_t offset, int64_t length) nogil
    const int ZS_WAIT_FOR_LOCK


# The fcntl command that waits for a lock of a byte range; -1 if the system has no such locks.
WAIT_FOR_LOCK = ZS_WAIT_FOR_LOCK

# The flags to open a file without reading it: O_PATH, or plain ones on systems that do not have it.
O_PATH = ZS_PLACE

# The directory of a store's temporary files, and the prefix of the names of those that are elsewhere.
SCRATCH = ZS_SCRATCH.decode()


def use_openat2(bint is_used):
    """Choose whether openat2 keeps paths below their directory, if the system has it, or a check of the path first."""
    global zs_has_no_openat2
    zs_has_no_openat2 = not is_used


def lock_offset(bytes key):
    """The byte of a lock file that stands for a key: the low 62 bits of the key's FNV-1a hash."""
    return zs_lock_offset(key)


def lock_range(bint is_held, int64_t offset, int64_t length):
    """The bytes of a `struct flock` that sets (or, with `is_held` false, removes) a write lock of a byte range."""
    cdef flock_range record = zs_lock_range(is_held, offset, length)
    return (<char *> &record)[:sizeof(record)]


def pread(int file, int64_t begin, int64_t size):
    """Read `size` bytes of an open file from `begin`, fewer at its end."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef char *to = PyBytes_AS_STRING(data)
    cdef int64_t have
    with nogil:
        have = zs_pread(file, to, size, begin)
    if have < 0:
        raise failure(error_number)
    return data if have == size else data[:have]


def file_mode(str path):
    """The type and permissions of the file at a path, 0 where there is none: `os.stat` that raises no error for it."""
    cdef bytes name = encoded(path)
    cdef const char *at = name
    cdef stat status
    cdef int failed
    if b"\0" in name:
        raise ValueError(f"a NUL in the path {path!r}")
    with nogil:
        failed = zs_stat(at, &status)
    if failed and error_number != ENOENT:
        raise failure(error_number, path)
    return 0 if failed else status.st_mode


cdef failure(int number, str path=None, str reason=None):
    return OSError(number, reason or os.strerror(number), path)


cdef bytes encoded(str path):
    cdef bytes name = PyUnicode_EncodeFSDefault(path)
    if len(name) >= PATH_MAX:
        raise failure(ENAMETOOLONG, path)
    return name


cdef enum:
    MOST_DIGITS = 20


cdef inline bint breaks_line(const char *text, Py_ssize_t size) noexcept:
    """Whether a text has a character that is escaped in lines."""
    return (memchr(text, c"\n", size) or memchr(text, c"\\", size) or memchr(text, c"\r", size) or
            memchr(text, 0, size)) != NULL


def entry_lines(list entries, Py_ssize_t skip):
    """A line "key NUL size NUL version" for each entry, without so many bytes of its key, and the size of all.

    None where a key or a version cannot stand in a line as it is (it has a line end, a NUL, a backslash or half of a
    surrogate pair), or the size of all takes more than 63 bits.
    """
    cdef Py_ssize_t size, version_size
    cdef const char *key
    cdef const char *version
    cdef char digits[MOST_DIGITS]
    cdef char *at
    cdef int count
    cdef int64_t number, rest, total = 0
    cdef bytes line
    cdef list lines = []
    if skip < 0:
        raise ValueError(f"cannot leave out {skip} bytes")
    for name, length, stamp in entries:
        version, version_size = b"", 0
        try:
            key = PyUnicode_AsUTF8AndSize(name, &size)
            if stamp is not None:
                version = PyUnicode_AsUTF8AndSize(stamp, &version_size)
            number = rest = length
        except (UnicodeEncodeError, OverflowError):
            return None
        if size < skip or breaks_line(key + skip, size - skip) or breaks_line(version, version_size):
            return None
        key, size = key + skip, size - skip
        if number < 0 or number > INT64_MAX - total:
            return None
        total += number
        count = 0
        while rest or not count:
            count += 1
            digits[MOST_DIGITS - count] = <char> (c"0" + rest % 10)
            rest //= 10
        line = PyBytes_FromStringAndSize(NULL, size + count + version_size + 2)
        at = PyBytes_AS_STRING(line)
        memcpy(at, key, size)
        at[size] = 0
        memcpy(at + size + 1, digits + MOST_DIGITS - count, count)
        at[size + 1 + count] = 0
        memcpy(at + size + count + 2, version, version_size)
        lines.append(line)
    return lines, total


@cython.no_gc  # there is no cycle: one that is held is older
cdef class Tree:
    """The open directory `root`, or its directory `path`, for one thread; keys are paths below it.

    Links are followed as long as they stay below it, or lead into one of the directories of `allowed`: their real
    paths, each with a NUL at its end. `durable` waits until every change is on the disk (fsync). The directory of a
    tree that is `held` is not opened again, if it was opened for that. `make` makes it in the one above, if it is
    missing, unless that has to be on the disk.

    Raises
        OSError: as the system says, with the key as its `filename`. EXDEV: a symbolic link leads out of `root`;
            ENOLINK: to nothing; ELOOP: back to a directory above.
    """

    cdef zs_place place
    cdef zs_parent parent
    cdef bint has_read
    cdef bytes allowed, root, path
    cdef Tree held

    def __cinit__(self, str root, *, bint durable=False, bytes allowed=None, Tree held=None, bint make=False,
                  str path=""):
        cdef int below
        self.place.directory = self.parent.file = -1
        self.allowed = allowed
        if allowed is not None:
            self.place.allowed = allowed
        self.place.is_durable = durable
        if held is not None and held.place.is_durable >= durable:
            self.held, self.place.directory = held, held.place.directory
            return
        cdef bytes name = encoded(root)
        cdef const char *at = name
        if b"\0" in name:
            raise ValueError(f"a NUL in the path {root!r}")
        with nogil:
            self.place.directory = zs_open_root(at, O_RDONLY if durable else ZS_PLACE)
            if self.place.directory < 0 and error_number == ENOENT and make and not durable:
                self.place.directory = zs_make_root(at)
        if self.place.directory < 0:
            raise failure(error_number, root)
        if not path:
            return
        self.path = encoded(path)
        at = self.path
        with nogil:
            below = zs_open_directory(&self.place, at)
        if below < 0:
            raise failure(error_number, path)
        zs_close(self.place.directory)
        self.root, self.place.directory = name, below
        self.place.root, self.place.path = self.root, self.path

    def __dealloc__(self):
        if self.place.directory >= 0:
            zs_parent_close(&self.parent)
            if self.parent.has_used_scratch:
                zs_leave_scratch(self.place.directory)
            if self.held is None:
                zs_close(self.place.directory)

    @property
    def directory(self):
        """The descriptor of the root, which can be worked in."""
        return self.place.directory

    def open(self, str path, int flags):
        """Open an existing file or directory, "" for the root; gives the descriptor."""
        cdef int file = self.reach(path, flags)
        if file < 0:
            raise failure(-file, path)
        return file

    def find(self, str path, int flags):
        """As `open`; -1 where there is none."""
        cdef int file = self.reach(path, flags)
        if file < 0 and file != -ENOENT and file != -ENOTDIR:
            raise failure(-file, path)
        return max(file, -1)

    cdef int reach(self, str path, int flags) except? -1:
        """The descriptor of a file, or the number of an error below 0."""
        cdef bytes name = encoded(path or ".")
        cdef const char *at = name
        cdef int file
        with nogil:
            file = zs_open_linked(&self.place, at, flags)
            if file < 0:
                file = -error_number
        return file

    def get(self, str key, byte_range=None):
        """The value of a key, or a byte range of it; None if there is no such file."""
        cdef stat status
        cdef int file = self.open_value(key, O_RDONLY | O_NONBLOCK, &status)  # a pipe must not make us wait
        if file < 0:
            return None
        try:
            begin, end = (0, status.st_size) if byte_range is None else byte_range.resolve(status.st_size)
            return pread(file, begin, end - begin)
        finally:
            zs_close(file)

    def size(self, str key):
        """The bytes of a value; None if there is no such file."""
        cdef stat status
        cdef int file = self.open_value(key, ZS_PLACE, &status)
        if file < 0:
            return None
        zs_close(file)
        return status.st_size

    cdef int open_value(self, str key, int flags, stat *status) except -2:
        """Open the file of a key; -1 if there is none."""
        cdef bytes name = encoded(key)
        cdef const char *at = name
        cdef int file, is_alone = flags == ZS_PLACE or not self.has_read
        self.has_read = True
        with nogil:
            file = zs_open_value(&self.place, at, flags, is_alone, &self.parent, status)
        if file >= 0 and S_ISREG(status.st_mode):
            return file
        if file >= 0:
            zs_close(file)
            if not S_ISDIR(status.st_mode):
                raise failure(errno.EINVAL, key, "expected a plain file, found a special one")
        elif error_number != ENOENT and error_number != ENOTDIR:
            raise failure(error_number, key)
        return -1

    def put(self, str key, value, *, bint is_new=False, bint is_there=False):
        """Replace the file `key` by `value` atomically; missing directories are made. EEXIST: it `is_new`, and there.

        is_there  no directory is made, as the file is there; ENOENT: its directory was removed
        """
        cdef bytes name = encoded(key)
        cdef const char *at = name
        cdef Py_buffer view
        cdef zs_part part
        cdef int number
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        self.parent.is_new, self.parent.is_there = is_new, is_there
        part.data, part.size = <const char *> view.buf if view.len else at, view.len  # an empty buffer may be NULL
        with nogil:
            number = error_number if zs_put(&self.place, at, &part, 1, -1, &self.parent) else 0
        PyBuffer_Release(&view)
        if number:
            raise failure(number, key)

    def put_file(self, str key, int file, int64_t size):
        """Replace the file `key` by the first `size` bytes of an open file, as `put` does."""
        cdef bytes name = encoded(key)
        cdef const char *at = name
        cdef zs_part part
        cdef int number
        part.data, part.start, part.size = NULL, 0, size
        with nogil:
            number = error_number if zs_put(&self.place, at, &part, 1, file, &self.parent) else 0
        if number:
            raise failure(number, key)

    def delete(self, str key):
        """Remove the file `key`, if it exists, and directories that are empty without it."""
        cdef bytes name = encoded(key)
        cdef char path[PATH_MAX]
        cdef int done
        memcpy(path, <const char *> name, len(name) + 1)
        with nogil:
            done = zs_remove(&self.place, path, &self.parent)
            if done == 0:
                zs_prune(&self.place, path, &self.parent)
        if done < 0 and error_number != EISDIR:
            raise failure(error_number, key)

    def prune(self, str path):
        """Remove the empty directories above `path`, as far as possible."""
        cdef bytes name = encoded(path)
        cdef char above[PATH_MAX]
        memcpy(above, <const char *> name, len(name) + 1)
        with nogil:
            zs_prune(&self.place, above, &self.parent)
