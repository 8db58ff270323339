"""A codec pipeline by which zarr-python reads and writes with zstore's engine, and adapters of stores.

    zarr.config.set({"codec_pipeline.path": "zstore.guests.zarr_python.ZstoreCodecPipeline"})

The pipeline recovers the whole selection from zarr-python's list of chunks and passes it to the engine. What
the engine does not know (third-party codecs, data types and grids, memory on a GPU) goes through
zarr-python's own pipeline and codecs, so that everything works that works without zstore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Self, TypeVar

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
from zstore.guests.zarr_python.arrays import ArrayBinding, ArrayPlace, Fit
from zstore.guests.zarr_python.selection import Batch, Recovered
from zstore.guests.zarr_python.stores import CODING, ZarrStore, ZstoreStore

__all__ = ["ZarrStore", "ZstoreCodecPipeline", "ZstoreStore"]

T = TypeVar("T")
Memory = np.ndarray[Any, Any]

# Whether the pipeline adapts codecs to the array; older versions of zarr-python do so when parsing metadata.
EVOLVES = find_spec("zarr.core.chunk_utils") is not None

# Codecs that refuse some values. zarr-python's own are used then, which raise the errors that its users know.
REFUSING = ("cast_value", "scale_offset")


class ZstoreCodecPipeline(CodecPipeline):
    """Reads and writes the chunks of one array by zstore's engine, or by zarr-python's pipeline (`plain`).

    Nothing is computed on the event loop. The pipeline can be pickled, and works in forked processes.
    """

    def __init__(self, plain: BatchedCodecPipeline, metadata: Any = None) -> None:
        self.plain = plain
        self._metadata = metadata
        self._binding = None if metadata is None else ArrayBinding(metadata)
        self._place: ArrayPlace | None = None

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """A pipeline without an array, e.g. for the inner chunks of a shard; it uses zarr-python's own."""
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
        """The pipeline for chunks as described by the spec."""
        return type(self)(self.plain.evolve_from_array_spec(array_spec), self._metadata)

    @property
    def supports_partial_decode(self) -> bool:
        return self.plain.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        return self.plain.supports_partial_encode

    def validate(self, **arguments: Any) -> None:
        self.plain.validate(**arguments)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        return self.plain.compute_encoded_size(byte_length, array_spec)

    async def decode(
        self, chunk_bytes_and_specs: Iterable[tuple[Buffer | None, ArraySpec]]
    ) -> Iterable[NDBuffer | None]:
        return await self.plain.decode(chunk_bytes_and_specs)

    async def encode(
        self, chunk_arrays_and_specs: Iterable[tuple[NDBuffer | None, ArraySpec]]
    ) -> Iterable[Buffer | None]:
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

    async def read(
        self,
        batch_info: Iterable[tuple[Any, ArraySpec, Any, Any, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> Any:
        """Fill `out`; returns the status of each chunk, which newer versions of zarr-python use.

        Raises
            CodecError: a chunk is damaged.
        """
        batch = list(batch_info)
        if not batch:
            return ()
        found = await self._by_engine(self._read, batch, out, drop_axes)
        return await self.plain.read(batch, out, drop_axes) if found is None else found

    async def write(
        self,
        batch_info: Iterable[tuple[Any, ArraySpec, Any, Any, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
    ) -> None:
        """Store `value`; chunks that are covered in part are locked against other writers meanwhile.

        Raises
            CodecError: a chunk that is covered in part is damaged.
        """
        batch = list(batch_info)
        if batch and not await self._by_engine(self._write, batch, value, drop_axes):
            await self.plain.write(batch, value, drop_axes)

    async def _by_engine(
        self, work: Callable[..., T], batch: Batch, buffer: NDBuffer, drop_axes: tuple[int, ...]
    ) -> T | None:
        """The result of `work` in another thread; None if zarr-python's own pipeline has to do it."""
        memory = _memory(batch, buffer)
        if memory is None or self._binding is None:
            return None
        store = batch[0][0].store
        if not store._is_open:
            await store._ensure_open()
        return await CODING.run(
            partial(work, batch, memory, drop_axes, asyncio.get_running_loop()), finishes=False
        )

    def _read(self, batch: Batch, memory: Memory, *where: Any) -> Sequence[dict[str, str]] | None:
        found = self._find(batch, memory, *where)
        if found is None or found[2].shape != memory.shape:
            return None
        fit, place, selected = found
        model = fit.model
        chunks = place.chunks(fit, selected.whole_shape(model.shape, model.grid.chunk_shape))
        items = np.empty(memory.shape, model.dtype) if fit.is_converted else fit.view(memory)
        must_be_there = not getattr(batch[0][1].config, "read_missing_chunks", True)
        plan = selected.plan(chunks.layout)
        if not _is_done(place, lambda: chunks.read(plan, items, missing_is_fault=must_be_there)):
            return None
        if fit.is_converted:
            memory[...] = items
        return place.statuses(batch)

    def _write(self, batch: Batch, memory: Memory, *where: Any) -> bool:
        batch[0][0].store._check_writable()
        assert self._binding is not None
        if self._binding.has_own_order:
            return False
        found = self._find(batch, memory, *where)
        if found is None or memory.shape not in ((), found[2].shape):
            return False
        fit, place, selected = found
        model = fit.model
        shape = selected.array_shape(model.shape, model.grid.chunk_shape)
        chunks = place.chunks(fit, shape, skip_empty=not batch[0][1].config.write_empty_chunks)
        items = memory.astype(model.dtype) if fit.is_converted else fit.view(memory)
        value = np.broadcast_to(items, selected.shape)
        return _is_done(place, lambda: chunks.write(selected.plan(chunks.write_layout), value))

    def _find(
        self, batch: Batch, memory: Memory, drop_axes: tuple[int, ...], loop: asyncio.AbstractEventLoop
    ) -> tuple[Fit, ArrayPlace, Recovered] | None:
        """(fit of the data type, array in the store, selection) of a batch; None if one is unknown."""
        assert self._binding is not None
        fit = self._binding.fit(memory.dtype)
        if fit is None:
            return None
        place = self._at(batch, loop)
        selected = self._binding.recover(batch, place.prefix, drop_axes)
        return None if selected is None else (fit, place, selected)

    def _at(self, batch: Batch, loop: asyncio.AbstractEventLoop) -> ArrayPlace:
        """The array in the store that a batch belongs to, nearly always that of the last batch."""
        assert self._binding is not None
        getter, place = batch[0][0], self._place
        prefix = self._binding.prefix(getter.path)
        if (
            place is None
            or place.source is not getter.store
            or place.loop is not loop
            or place.prefix != prefix
        ):
            place = self._place = ArrayPlace(getter.store, prefix, loop)
        return place


def _memory(batch: Batch, buffer: NDBuffer) -> np.ndarray[Any, Any] | None:
    """The caller's memory; None if the engine cannot handle the batch."""
    getter = batch[0][0]
    # Not isinstance, which is also true of mock objects.
    if type(getter) is not StorePath or not issubclass(type(getter.store), Store):
        return None
    prototype = batch[0][1].prototype
    if prototype.nd_buffer is not cpu.NDBuffer or prototype.buffer is not cpu.Buffer:
        return None
    memory: Any = buffer.as_ndarray_like()
    return memory if type(memory) is np.ndarray else None


def _is_done(place: ArrayPlace, work: Callable[[], None]) -> bool:
    """Whether the engine could do the work; else zarr-python's own pipeline does it, or raises the error.

    Raises
        ChangedError: another writer has changed a value, which zarr-python would overwrite.
        CodecError: a chunk is damaged.
    """
    try:
        work()
    except ChangedError:
        raise
    except NotFoundError:
        return False
    except StoreError as error:
        if isinstance(place.store, ZarrStore) and error.__cause__ is not None:
            raise error.__cause__  # noqa: B904 - as zarr-python's store raised it
        return False  # a store of zstore may refuse what zarr-python's accepts
    except CodecError as error:
        if error.codec not in REFUSING:
            raise
        return False
    return True


register_pipeline(ZstoreCodecPipeline)
