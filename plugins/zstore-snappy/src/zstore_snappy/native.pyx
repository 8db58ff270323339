"""Snappy as a capsule that zstore's batch calls."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport uint64_t


cdef extern from "zstore_codec.h" nogil:
    const char *ZSTORE_CODEC_CAPSULE
    ctypedef struct zstore_codec:
        void (*destroy)(zstore_codec *) noexcept nogil

cdef extern from "snappy.h" nogil:
    zstore_codec *snappy_new()
    uint64_t snappy_decode_count()


cdef void _destroy(object capsule) noexcept:
    cdef zstore_codec *codec = <zstore_codec *> PyCapsule_GetPointer(capsule, ZSTORE_CODEC_CAPSULE)
    codec.destroy(codec)


def snappy():
    """The codec, as a capsule named "zstore.codec.v1"."""
    cdef zstore_codec *codec = snappy_new()
    if codec == NULL:
        raise MemoryError
    return PyCapsule_New(codec, ZSTORE_CODEC_CAPSULE, _destroy)


def decode_count():
    """How many blocks were decoded in this process."""
    return snappy_decode_count()
