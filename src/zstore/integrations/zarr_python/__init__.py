"""zarr-python's arrays read and written by zstore's engine: a codec pipeline, and stores both ways.

    zarr.config.set({"codec_pipeline.path": "zstore.integrations.zarr_python.ZstoreCodecPipeline"})

The pipeline finds the whole selection behind zarr-python's list of chunks and hands it to the engine. What
the engine does not know (a codec, a data type or a grid of somebody's own, memory on a GPU) goes through
zarr-python's own pipeline and codecs, so that nothing is refused which works without zstore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from zarr.abc.codec import Codec, CodecPipeline
from zarr.abc.store import Store
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import Buffer, NDBuffer, cpu, default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline
from zarr.storage._common import StorePath

from zstore.errors import ChangedError, CodecError, NotFoundError, StoreError
from zstore.integrations.zarr_python.binding import Binding, Place
from zstore.integrations.zarr_python.source import ZarrStore
from zstore.integrations.zarr_python.store import ZstoreStore
from zstore.integrations.zarr_python.threads import CODING

__all__ = ["ZarrStore", "ZstoreCodecPipeline", "ZstoreStore"]

# (getter or setter, spec, part of the chunk, place in the result, is complete), one per chunk.
Batch = list[tuple[Any, ArraySpec, Any, Any, bool]]

# Older versions do it while they parse the metadata, and cannot do it here.
EVOLVES = find_spec("zarr.core.chunk_utils") is not None

# Codecs that refuse some values, as zarr-python's do, whose own errors its users know.
CHOOSY = ("cast_value", "scale_offset")


class ZstoreCodecPipeline(CodecPipeline):
    """The chunks of one array through zstore's engine, or through zarr-python's pipeline (`plain`).

    Never computes on the event loop. Pickles, and works in processes that were forked.
    """

    def __init__(self, plain: BatchedCodecPipeline, metadata: Any = None) -> None:
        self.plain = plain
        self._metadata = metadata
        self._binding = None if metadata is None else Binding(metadata)
        self._place: Place | None = None

    # What zarr-python asks of a pipeline

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """A pipeline that knows no array, e.g. for the inner chunks of a shard: zarr-python's own."""
        return cls(BatchedCodecPipeline.from_codecs(codecs))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> Self:
        """The pipeline of an array."""
        metadata = array_metadata
        if metadata.zarr_format == 2:
            codecs: Iterable[Codec] = [V2Codec(filters=metadata.filters, compressor=metadata.compressor)]
            shape, dtype, order = metadata.chunks, metadata.dtype, {"order": metadata.order}
        else:
            codecs, dtype, order = metadata.codecs, metadata.data_type, {}
            shape = getattr(metadata.chunk_grid, "chunk_shape", (1,) * len(metadata.shape))
        spec = ArraySpec(
            shape=shape,
            dtype=dtype,
            fill_value=metadata.fill_value,
            config=ArrayConfig.from_dict(order),  # type: ignore[arg-type]
            prototype=default_buffer_prototype(),
        )
        plain = BatchedCodecPipeline.from_codecs(codecs)
        return cls(plain.evolve_from_array_spec(spec) if EVOLVES else plain, metadata)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """The pipeline for chunks like these."""
        return type(self)(self.plain.evolve_from_array_spec(array_spec), self._metadata)

    @property
    def supports_partial_decode(self) -> bool:
        """As zarr-python's own."""
        return self.plain.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """As zarr-python's own."""
        return self.plain.supports_partial_encode

    def validate(self, **arguments: Any) -> None:
        """As zarr-python's own."""
        self.plain.validate(**arguments)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        """As zarr-python's own."""
        return self.plain.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        """As zarr-python's own."""
        return await self.plain.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
        """As zarr-python's own."""
        return await self.plain.encode(chunk_arrays_and_specs)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.plain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZstoreCodecPipeline) and self.plain == other.plain

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.plain, self._metadata)

    # Reading and writing

    async def read(
        self,
        batch_info: Iterable[tuple[Any, ArraySpec, Any, Any, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> Any:
        """Fill `out`; what newer versions of zarr-python are told of each chunk is given back.

        Raises
            CodecError: a chunk is damaged.
        """
        batch: Batch = list(batch_info)
        if not batch:
            return ()
        memory = _memory(batch, out)
        if memory is not None and self._binding is not None:
            await _open(batch[0][0].store)
            loop = asyncio.get_running_loop()
            found = await CODING.run(self._read, batch, memory, drop_axes, loop)
            if found is not None:
                return found
        return await self.plain.read(batch, out, drop_axes)

    async def write(
        self,
        batch_info: Iterable[tuple[Any, ArraySpec, Any, Any, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        """Store `value`; a chunk that is covered in part is kept from other writers meanwhile.

        Raises
            CodecError: a chunk that is covered in part is damaged.
        """
        batch: Batch = list(batch_info)
        if not batch:
            return
        memory = _memory(batch, value)
        if memory is not None and self._binding is not None:
            store = batch[0][0].store
            await _open(store)
            store._check_writable()
            loop = asyncio.get_running_loop()
            if await CODING.run(self._write, batch, memory, drop_axes, loop):
                return
        await self.plain.write(batch, value, drop_axes)

    def _read(
        self,
        batch: Batch,
        memory: np.ndarray[Any, Any],
        drop_axes: tuple[int, ...],
        loop: asyncio.AbstractEventLoop,
    ) -> Sequence[dict[str, str]] | None:
        binding = self._binding
        assert binding is not None
        fit = binding.fit(memory.dtype)
        if fit is None:
            return None
        place = self._at(batch, loop)
        selected = binding.recover(batch, place.prefix, drop_axes)
        if selected is None or selected.shape != memory.shape:
            return None
        model = fit.model
        shape = selected.whole_shape(model.shape, model.grid.chunk_shape)
        chunks = place.chunks(fit, shape)
        items = np.empty(memory.shape, model.dtype) if fit.is_converted else fit.view(memory)
        must_be_there = not getattr(batch[0][1].config, "read_missing_chunks", True)
        try:
            chunks.read(selected.plan(chunks.layout), items, missing_is_fault=must_be_there)
        except NotFoundError:
            return None  # zarr-python says which are missing
        except StoreError as error:
            _tell(place, error)
            return None
        except CodecError as error:
            if error.codec not in CHOOSY:
                raise
            return None
        if fit.is_converted:
            memory[...] = items
        return place.answers(batch)

    def _write(
        self,
        batch: Batch,
        memory: np.ndarray[Any, Any],
        drop_axes: tuple[int, ...],
        loop: asyncio.AbstractEventLoop,
    ) -> bool:
        binding = self._binding
        assert binding is not None
        fit = binding.fit(memory.dtype)
        if fit is None or binding.has_own_order:
            return False
        place = self._at(batch, loop)
        selected = binding.recover(batch, place.prefix, drop_axes)
        if selected is None or memory.shape not in ((), selected.shape):
            return False
        model = fit.model
        shape = selected.array_shape(model.shape, model.grid.chunk_shape)
        skip_empty = not batch[0][1].config.write_empty_chunks
        chunks = place.chunks(fit, shape, skip_empty=skip_empty)
        items = memory.astype(model.dtype) if fit.is_converted else fit.view(memory)
        value = np.broadcast_to(items, selected.shape)
        try:
            chunks.write(selected.plan(chunks.write_layout), value)
        except StoreError as error:
            _tell(place, error)
            return False
        except CodecError as error:
            if error.codec not in CHOOSY:
                raise
            return False
        return True

    def _at(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> Place:
        """Where the batch's chunks are; nearly always where the last ones were."""
        assert self._binding is not None
        getter, place = batch[0][0], self._place
        prefix = self._binding.cells.prefix(getter.path)
        if (
            place is None
            or place.source is not getter.store
            or place.loop is not loop
            or place.prefix != prefix
        ):
            place = self._place = Place(getter.store, prefix, loop)
        return place


def _memory(batch: Batch, buffer: NDBuffer) -> np.ndarray[Any, Any] | None:
    """The caller's memory; None where the batch is not for the engine to see."""
    getter = batch[0][0]
    # Not isinstance, which a stand-in for a store can answer as it likes.
    if type(getter) is not StorePath or not issubclass(type(getter.store), Store):
        return None
    prototype = batch[0][1].prototype
    if prototype.nd_buffer is not cpu.NDBuffer or prototype.buffer is not cpu.Buffer:
        return None
    memory: Any = buffer.as_ndarray_like()
    return memory if type(memory) is np.ndarray else None


async def _open(store: Any) -> None:
    if not store._is_open:
        await store._ensure_open()


def _tell(place: Place, error: StoreError) -> None:
    """Raise what zarr-python's store raised; a store of zstore's may refuse what zarr-python's takes."""
    if isinstance(error, ChangedError):
        raise error  # zarr-python would write over what somebody else wrote
    if isinstance(place.store, ZarrStore) and error.__cause__ is not None:
        raise error.__cause__


register_pipeline(ZstoreCodecPipeline)
