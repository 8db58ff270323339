"""Items of variable length: conversion between bytes of chunks, handles, and numpy's strings and objects."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from "vlen.h" nogil:
    enum:
        ZS_VLEN_HEADER
        ZS_VLEN_OK

    ctypedef struct zs_vlen_fault:
        int code
        int64_t item, got

    uint32_t zs_load32(const void *)
    void zs_store32(void *, uint32_t)
    void zs_vlen_scan(const uint8_t *, int64_t size, int64_t count, int is_text, const uint8_t *fill, int64_t fill_size,
                      uint64_t *handle, zs_vlen_fault *)
    int zs_has_numpy

# Declared here rather than cimported: numpy's declarations would load its C API with the module. This one is numpy
# 2's, and everything but strings must work without it.
cdef extern from "numpy/arrayobject.h" nogil:
    enum:
        NPY_VSTRING

    ctypedef struct PyArrayObject:
        pass
    ctypedef struct PyArray_Descr:
        int type_num
    ctypedef struct PyArray_StringDTypeObject:
        pass
    ctypedef struct npy_string_allocator:
        pass
    ctypedef struct npy_packed_static_string:
        pass
    ctypedef struct npy_static_string:
        size_t size
        const char *buf

    int _import_array() except -1 with gil
    bint PyArray_Check(object) with gil
    bint PyArray_ISCARRAY_RO(PyArrayObject *)
    bint PyArray_ISWRITEABLE(PyArrayObject *)
    PyArray_Descr *PyArray_DESCR(PyArrayObject *)
    void *PyArray_DATA(PyArrayObject *)
    Py_ssize_t PyArray_SIZE(PyArrayObject *)
    Py_ssize_t PyArray_ITEMSIZE(PyArrayObject *)
    npy_string_allocator *NpyString_acquire_allocator(const PyArray_StringDTypeObject *)
    void NpyString_release_allocator(npy_string_allocator *)
    int NpyString_load(npy_string_allocator *, const npy_packed_static_string *, npy_static_string *)
    int NpyString_pack(npy_string_allocator *, npy_packed_static_string *, const char *, size_t)


# In the order of the enum in vlen.h.
cdef tuple FAULTS = ("", "short", "count", "beyond", "text", "junk")
cdef int64_t LARGEST = 0xFFFFFFFF


cdef PyArrayObject *strings_of(object array) except NULL:
    """Check that an array is a C-contiguous one of numpy's StringDType, and give its C struct."""
    global zs_has_numpy
    if not zs_has_numpy:
        _import_array()
        zs_has_numpy = True
    cdef PyArrayObject *strings = <PyArrayObject *> array
    if not PyArray_Check(array) or PyArray_DESCR(strings).type_num != NPY_VSTRING:
        raise TypeError("expected an array of StringDType")
    if not PyArray_ISCARRAY_RO(strings):
        raise ValueError("expected a contiguous array")
    return strings


cdef class Memory:
    """Borrowed contiguous memory."""

    cdef Py_buffer view

    def __cinit__(self, source, bint is_written=False, Py_ssize_t item_size=1):
        # Strided, as object arrays refuse to be plain bytes.
        PyObject_GetBuffer(source, &self.view, PyBUF_STRIDES | (PyBUF_WRITABLE if is_written else PyBUF_SIMPLE))
        cdef Py_ssize_t stride = self.view.itemsize
        cdef int d
        if stride != item_size:
            raise ValueError(f"items of {stride} bytes, expected {item_size}")
        for d in range(self.view.ndim - 1, -1, -1):
            if self.view.shape[d] > 1 and self.view.strides[d] != stride:
                raise ValueError("expected contiguous memory")
            stride *= self.view.shape[d]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef Py_ssize_t count(self):
        return self.view.len // self.view.itemsize


def scan(data, handles, *, bint is_text, bytes fill):
    """Store the handles of the items of an encoded chunk in `handles` (uint64), which has as many items.

    Items equal to `fill` get the handle 0. Gives None, or what is wrong: ("short" | "count" | "beyond" | "text" |
    "junk", item, number), see vlen.h.
    """
    cdef Memory source = Memory(data), target = Memory(handles, True, 8)
    cdef zs_vlen_fault fault
    cdef Py_ssize_t count = target.count()
    cdef const uint8_t *filling = <const uint8_t *> PyBytes_AS_STRING(fill)
    cdef Py_ssize_t fill_size = PyBytes_GET_SIZE(fill)
    with nogil:
        zs_vlen_scan(<const uint8_t *> source.view.buf, source.view.len, count, is_text, filling, fill_size,
                     <uint64_t *> target.view.buf, &fault)
    return None if fault.code == ZS_VLEN_OK else (FAULTS[fault.code], fault.item, fault.got)


def take_strings(handles, out, *, bytes fill):
    """Store the items that `handles` (uint64) stand for in `out`, a contiguous array of StringDType."""
    cdef Memory source = Memory(handles, False, 8)
    cdef PyArrayObject *target = strings_of(out)
    cdef Py_ssize_t i, n = source.count(), step = PyArray_ITEMSIZE(target)
    if PyArray_SIZE(target) != n or not PyArray_ISWRITEABLE(target):
        raise ValueError(f"expected a writable array of {n} items")
    cdef const uint64_t *handle = <const uint64_t *> source.view.buf
    cdef char *packed = <char *> PyArray_DATA(target)
    cdef const char *filling = PyBytes_AS_STRING(fill)
    cdef Py_ssize_t fill_size = PyBytes_GET_SIZE(fill)
    cdef const uint8_t *item
    cdef npy_string_allocator *allocator
    cdef int failed = 0
    with nogil:
        allocator = NpyString_acquire_allocator(<const PyArray_StringDTypeObject *> PyArray_DESCR(target))
        for i in range(n):
            item = <const uint8_t *> <uintptr_t> handle[i]
            if item == NULL:
                failed = NpyString_pack(allocator, <npy_packed_static_string *> packed, filling, fill_size)
            else:
                failed = NpyString_pack(
                    allocator, <npy_packed_static_string *> packed, <const char *> item + 4, zs_load32(item)
                )
            if failed:
                break
            packed += step
        NpyString_release_allocator(allocator)
    if failed:
        raise MemoryError


