"""`zarr.core.buffer`: bytes and items as stores and selections pass them."""

from zstore.zarr.buffer import Buffer, BufferPrototype, NDBuffer, cpu, default_buffer_prototype

__all__ = ["Buffer", "BufferPrototype", "NDBuffer", "cpu", "default_buffer_prototype"]
