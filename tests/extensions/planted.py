"""Offers of every kind that break one promise each; `PLANTED` says which test finds it.

Run by `test_contracts.py`, never by itself.
"""

from __future__ import annotations

import json
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from zstore.codecs.base import ArrayCodec, BytesCodec, ChunkSpec, Serializer, flag, integer
from zstore.codecs.bytes import Bytes
from zstore.codecs.transpose import Transpose
from zstore.codecs.zstd import Zstd
from zstore.errors import CodecError, StoreError
from zstore.extensions.registry import resamplers
from zstore.geo.conventions.base import Affine, Mend
from zstore.geo.conventions.geozarr import Geozarr
from zstore.model.dtype import DataType
from zstore.storage.base import Part, Store, check_key, check_prefix
from zstore.storage.local import LocalStore
from zstore.storage.memory import MemoryStore
from zstore.testing.chunk_codecs import ArrayCodecContract, SerializerContract
from zstore.testing.codecs import CodecContract, NativeCodecContract
from zstore.testing.conventions import ConventionContract
from zstore.testing.data_types import DataTypeContract
from zstore.testing.resamplers import ResamplerContract
from zstore.testing.stores import StoreContract

PLANTED: dict[str, str] = {}


def planted(contract, test, **members):
    """A class of tests around something that breaks a promise, which `test` of the contract must find."""

    def plant(kind):
        name = f"Test{kind.__name__}"
        made = {"make_store": lambda self, place: kind()} if contract is StoreContract else {}
        if contract is StoreContract:
            made |= {"can_pickle": False, "can_reopen": False, "shares_processes": False}
            made |= {"excludes_processes": False}
        else:
            made |= {"make": lambda self: kind()}
        globals()[name] = type(name, (contract,), {**made, **members, "__module__": __name__})
        PLANTED[name] = test
        return kind

    return plant


# Stores


@planted(
    StoreContract,
    "test_trouble_is_never_a_missing_value",
    make_store=lambda self, place: TakesErrorsForNothing(place / "a"),
)
class TakesErrorsForNothing(LocalStore):
    def get(self, key, byte_range=None):
        try:
            return super().get(key, byte_range)
        except OSError:
            return None


@planted(StoreContract, "test_trouble_is_never_a_missing_value")
class TakesErrorsOfItsClientForNothing(MemoryStore):
    def get(self, key, byte_range=None):
        try:
            return super().get(key, byte_range)
        except StoreError:
            raise
        except OSError:
            return None


