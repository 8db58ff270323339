"""Putting new nodes into a store, once everything about them is known to be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from zstore.base.content import ByContent
from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.engine.documents import create_node, place
from zstore.engine.publish import publish_nodes
from zstore.errors import located
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.node import Access
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store, join_key

__all__ = ["NewNodes", "draft_array", "make_array"]

_bound: ByContent[bool] = ByContent()


def make_array(store: Store, path: str, request: ArrayRequest, access: Access, *, overwrite: bool) -> Array:
    """Store the new array's data, then the metadata that makes it one; `access` is what the array is told.

    The codecs are bound before anything is written, so that what cannot work replaces nothing.

    Raises
        as `draft_array`; StoreError: as `create_node`.
    """
    request, model = _settle(store, path, request, access)
    fill = None
    if request.data is not None:
        new = Array(store, path, model, replace(access, is_published=False))
        fill = partial(new.__setitem__, ..., request.data)
    create_node(store, path, model, overwrite=overwrite, fill=fill)
    return Array(store, path, model, access)


def draft_array(store: Store, path: str, request: ArrayRequest, access: Access) -> Array:
    """The new array with its data, and without its document: until that is written, nobody sees it.

    Raises
        MetadataError, UnsupportedError: what is asked for makes no array.
        MetadataError, UnknownExtensionError: codecs that do not exist, or do not fit together or the array.
        UnsupportedError: chunks would be pickled, and the caller does not allow that.
        StoreError: the store failed.
    """
    request, model = _settle(store, path, request, access)
    array = Array(store, path, model, replace(access, is_published=False))
    if request.data is not None:
        array[...] = request.data
    return array


class NewNodes:
    """New nodes at and below a place, seen by nobody until they are published: the documents come last.

    Paths are below the place, which is "" itself.
    """

    def __init__(self, store: Store, base: str, zarr_format: ZarrFormat) -> None:
        self._store = store
        self._base = base
        self._format = zarr_format
        self._models: dict[str, ArrayModel | GroupModel] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._models

    def add_group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """A group; those on the way to it are not made.

        Raises
            MetadataError: attributes that JSON has no words for.
        """
        where = place(self._store, join_key(self._base, path))
        self._models[path] = GroupModel(self._format, check_attributes(attributes, path=where))

    def add_array(self, path: str, **options: Any) -> Array:
        """An array to write to, with its data where they are given; the options are those of `create_array`.

        Raises
            as `draft_array`.
        """
        request = ArrayRequest(zarr_format=self._format, **options)
        array = draft_array(self._store, join_key(self._base, path), request, Access())
        self._models[path] = array.model
        return array

    def publish(self) -> None:
        """Write all documents: arrays, then groups from the deepest up.

        Raises
            ReadOnlyError, StoreError: the store refused.
        """
        publish_nodes(self._store, self._base, self._models)


def _settle(
    store: Store, path: str, request: ArrayRequest, access: Access
) -> tuple[ArrayRequest, ArrayModel]:
    """The request with nothing left open, and its model."""
    where = place(store, path)
    with located(where):
        request = request.complete()
        if request.attributes:
            request = replace(request, attributes=check_attributes(request.attributes, path=where))
        model = request.model()
        _check_codecs(model, allow_pickle=access.allow_pickle)
    return request, model


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
