"""Putting a new array into a store, once everything about it is known to be right."""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from zstore.engine.documents import create_node, place
from zstore.errors import MetadataError, ZstoreError
from zstore.model.array import ArrayModel
from zstore.storage.base import Store

if TYPE_CHECKING:
    from zstore.nodes.array import Array

__all__ = ["describe_data", "put_array"]

_bound: set[tuple[Any, ...]] = set()


def describe_data(data: Any, shape: Any, dtype: Any) -> tuple[np.ndarray[Any, Any], Any, Any]:
    """(data as an array, shape, dtype) for an array made from data.

    Raises
        MetadataError: a shape that is not the data's was given as well.
    """
    values = np.asarray(data)
    if shape is not None and (tuple(shape) if isinstance(shape, Iterable) else (shape,)) != values.shape:
        raise MetadataError(f"shape is {shape!r}; expected {values.shape} as the data has")
    return values, values.shape, values.dtype if dtype is None else dtype


def put_array(
    store: Store,
    path: str,
    model: ArrayModel,
    *,
    data: Any = None,
    overwrite: bool = False,
    allow_pickle: bool = False,
    missing: str = "fill",
) -> Array:
    """Write the new array's metadata, then its data; `missing` is what the array is told, as by opening.

    The codecs are bound before anything is written, so that what cannot work replaces nothing.

    Raises
        MetadataError, UnknownExtensionError: codecs that do not exist, or do not fit together or the array.
        UnsupportedError: chunks would be pickled, and the caller does not allow that.
        StoreError: as `create_node`.
    """
    from zstore.nodes.array import Array

    try:
        _check_codecs(model, allow_pickle=allow_pickle)
    except ZstoreError as error:
        error.locate(path=place(store, path))
        raise
    create_node(store, path, model, overwrite=overwrite)
    array = Array(store, path, model, read_only=False, allow_pickle=allow_pickle, missing=missing)
    if data is not None:
        array[...] = data
    return array


def _check_codecs(model: ArrayModel, *, allow_pickle: bool) -> None:
    """Bind the codecs to chunks of every shape, unless those of an array with all of that have been bound."""
    from zstore.codecs.base import ChunkSpec
    from zstore.codecs.chain import Chain

    fill_value = model.data_type.default_fill() if model.fill_value is None else model.fill_value
    shapes = tuple(model.grid.shapes())
    names = [(codec.name, codec.configuration, codec.must_understand) for codec in model.codecs]
    try:
        fill = None if model.data_type.is_object else model.data_type.fill_bits(fill_value)
        content = (marshal.dumps(names, 2), shapes, model.dtype, fill, allow_pickle)
    except ValueError:  # configurations of something else than JSON has
        content = None
    if content in _bound and not model.data_type.is_object:
        return
    for shape in shapes:
        Chain.bind(model.codecs, ChunkSpec(shape, model.dtype, fill_value, allow_pickle))
    # What comes back as something else (numpy's scalars as bytes) could be taken for another thing.
    if content is not None and len(shapes) == 1 and marshal.loads(content[0]) == names:
        if len(_bound) >= 1024:
            _bound.clear()
        _bound.add(content)