class _Files(Store):
    """As authors write them: a file for each value."""

    def __init__(self, root):
        self.root = Path(root)

    @property
    def url(self):
        return f"files://{self.root}"

    def get(self, key, byte_range=None):
        try:
            value = (self.root / check_key(key)).read_bytes()
        except OSError:
            return None
        begin, end = byte_range.resolve(len(value)) if byte_range else (0, len(value))
        return value[begin:end]

    def put(self, key, value):
        path = self.root / check_key(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def delete(self, key):
        (self.root / check_key(key)).unlink(missing_ok=True)

    def list(self, prefix=""):
        top = self.root / check_prefix(prefix)
        return iter(str(path.relative_to(self.root)) for path in top.rglob("*") if path.is_file())


planted(
    StoreContract,
    "test_trouble_is_never_a_missing_value",
    make_store=lambda self, place: _Files(place / "a"),
)(type("FilesThatAreNeverBroken", (_Files,), {}))


@planted(StoreContract, "test_trouble_is_never_an_empty_list")
class ListsNothingInTrouble(MemoryStore):
    def list(self, prefix=""):
        try:
            return iter([*super().list(prefix)])
        except StoreError:
            raise
        except OSError:
            return iter(())


@planted(StoreContract, "test_what_could_not_be_put_is_said")
class LosesWritesInTrouble(MemoryStore):
    def put(self, key, value):
        try:
            super().put(key, value)
        except StoreError:
            raise
        except OSError:
            pass


@planted(StoreContract, "test_values_are_swapped_where_all_are_as_expected")
class SwapsOneAfterTheOther(MemoryStore):
    def swap(self, changes):
        return all(super(SwapsOneAfterTheOther, self).swap({key: one}) for key, one in changes.items())


@planted(StoreContract, "test_get_gives_the_range")
class RangesFromTheEndAreWrong(MemoryStore):
    def get(self, key, byte_range=None):
        if byte_range is None or byte_range.start >= 0:
            return super().get(key, byte_range)
        value = super().get(key)
        return None if value is None else value[byte_range.start :]


@planted(StoreContract, "test_missing_is_none")
class MissingIsEmpty(MemoryStore):
    def get(self, key, byte_range=None):
        found = super().get(key, byte_range)
        return b"" if found is None else found


@planted(StoreContract, "test_put_keeps_a_copy")
class KeepsWhatItIsGiven(MemoryStore):
    def put(self, key, value):
        check_key(key)
        self._values[key] = value

    def get(self, key, byte_range=None):
        value = self._values.get(check_key(key))
        if value is None:
            return None
        begin, end = byte_range.resolve(len(value)) if byte_range else (0, len(value))
        return bytes(memoryview(value).cast("B")[begin:end])


@planted(StoreContract, "test_what_get_gives_cannot_be_written_to")
class GivesMemoryToWriteTo(MemoryStore):
    def get(self, key, byte_range=None):
        found = super().get(key, byte_range)
        return None if found is None else memoryview(bytearray(found))


@planted(StoreContract, "test_list_gives_the_keys_below")
class ListsSiblings(MemoryStore):
    def list(self, prefix=""):
        check_prefix(prefix)
        return iter([key for key in [*self._values] if key.startswith(prefix)])


@planted(StoreContract, "test_many_keys_are_listed_once_each")
class ListsOnePage(MemoryStore):
    def list(self, prefix=""):
        return iter([*super().list(prefix)][:1000])


@planted(StoreContract, "test_list_children_gives_names")
class ChildrenAreNotSorted(MemoryStore):
    def list_children(self, prefix=""):
        return super().list_children(prefix)[::-1]


@planted(StoreContract, "test_delete_prefix_leaves_siblings")
class DeletesSiblings(MemoryStore):
    def delete_prefix(self, prefix):
        for key in [key for key in [*self._values] if key.startswith(check_prefix(prefix))]:
            self.delete(key)


@planted(StoreContract, "test_delete_removes")
class DeletingNothingIsAnError(MemoryStore):
    def delete(self, key):
        if self.get(key) is None:
            raise StoreError("there is no such key", key=key)
        super().delete(key)


@planted(StoreContract, "test_keys_that_leave_the_store_are_refused")
class TakesAnyKey(MemoryStore):
    def get(self, key, byte_range=None):
        value = self._values.get(key)
        return value if value is None or byte_range is None else value[slice(*byte_range.resolve(len(value)))]


@planted(StoreContract, "test_get_many_answers_in_the_order_asked")
class AnswersOutOfOrder(MemoryStore):
    def get_many(self, requests):
        return [self.get(*request) for request in sorted(requests, key=lambda one: one[0])]


@planted(StoreContract, "test_get_parts_says_how_long_values_are")
class SizesOfPartsAreTheirOwn(MemoryStore):
    def get_parts(self, requests):
        found = self.get_many(requests)
        return [None if data is None else Part(data, len(data)) for data in found]


@planted(StoreContract, "test_awaited_answers_are_those_of_calls")
class AwaitedAnswersAreOthers(MemoryStore):
    async def get_parts_async(self, requests):
        return self.get_parts(requests[::-1])


@planted(StoreContract, "test_get_first_gives_the_first_choice_that_is_there")
class EveryDocumentIsFound(MemoryStore):
    def get_first(self, prefixes, choices):
        return [
            {name: self.get(f"{prefix}/{name}") for choice in choices for name in choice}
            for prefix in prefixes
        ]


@planted(StoreContract, "test_arrays_can_be_awaited")
class AwaitedChunksAreOthers(MemoryStore):
    in_memory = False

    async def get_many_async(self, requests):
        return self.get_many(requests[::-1])


@planted(StoreContract, "test_read_only_refuses_to_write")
class ReadOnlyIsAWord(MemoryStore):
    def as_read_only(self):
        self.read_only = True
        return self

    def check_writable(self, key):
        pass


@planted(StoreContract, "test_put_is_whole_or_absent")
class ValuesGrowWhileTheyAreRead(MemoryStore):
    def put(self, key, value):
        value = bytes(value)
        super().put(key, value[: len(value) // 2])
        threading.Event().wait(0.001)
        super().put(key, value)


@planted(StoreContract, "test_lock_keeps_other_threads_waiting")
class LocksNobodyOut(MemoryStore):
    def lock(self, key):
        return Store.lock(self, key)

    def get(self, key, byte_range=None):
        found = super().get(key, byte_range)
        threading.Event().wait(0.001)
        return found


# Codecs of bytes


class _Zlib(BytesCodec):
    """A sound one: what the others spoil."""

    name = "planted"
    options = (integer("level", 0, 9, 6), flag("fast", False))

    def __init__(self, level=6, fast=False):
        self.level, self.fast = level, fast

    def encode(self, data):
        return zlib.compress(data, 1 if self.fast else self.level)

    def decode(self, data, size_limit):
        stream = zlib.decompressobj()
        try:
            found = stream.decompress(data, size_limit + 1)
        except zlib.error as error:
            raise CodecError(f"codec 'planted' failed: {error}") from error
        if len(found) > size_limit or not stream.eof or stream.unused_data:
            raise CodecError("codec 'planted' failed: not one stream within the limit")
        return found


class TestASoundCodec(CodecContract):
    def make(self):
        return _Zlib(9)


@planted(CodecContract, "test_what_follows_is_refused")
class PassesOverWhatFollows(_Zlib):
    def decode(self, data, size_limit):
        stream = zlib.decompressobj()
        try:
            found = stream.decompress(data, size_limit + 1)
        except zlib.error as error:
            raise CodecError("damaged") from error
        if len(found) > size_limit or not stream.eof:
            raise CodecError("too long")
        return found


@planted(CodecContract, "test_a_bomb_is_refused_before_it_is_decoded")
class InflatesBombs(_Zlib):
    def decode(self, data, size_limit):
        try:
            found = zlib.decompress(data)
        except zlib.error as error:
            raise CodecError("damaged") from error
        if len(found) > size_limit:
            raise CodecError("too long")
        return found


@planted(CodecContract, "test_no_option_is_lost", make=lambda self: LosesAnOption(9))
class LosesAnOption(_Zlib):
    def to_configuration(self):
        return {"fast": self.fast}


@planted(CodecContract, "test_no_option_is_lost")
class LosesAnOptionThatIsNotUsed(_Zlib):
    def to_configuration(self):
        return {"level": self.level}


@planted(CodecContract, "test_no_option_is_lost", make=lambda self: LosesAnUndeclaredOption(9))
class LosesAnUndeclaredOption(_Zlib):
    options = ()

    @classmethod
    def from_configuration(cls, configuration):
        return cls(**configuration)

    def to_configuration(self):
        return {}


@planted(CodecContract, "test_the_configuration_encodes_to_the_same", make=lambda self: StatesAnotherLevel(9))
class StatesAnotherLevel(_Zlib):
    def to_configuration(self):
        return {"level": 0}


@planted(CodecContract, "test_an_unknown_option_is_refused")
class TakesAnyOption(_Zlib):
    @classmethod
    def from_configuration(cls, configuration):
        return cls(configuration.get("level", 6))


@planted(CodecContract, "test_one_byte_too_many_is_refused")
class CutsWhatIsTooLong(_Zlib):
    def decode(self, data, size_limit):
        return zlib.decompress(data)[:size_limit]


@planted(CodecContract, "test_damage_gives_an_error_or_bytes_within_the_limit")
class RaisesItsLibrarysErrors(_Zlib):
    def decode(self, data, size_limit):
        found = zlib.decompress(data)
        if len(found) > size_limit:
            raise CodecError("too long")
        return found


@planted(CodecContract, "test_encoded_bytes_stay_within_the_bound")
class PromisesTooLittle(_Zlib):
    def encoded_bound(self, size):
        return size


@planted(CodecContract, "test_it_can_be_pickled")
class CannotBePickled(_Zlib):
    def __reduce__(self):
        raise TypeError("no")


@planted(CodecContract, "test_threads_share_a_codec")
class KeepsStateBetweenCalls(_Zlib):
    def encode(self, data):
        self.chunk = bytes(data)
        threading.Event().wait(0.0005)
        return zlib.compress(self.chunk, self.level)


@planted(CodecContract, "test_nothing_given_is_changed")
class ChangesWhatItIsGiven(_Zlib):
    def encode(self, data):
        encoded = zlib.compress(data)
        if not memoryview(data).readonly and len(data):
            memoryview(data).cast("B")[0] ^= 1
        return encoded


@planted(NativeCodecContract, "test_the_compiled_batch_does_the_work")
class HasNoCapsule(_Zlib):
    pass


@planted(NativeCodecContract, "test_the_capsule_does_what_the_methods_do")
class CapsuleOfAnother(_Zlib):
    def __zstore_codec__(self):
        return Zstd(1).__zstore_codec__()


# Codecs of chunks
SPECS = (ChunkSpec((4, 6), np.dtype("i4"), np.int32(0)),)


@planted(ArrayCodecContract, "test_the_encoded_chunk_is_what_was_announced", specs=SPECS)
class AnnouncesAnotherShape(Transpose):
    def __init__(self, order=(1, 0)):
        super().__init__(order)

    def encoded_spec(self, spec):
        return spec


class _Adds(ArrayCodec):
    name = "planted"
    options = (integer("number", 0, 9, 1),)

    def __init__(self, number=1):
        self.number = number

    def encoded_spec(self, spec):
        fill = None if spec.fill_value is None else spec.fill_value + spec.dtype.type(self.number)
        return spec._replace(fill_value=fill)

    def encode(self, chunk):
        return chunk + chunk.dtype.type(self.number)

    def decode(self, chunk):
        return chunk - chunk.dtype.type(self.number)


@planted(ArrayCodecContract, "test_the_fill_value_goes_the_way_of_the_items", specs=SPECS)
class ForgetsTheFillValue(_Adds):
    def encoded_spec(self, spec):
        return spec


@planted(ArrayCodecContract, "test_nothing_given_is_changed", specs=SPECS)
class AddsInPlace(_Adds):
    def encode(self, chunk):
        chunk += chunk.dtype.type(self.number)
        return chunk.copy()


@planted(ArrayCodecContract, "test_what_is_encoded_decodes_to_the_same", specs=SPECS)
class DoesNotComeBack(_Adds):
    def decode(self, chunk):
        return chunk


@planted(SerializerContract, "test_what_follows_is_refused", specs=SPECS)
class TakesMoreThanAChunk(Bytes):
    def decode(self, data):
        return super().decode(data[: self.encoded_size(self.spec)])


@planted(SerializerContract, "test_what_is_cut_short_never_gives_another_chunk", specs=SPECS)
class FillsUpWhatIsMissing(Bytes):
    def decode(self, data):
        size = self.encoded_size(self.spec)
        if len(data) > size:
            raise CodecError("too long")
        return super().decode(memoryview(bytes(data) + bytes(size - len(data))))


@planted(SerializerContract, "test_memory_in_another_order_gives_the_same", specs=SPECS)
class FollowsMemory(Bytes):
    def encode(self, chunk):
        return chunk.tobytes(order="A")


@planted(SerializerContract, "test_the_encoded_size_is_what_was_announced", specs=SPECS)
class AnnouncesAnotherSize(Serializer):
    name = "planted"

    def bind(self, spec):
        self.bytes = Bytes().bind(spec)
        return self

    def encoded_size(self, spec):
        return 1 + self.bytes.encoded_size(spec)

    def encode(self, chunk):
        return self.bytes.encode(chunk)

    def decode(self, data):
        return self.bytes.decode(data)


# Resamplers, conventions, data types
Average = resamplers.resolve("average")


@planted(
    ResamplerContract,
    "test_a_window_of_nothing_but_nodata_gives_nodata",
    method="average",
    make=lambda self: TakesNodataForANumber(),
)
class TakesNodataForANumber(Average):
    def __call__(self, cells, factors, *, nodata=None, out=None, **options):
        return super().__call__(np.where(cells == nodata, cells.dtype.type(1), cells), factors, out=out)


@planted(ResamplerContract, "test_out_takes_the_result", method="average", make=lambda self: LeavesOutAlone())
class LeavesOutAlone(Average):
    def __call__(self, cells, factors, *, nodata=None, out=None, **options):
        return super().__call__(cells, factors, nodata=nodata)


@planted(ConventionContract, "test_nonsense_is_a_finding_and_never_an_error")
class FailsAtNonsense(Geozarr):
    def parse(self, node, parent=None):
        for value in node.attrs.values():
            json.dumps(value)
            if value is None:
                raise TypeError("None")
        return super().parse(node, parent)


@planted(ConventionContract, "test_documents_are_strict_json_and_the_same_at_every_call")
class RendersNaN(Geozarr):
    def render(self, geo, zarr_format):
        documents = super().render(geo, zarr_format)
        documents.setdefault("", {}).setdefault("attributes", {})["planted"] = float("nan")
        return documents


@planted(ConventionContract, "test_what_it_writes_it_reads_and_finds_no_fault_with")
class StatesAffinesOfNoShape(Geozarr):
    def parse(self, node, parent=None):
        facts = super().parse(node, parent)
        return replace(facts, shape=None, affines=(("planted", Affine(10, 0, 3e5, 0, -10, 5000040)),))


@planted(ConventionContract, "test_a_mend_mends")
class MendsNothing(Geozarr):
    def parse(self, node, parent=None):
        facts = super().parse(node, parent)
        mend = Mend("planted", {"planted": 1})
        own = [replace(finding, mend=mend) for finding in facts.findings]
        return replace(facts, findings=tuple(own))


class _Type:
    """float32, as far as nothing else is said."""

    def __init__(self):
        self._type = DataType.restore("float32")

    def __getattr__(self, name):
        return getattr(self._type, name)


def planted_type(test):
    return planted(DataTypeContract, test, types=lambda self: iter([DataType.restore("int8"), self.make()]))


@planted_type("test_fill_values_keep_every_bit")
class LosesBitsOfFillValues(_Type):
    def parse_fill(self, value, zarr_format, order=None):
        found = self._type.parse_fill(value, zarr_format)
        return np.float32("nan") if np.isnan(found) else np.float32(np.float16(found))


@planted_type("test_nonsense_is_no_fill_value")
class TakesAnyFillValue(_Type):
    def parse_fill(self, value, zarr_format, order=None):
        return np.float32(0)


@planted_type("test_documents_say_it_back")
class SaysAnotherName(_Type):
    def describe(self):
        return "float64"
