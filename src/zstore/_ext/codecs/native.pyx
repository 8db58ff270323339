"""Capsules of the built-in native codecs, and functions that call the codec in any capsule."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_XDECREF
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *source, Py_ssize_t size) except NULL
    char *PyBytes_AS_STRING(PyObject *target) nogil
    int _PyBytes_Resize(PyObject **target, Py_ssize_t size) except -1
    const Py_ssize_t PY_SSIZE_T_MAX

cdef extern from "zstore_codec.h" nogil:
    const char *ZSTORE_CODEC_CAPSULE
    int64_t ZSTORE_EDAMAGED
    int64_t ZSTORE_ECAPACITY
    int64_t ZSTORE_ECHECKSUM
    int64_t ZSTORE_EMEMORY
    ctypedef struct zstore_codec:
        uint32_t struct_size
        void *state
        size_t (*encode_bound)(const void *, size_t) noexcept nogil
        int64_t (*encode)(const void *, const void *, size_t, void *, size_t) noexcept nogil
        int64_t (*decode)(const void *, const void *, size_t, void *, size_t) noexcept nogil
        void (*destroy)(zstore_codec *) noexcept nogil
        int64_t (*decode_range)(const void *, const void *, size_t, size_t, size_t, void *, size_t) noexcept nogil
        int64_t (*decoded_size)(const void *, const void *, size_t) noexcept nogil

cdef extern from *:
    """
    #define ZS_HAS_RANGE(codec) ZSTORE_CODEC_HAS(codec, decode_range)
    #define ZS_HAS_SIZE(codec) ZSTORE_CODEC_HAS(codec, decoded_size)
    #define ZS_BASE_SIZE (offsetof(zstore_codec, destroy) + sizeof(void (*)(void)))
    """
    bint ZS_HAS_RANGE(zstore_codec *) noexcept nogil
    bint ZS_HAS_SIZE(zstore_codec *) noexcept nogil
    const uint32_t ZS_BASE_SIZE

cdef extern from "zstd.h" nogil:
    zstore_codec *zs_zstd_new(int level, int checksum)

cdef extern from "deflate.h" nogil:
    const int ZS_GZIP
    const int ZS_ZLIB
    zstore_codec *zs_deflate_new(int format, int level)

cdef extern from "lz4.h" nogil:
    zstore_codec *zs_lz4_new(int acceleration)

cdef extern from "lookup3.h" nogil:
    uint32_t zs_lookup3(const uint8_t *data, size_t size)

cdef extern from "lzw.h" nogil:
    zstore_codec *zs_lzw_new()

cdef extern from "crc32c.h" nogil:
    zstore_codec *zs_crc32c_new(int at_start)
    uint32_t zs_crc32c_extend(uint32_t crc, const void *data, size_t size)
    uint32_t zs_crc32c_portable(uint32_t crc, const uint8_t *data, size_t size)

cdef extern from "blosc.h" nogil:
    zstore_codec *zs_blosc_new(int compressor, int level, int shuffle, int typesize, int blocksize)

cdef extern from "filters.h" nogil:
    const int ZS_FILTER_DISTANCE
    zstore_codec *zs_shuffle_new(int64_t item)
    zstore_codec *zs_delta_new(int64_t item, int64_t row, int64_t distance, int is_big)
    zstore_codec *zs_planes_new(int64_t item, int64_t row, int64_t distance)

cdef extern from "order.h" nogil:
    const int ZS_ORDER_PARTS
    ctypedef struct zs_order_part:
        int64_t offset, unit, count
    ctypedef struct zs_order_params:
        int64_t item, n_parts
        zs_order_part part[64]
    zstore_codec *zs_order_new(const zs_order_params *params)


PART_LIMIT = ZS_ORDER_PARTS
DISTANCE_LIMIT = ZS_FILTER_DISTANCE

BLOSC_COMPRESSORS = {"blosclz": 0, "lz4": 1, "lz4hc": 2, "zlib": 4, "zstd": 5}

# The output buffer to begin with if the encoded bytes do not tell their decoded size; pages that are never written
# cost nothing.
cdef size_t FIRST_ROOM = 64 << 20


cdef void _destroy(object capsule) noexcept:
    cdef zstore_codec *codec = <zstore_codec *> PyCapsule_GetPointer(capsule, ZSTORE_CODEC_CAPSULE)
    codec.destroy(codec)


cdef object _capsule(zstore_codec *codec):
    if codec == NULL:
        raise MemoryError
    return PyCapsule_New(codec, ZSTORE_CODEC_CAPSULE, _destroy)


cdef zstore_codec *_codec(object capsule) except NULL:
    cdef zstore_codec *codec = <zstore_codec *> PyCapsule_GetPointer(capsule, ZSTORE_CODEC_CAPSULE)
    if codec.struct_size < ZS_BASE_SIZE or codec.encode_bound == NULL or codec.encode == NULL or codec.decode == NULL:
        raise TypeError(
            f"the capsule's struct has {codec.struct_size} bytes, expected at least {ZS_BASE_SIZE}"
            " and encode_bound, encode and decode"
        )
    return codec


cdef int _between(str name, int64_t value, int64_t low, int64_t high) except -1:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, expected {low} to {high}")
    return 0


def zstd(int level=3, bint checksum=False):
    """A capsule for Zstandard frames."""
    _between("level", level, -131072, 22)
    return _capsule(zs_zstd_new(level, checksum))


def gzip(int level=6):
    """A capsule for gzip members; -1 is zlib's default level."""
    _between("level", level, -1, 9)
    return _capsule(zs_deflate_new(ZS_GZIP, level))


