"""The capsules: calling them from Python, and capsules that somebody else made."""

from __future__ import annotations

import ctypes
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zstore._ext.codecs import native
from zstore.codecs.blosc import Blosc, NumcodecsBlosc
from zstore.codecs.crc32c import Crc32c
from zstore.codecs.gzip import Gzip, NumcodecsZlib
from zstore.codecs.lz4 import NumcodecsLz4
from zstore.codecs.zstd import Zstd

CAPSULES = {
    "zstd": native.zstd(3, True),
    "gzip": native.gzip(5),
    "zlib": native.zlib(1),
    "lz4": native.lz4(),
    "crc32c": native.crc32c(),
    "blosc": native.blosc("lz4", 5, 1, 4),
}
SAMPLE = np.arange(1000, dtype="<i4").tobytes()


@pytest.mark.parametrize("name", CAPSULES)
def test_an_exact_size_is_held_to(name):
    encoded = native.encode(CAPSULES[name], SAMPLE)
    assert native.decode(CAPSULES[name], encoded, 1 << 20, 4000) == SAMPLE
    with pytest.raises(ValueError, match="decodes to 4000 bytes, expected 4001"):
        native.decode(CAPSULES[name], encoded, 1 << 20, 4001)
    with pytest.raises(BufferError, match="3999"):
        native.decode(CAPSULES[name], encoded, 1 << 20, 3999)


@pytest.mark.parametrize("name", CAPSULES)
def test_any_contiguous_buffer_will_do(name):
    for data in (
        bytearray(SAMPLE),
        memoryview(SAMPLE),
        np.frombuffer(SAMPLE, "M8[ms]"),
        np.frombuffer(SAMPLE, ">f2"),
    ):
        encoded = native.encode(CAPSULES[name], data)
        assert native.decode(CAPSULES[name], np.frombuffer(encoded, "u1"), 4000) == SAMPLE
    with pytest.raises((BufferError, ValueError)):
        native.encode(CAPSULES[name], np.zeros((4, 4), "i4")[:, ::2])


@pytest.mark.parametrize("name", CAPSULES)
def test_a_negative_limit_allows_nothing(name):
    with pytest.raises(BufferError):
        native.decode(CAPSULES[name], native.encode(CAPSULES[name], SAMPLE), -1)


@pytest.mark.parametrize("name", CAPSULES)
def test_threads_that_come_and_go_leave_nothing_behind(name):
    """Contexts belong to a thread and end with it: 300 threads may not take memory for 300 contexts."""

    def work() -> None:
        assert native.decode(CAPSULES[name], native.encode(CAPSULES[name], SAMPLE), 4000) == SAMPLE

    def run(count: int) -> None:
        for _ in range(count):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    run(20)
    before = resident_size()
    run(300)
    assert resident_size() - before < 8 << 20


def resident_size() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_threads_work_at_the_same_time_on_different_codecs():
    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(50):
            data = np.cumsum(generator.integers(-3, 4, generator.integers(1, 30_000))).astype("<i4").tobytes()
            for capsule in CAPSULES.values():
                assert native.decode(capsule, native.encode(capsule, data), len(data)) == data

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.parametrize(
    "codec",
    [
        Zstd(7, True),
        Gzip(2),
        NumcodecsZlib(3),
        NumcodecsLz4(2),
        Crc32c(),
        Blosc("zstd", 2, "bitshuffle", 8),
        NumcodecsBlosc(typesize=3),
    ],
)
def test_codecs_can_be_pickled(codec):
    again = pickle.loads(pickle.dumps(codec))
    assert again.to_configuration() == codec.to_configuration()
    assert again.encode(SAMPLE) == codec.encode(SAMPLE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: native.zstd(23),
        lambda: native.gzip(10),
        lambda: native.zlib(-2),
        lambda: native.blosc("snappy"),
        lambda: native.blosc("lz4", 5, 3),
        lambda: native.blosc("lz4", 5, 1, 256),
        lambda: native.blosc("lz4", 5, 1, 4, -1),
    ],
)
def test_factories_refuse_what_the_codec_cannot_take(make):
    with pytest.raises(ValueError, match="expected"):
        make()


# A codec made elsewhere: bytes exclusive-or 0x55, through the first fields of the struct only.
SIZE_OF = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
CALL = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)
DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class BaseStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("state", ctypes.c_void_p),
        ("encode_bound", SIZE_OF),
        ("encode", CALL),
        ("decode", CALL),
        ("destroy", DESTROY),
    )


@SIZE_OF
def same_size(state, size):
    return size


@CALL
def flip(state, source, size, target, capacity):
    if capacity < size:
        return -2
    flipped = bytes(byte ^ 0x55 for byte in ctypes.string_at(source, size))
    ctypes.memmove(target, flipped, size)
    return size


@CALL
def claims_too_much(state, source, size, target, capacity):
    return capacity + 1


@DESTROY
def keep(codec):
    pass


def foreign(struct: BaseStruct, name: bytes = b"zstore.codec.v1") -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(struct), name, None)


def struct_of(decode=flip, size: int = ctypes.sizeof(BaseStruct)) -> BaseStruct:
    return BaseStruct(size, 0, None, same_size, flip, decode, keep)


def test_a_capsule_made_elsewhere_works():
    struct = struct_of()
    capsule = foreign(struct)
    encoded = native.encode(capsule, SAMPLE)
    assert encoded == bytes(byte ^ 0x55 for byte in SAMPLE)
    assert native.decode(capsule, encoded, 4000) == SAMPLE
    assert native.decoded_size(capsule, encoded) is None
    assert native.decode_range(capsule, encoded, 0, 4) is None
    assert native.encoded_bound(capsule, 17) == 17
    with pytest.raises(BufferError, match="decodes to more than the 3999 bytes allowed"):
        native.decode(capsule, encoded, 3999)


def test_a_codec_that_says_it_wrote_past_the_end_is_refused():
    struct = struct_of(claims_too_much)
    with pytest.raises(RuntimeError, match="wrote 11 bytes, at most 10 allowed"):
        native.decode(foreign(struct), SAMPLE, 10)


def test_a_struct_too_small_or_incomplete_is_refused():
    short = struct_of(size=16)
    with pytest.raises(TypeError, match="struct has 16 bytes, expected at least 48"):
        native.encode(foreign(short), SAMPLE)
    empty = BaseStruct(ctypes.sizeof(BaseStruct))
    with pytest.raises(TypeError, match="encode_bound, encode and decode"):
        native.decode(foreign(empty), SAMPLE, 10)


def test_capsules_of_other_names_are_refused():
    struct = struct_of()
    name = b"somebody.else"
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        native.encode(foreign(struct, name), SAMPLE)
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        native.encode(object(), SAMPLE)
