"""Putting a new array into a store, once everything about it is known to be right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zstore.base.content import ByContent
from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.engine.documents import create_node, place
from zstore.errors import located
from zstore.model.array import ArrayModel
from zstore.model.document import check_attributes
from zstore.nodes.array import Array
from zstore.nodes.node import Access
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store

__all__ = ["make_array"]

_bound: ByContent[bool] = ByContent()


def make_array(store: Store, path: str, request: ArrayRequest, access: Access, *, overwrite: bool) -> Array:
    """Write the new array's metadata, then its data; `access` is what the array is told, as by opening.

    The codecs are bound before anything is written, so that what cannot work replaces nothing.

    Raises
        MetadataError, UnsupportedError: what is asked for makes no array.
        MetadataError, UnknownExtensionError: codecs that do not exist, or do not fit together or the array.
        UnsupportedError: chunks would be pickled, and the caller does not allow that.
        StoreError: as `create_node`.
    """
    where = place(store, path)
    with located(where):
        request = request.complete()
        if request.attributes:
            request = replace(request, attributes=check_attributes(request.attributes, path=where))
        model = request.model()
        _check_codecs(model, allow_pickle=access.allow_pickle)
    create_node(store, path, model, overwrite=overwrite)
    array = Array(store, path, model, access)
    if request.data is not None:
        array[...] = request.data
    return array


def _check_codecs(model: ArrayModel, *, allow_pickle: bool) -> None:
    """Bind the codecs to chunks of every shape, unless those of an array with all of that have been bound."""
    fill_value = model.effective_fill_value
    shapes = tuple(model.grid.shapes())
    names = [(codec.name, codec.configuration, codec.must_understand) for codec in model.codecs]

    def bind(_: Any) -> bool:
        for shape in shapes:
            Chain.bind(model.codecs, ChunkSpec(shape, model.dtype, fill_value, allow_pickle))
        return True

    if model.data_type.is_object or len(shapes) > 1:
        bind(None)
    else:
        fill = model.data_type.fill_bits(fill_value)
        _bound.get((names, shapes, repr(model.dtype), fill, allow_pickle), bind)