def zlib(int level=6):
    """A capsule for zlib streams; -1 is zlib's default level."""
    _between("level", level, -1, 9)
    return _capsule(zs_deflate_new(ZS_ZLIB, level))


def lz4(int acceleration=1):
    """A capsule for numcodecs' LZ4 format."""
    return _capsule(zs_lz4_new(acceleration))


def lzw():
    """A capsule for TIFF's LZW."""
    return _capsule(zs_lzw_new())


def crc32c(bint at_start=False):
    """A capsule for the CRC-32C codec, which stores the checksum after the bytes or, with `at_start`, before them."""
    return _capsule(zs_crc32c_new(at_start))


def blosc(str cname="lz4", int clevel=5, int shuffle=1, int typesize=1, int blocksize=0):
    """A capsule for Blosc1 frames; `shuffle` is 0 for none, 1 for bytes, 2 for bits."""
    if cname not in BLOSC_COMPRESSORS:
        raise ValueError(f"cname is {cname!r}, expected one of {', '.join(BLOSC_COMPRESSORS)}")
    _between("clevel", clevel, 0, 9)
    _between("shuffle", shuffle, 0, 2)
    _between("typesize", typesize, 1, 255)
    _between("blocksize", blocksize, 0, 0x7FFFFFFF)
    return _capsule(zs_blosc_new(BLOSC_COMPRESSORS[cname], clevel, shuffle, typesize, blocksize))


def shuffle(int64_t item_size):
    """A capsule for the byte shuffle of HDF5 and numcodecs: the first bytes of all items, then the second ones, ..."""
    _between("item_size", item_size, 1, 1 << 31)
    return _capsule(zs_shuffle_new(item_size))


def delta(int64_t item_size, int64_t row, int64_t distance=1, *, bint is_big=False):
    """A capsule for TIFF's predictor 2: rows of `row` integers, as differences to the one `distance` before."""
    if item_size not in (1, 2, 4, 8):
        raise ValueError(f"item_size is {item_size}, expected 1, 2, 4 or 8")
    _between("row", row, 1, 1 << 31)
    _between("distance", distance, 1, ZS_FILTER_DISTANCE)
    return _capsule(zs_delta_new(item_size, row, distance, is_big))