def take_objects(handles, out, *, bint is_text, fill):
    """Store the items that `handles` (uint64) stand for in `out`, a contiguous array of objects of as many items."""
    cdef Memory source = Memory(handles, False, 8), target = Memory(out, True, sizeof(PyObject *))
    cdef Py_ssize_t i, n = source.count()
    if target.count() != n:
        raise ValueError(f"{target.count()} items, expected {n}")
    cdef const uint64_t *handle = <const uint64_t *> source.view.buf
    cdef PyObject **slot = <PyObject **> target.view.buf
    cdef PyObject *old
    cdef const uint8_t *item
    cdef object made
    for i in range(n):
        item = <const uint8_t *> <uintptr_t> handle[i]
        if item == NULL:
            made = fill
        elif is_text:
            made = PyUnicode_DecodeUTF8(<const char *> item + 4, zs_load32(item), NULL)
        else:
            made = PyBytes_FromStringAndSize(<const char *> item + 4, zs_load32(item))
        old = slot[i]
        Py_INCREF(made)
        slot[i] = <PyObject *> made
        Py_XDECREF(old)


def pack_strings(strings):
    """Encode the items of a contiguous array of StringDType as a chunk.

    Gives the bytes, or what is wrong: ("null" | "long", item, size).
    """
    cdef PyArrayObject *source = strings_of(strings)
    cdef Py_ssize_t i = 0, n = PyArray_SIZE(source), step = PyArray_ITEMSIZE(source)
    cdef const char *packed = <const char *> PyArray_DATA(source)
    cdef const PyArray_StringDTypeObject *descr = <const PyArray_StringDTypeObject *> PyArray_DESCR(source)
    cdef npy_string_allocator *allocator = NpyString_acquire_allocator(descr)
    cdef npy_static_string item
    cdef int64_t size = ZS_VLEN_HEADER
    cdef int state = 0
    cdef uint8_t *to
    cdef bytes made
    # The allocator is released before the bytes are made: that can switch threads, and another one could wait for it.
    with nogil:
        for i in range(n):
            state = NpyString_load(allocator, <const npy_packed_static_string *> (packed + i * step), &item)
            if state or <int64_t> item.size > LARGEST:
                break
            size += 4 + <int64_t> item.size
        NpyString_release_allocator(allocator)
    if n > LARGEST:
        raise OverflowError(f"{n} items, at most {LARGEST} are possible")
    if n and state:
        return "null", i, 0
    if n and <int64_t> item.size > LARGEST:
        return "long", i, item.size
    made = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *> PyBytes_AS_STRING(made)
    cdef uint8_t *end = to + size
    with nogil:
        zs_store32(to, <uint32_t> n)
        to += ZS_VLEN_HEADER
        allocator = NpyString_acquire_allocator(descr)
        for i in range(n):
            state = NpyString_load(allocator, <const npy_packed_static_string *> (packed + i * step), &item)
            if state or <int64_t> item.size > end - to - 4:
                state = 1
                break
            zs_store32(to, <uint32_t> item.size)
            memcpy(to + 4, item.buf, item.size)
            to += 4 + item.size
        NpyString_release_allocator(allocator)
    if state or to != end:
        raise RuntimeError("the strings were changed while they were written")
    return made


def pack_objects(objects, *, bint is_text):
    """Encode the items of a contiguous array of objects as a chunk: of str if `is_text`, else of bytes.

    Gives the bytes, or what is wrong: ("type" | "text" | "long", item, size).
    """
    cdef Memory source = Memory(objects, False, sizeof(PyObject *))
    cdef Py_ssize_t i, n = source.count(), length
    cdef PyObject **slot = <PyObject **> source.view.buf
    cdef int64_t size = ZS_VLEN_HEADER
    cdef const char *text
    cdef object item
    cdef list items = []
    cdef bytes made
    cdef uint8_t *to
    if n > LARGEST:
        raise OverflowError(f"{n} items, at most {LARGEST} are possible")
    for i in range(n):
        item = <object> slot[i] if slot[i] != NULL else None
        if not isinstance(item, str if is_text else bytes):
            return "type", i, 0
        if is_text:
            try:
                PyUnicode_AsUTF8AndSize(item, &length)
            except UnicodeEncodeError:
                return "text", i, 0
        else:
            length = PyBytes_GET_SIZE(item)
        if length > LARGEST:
            return "long", i, length
        size += 4 + length
        items.append(item)
    made = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *> PyBytes_AS_STRING(made)
    zs_store32(to, <uint32_t> n)
    to += ZS_VLEN_HEADER
    for item in items:
        if is_text:
            text = PyUnicode_AsUTF8AndSize(item, &length)
        else:
            text, length = PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)
        zs_store32(to, <uint32_t> length)
        memcpy(to + 4, text, length)
        to += 4 + length
    return made
