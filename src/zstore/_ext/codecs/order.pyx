"""Items with parts of either byte order, turned round by a native codec."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t


cdef extern from "zstore_codec.h" nogil:
    const char *ZSTORE_CODEC_CAPSULE
    ctypedef struct zstore_codec:
        void (*destroy)(zstore_codec *) noexcept nogil

cdef extern from "order.h" nogil:
    const int ZS_ORDER_PARTS
    ctypedef struct zs_order_part:
        int64_t offset
        int64_t unit
        int64_t count
    ctypedef struct zs_order_params:
        int64_t item
        int64_t n_parts
        zs_order_part part[64]
    zstore_codec *zs_order_new(const zs_order_params *params)


PART_LIMIT = ZS_ORDER_PARTS


cdef void _destroy(object capsule) noexcept:
    cdef zstore_codec *codec = <zstore_codec *> PyCapsule_GetPointer(capsule, ZSTORE_CODEC_CAPSULE)
    codec.destroy(codec)


def turn(int64_t item_size, tuple parts):
    """A capsule that reverses the (offset, unit, count) `parts` of every item: units of 2, 4, 8 or 16 bytes."""
    cdef zs_order_params params
    cdef int64_t offset, unit, count
    if not 0 < item_size <= 1 << 31:
        raise ValueError(f"item_size is {item_size}, expected 1 to 2^31")
    if len(parts) > ZS_ORDER_PARTS:
        raise ValueError(f"there are {len(parts)} parts, expected at most {ZS_ORDER_PARTS}")
    params.item = item_size
    params.n_parts = len(parts)
    for index in range(len(parts)):
        offset, unit, count = parts[index]
        if unit not in (2, 4, 8, 16) or not 0 <= offset <= item_size or not 0 <= count <= (item_size - offset) // unit:
            raise ValueError(f"part {parts[index]} does not lie in an item of {item_size} bytes")
        params.part[index].offset = offset
        params.part[index].unit = unit
        params.part[index].count = count
    cdef zstore_codec *codec = zs_order_new(&params)
    if codec == NULL:
        raise MemoryError
    return PyCapsule_New(codec, ZSTORE_CODEC_CAPSULE, _destroy)