def planes(int64_t item_size, int64_t row, int64_t distance=1):
    """A capsule for TIFF's predictor 3: rows of `row` little-endian floats, as differences of their shuffled bytes."""
    _between("item_size", item_size, 1, 16)
    _between("row", row, 1, 1 << 31)
    _between("distance", distance, 1, ZS_FILTER_DISTANCE)
    return _capsule(zs_planes_new(item_size, row, distance))


def swap_parts(int64_t item_size, tuple parts):
    """A capsule that swaps bytes in (offset, unit, count) `parts` of every item: in units of 2, 4, 8 or 16 bytes."""
    cdef zs_order_params params
    cdef int64_t offset, unit, count
    _between("item_size", item_size, 1, 1 << 31)
    _between("the number of parts", len(parts), 0, ZS_ORDER_PARTS)
    params.item = item_size
    params.n_parts = len(parts)
    for index, (offset, unit, count) in enumerate(parts):
        if unit not in (2, 4, 8, 16) or not 0 <= offset <= item_size or not 0 <= count <= (item_size - offset) // unit:
            raise ValueError(f"part {parts[index]} does not lie in an item of {item_size} bytes")
        params.part[index] = zs_order_part(offset, unit, count)
    return _capsule(zs_order_new(&params))


cdef object _failure(int64_t status, str verb):
    """The exception for a codec's negative status."""
    if status == ZSTORE_EDAMAGED:
        return ValueError("the encoded bytes are damaged")
    if status == ZSTORE_ECAPACITY:
        return BufferError(f"{verb} to more bytes than allowed")
    if status == ZSTORE_ECHECKSUM:
        return ArithmeticError("the stored checksum does not match the bytes")
    if status == ZSTORE_EMEMORY:
        return MemoryError()
    return RuntimeError(f"the codec library refused (status {status})")


cdef object _finished(PyObject *room, size_t capacity, int64_t size):
    """The bytes object that a codec wrote to, shrunk to `size`; takes over the reference."""
    if <size_t> size > capacity:
        Py_XDECREF(room)
        raise RuntimeError(f"the codec wrote {size} bytes, at most {capacity} allowed")
    if <size_t> size < capacity:
        _PyBytes_Resize(&room, size)
    result = <object> room
    Py_DECREF(result)
    return result


def encode(capsule, data):
    """Encode `data` by the codec of `capsule`, without the GIL.

    Raises
        BufferError: more bytes than the codec can encode.
        RuntimeError: the codec library refused.
    """
    cdef zstore_codec *codec = _codec(capsule)
    cdef Py_buffer view
    cdef PyObject *room = NULL
    cdef size_t capacity
    cdef int64_t status
    cdef void *target
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        capacity = codec.encode_bound(codec.state, view.len)
        if capacity > <size_t> PY_SSIZE_T_MAX:
            raise BufferError(f"{view.len} bytes are more than the codec can encode")
        room = PyBytes_FromStringAndSize(NULL, capacity)
        target = PyBytes_AS_STRING(room)
        with nogil:
            status = codec.encode(codec.state, view.buf, view.len, target, capacity)
    finally:
        PyBuffer_Release(&view)
    if status < 0:
        Py_XDECREF(room)
        raise _failure(status, "encodes")
    return _finished(room, capacity, status)


def decode(capsule, data, Py_ssize_t size_limit, exact_size=None):
    """Decode `data` by the codec of `capsule`, without the GIL.

    Never allocates more than `size_limit` bytes; with `exact_size`, any other decoded size is an error.

    Raises
        ValueError: damaged, or of another size than `exact_size`.
        BufferError: decodes to more than `size_limit` bytes.
        ArithmeticError: a stored checksum does not match.
    """
    cdef zstore_codec *codec = _codec(capsule)
    cdef Py_buffer view
    cdef PyObject *room = NULL
    cdef size_t limit = max(size_limit, 0), capacity
    cdef int64_t status, claimed = -1
    cdef void *target
    if exact_size is not None:
        limit = min(limit, <size_t> exact_size)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if ZS_HAS_SIZE(codec):
            claimed = codec.decoded_size(codec.state, view.buf, view.len)
        if claimed >= 0 and <size_t> claimed > limit:
            raise BufferError(f"the bytes claim to hold {claimed} bytes, at most {limit} allowed")
        capacity = claimed if claimed >= 0 else min(limit, max(FIRST_ROOM, 8 * <size_t> view.len))
        while True:
            room = PyBytes_FromStringAndSize(NULL, capacity)
            target = PyBytes_AS_STRING(room)
            with nogil:
                status = codec.decode(codec.state, view.buf, view.len, target, capacity)
            if status != ZSTORE_ECAPACITY or capacity >= limit:
                break
            Py_XDECREF(room)
            room = NULL
            capacity = min(limit, max(2 * FIRST_ROOM, 4 * capacity))
    finally:
        PyBuffer_Release(&view)
    if status < 0:
        Py_XDECREF(room)
        if status == ZSTORE_ECAPACITY:
            raise BufferError(f"decodes to more than the {limit} bytes allowed")
        raise _failure(status, "decodes")
    if exact_size is not None and status != exact_size:
        Py_XDECREF(room)
        raise ValueError(f"decodes to {status} bytes, expected {exact_size}")
    return _finished(room, capacity, status)


def decode_range(capsule, data, Py_ssize_t start, Py_ssize_t size):
    """Decode only bytes `start` to `start + size`; None if the codec cannot do that.

    Raises
        ValueError: damaged, or the decoded bytes are fewer.
    """
    cdef zstore_codec *codec = _codec(capsule)
    cdef Py_buffer view
    cdef PyObject *room = NULL
    cdef int64_t status
    cdef void *target
    if not ZS_HAS_RANGE(codec):
        return None
    if start < 0 or size < 0:
        raise ValueError(f"range is {size} bytes from {start}, expected neither to be negative")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        room = PyBytes_FromStringAndSize(NULL, size)
        target = PyBytes_AS_STRING(room)
        with nogil:
            status = codec.decode_range(codec.state, view.buf, view.len, start, size, target, size)
    finally:
        PyBuffer_Release(&view)
    if status != size:
        Py_XDECREF(room)
        raise _failure(status, "decodes") if status < 0 else RuntimeError(f"the codec wrote {status} bytes of {size}")
    return _finished(room, size, status)


def decoded_size(capsule, data):
    """The decoded size that `data` states, not verified; None if it states none."""
    cdef zstore_codec *codec = _codec(capsule)
    cdef Py_buffer view
    cdef int64_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        size = codec.decoded_size(codec.state, view.buf, view.len) if ZS_HAS_SIZE(codec) else -1
    finally:
        PyBuffer_Release(&view)
    return size if size >= 0 else None


def encoded_bound(capsule, size_t size):
    """The most bytes that `size` bytes can become when encoded; None if the codec cannot encode so many."""
    cdef zstore_codec *codec = _codec(capsule)
    cdef size_t bound = codec.encode_bound(codec.state, size)
    return bound if bound <= <size_t> PY_SSIZE_T_MAX else None


def checksum_crc32c(data, uint32_t start=0, *, bint portable=False):
    """The CRC-32C of `data`, continuing from `start`; `portable` computes it without the CPU's instruction."""
    cdef Py_buffer view
    cdef uint32_t checksum
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            if portable:
                checksum = ~zs_crc32c_portable(~start, <const uint8_t *> view.buf, view.len)
            else:
                checksum = zs_crc32c_extend(start, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return checksum


def checksum_lookup3(bytes data not None):
    """The checksum of HDF5's metadata."""
    return zs_lookup3(<const uint8_t *> <const char *> data, len(data))
