"""Creating arrays and hierarchies in a store, after checking that their metadata and codecs are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from zstore.base.content import ByContent
from zstore.codecs.base import ChunkSpec
from zstore.codecs.chain import Chain
from zstore.engine.documents import check_own, check_path, place, publish_nodes
from zstore.engine.making import create_node
from zstore.errors import MetadataError, located
from zstore.model import v2, v3
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes, parse_json, render_json
from zstore.model.group import GroupModel
from zstore.nodes.array import Array
from zstore.nodes.node import Access
from zstore.nodes.request import ArrayRequest
from zstore.storage.base import Store, join_key

Model = ArrayModel | GroupModel

# Members of a document that may be null, which means the same as leaving them out.
MERGED = ("consolidated_metadata", "dimension_names", "storage_transformers")

_bound: ByContent[bool] = ByContent()


def make_array(store: Store, path: str, request: ArrayRequest, access: Access, *, overwrite: bool) -> Array:
    """Store a new array's data, then its metadata; gives the array, opened with `access`.

    Codecs are checked before anything is written, so that an array that cannot work replaces nothing.

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
    """Store a new array's data without its metadata document: until that is written, no reader finds it.

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


def make_models(
    store: Store, base: str, nodes: Mapping[str, Any], zarr_format: ZarrFormat | None, access: Access
) -> dict[str, Model]:
    """The models of new nodes, by their paths in the store.

    `nodes` has each by its path below `base`: as a model, as a stored document (with "zarr_format" in it), as
    an object whose `to_dict` gives one (zarr-python's metadata), or as the options of `create_array` (of
    `create_group`, if there is no shape).

    Raises
        MetadataError, UnsupportedError: what is asked for makes no node.
        UnknownExtensionError: codecs that do not exist.
    """
    models = {}
    for below, wanted in nodes.items():
        path = join_key(base, check_path(below))
        if path in models:
            raise MetadataError(f"two nodes have the path {path!r}; expected one", path=place(store, path))
        models[path] = _make_model(store, path, wanted, zarr_format, access)
    return models


def _make_model(
    store: Store, path: str, wanted: Any, zarr_format: ZarrFormat | None, access: Access
) -> Model:
    where = place(store, path)
    if hasattr(wanted, "to_dict"):
        wanted = wanted.to_dict()
    if isinstance(wanted, Mapping) and "zarr_format" in wanted:
        wanted = _parse_document(wanted, where)
    if isinstance(wanted, GroupModel):
        return replace(wanted, consolidated=None)
    if isinstance(wanted, ArrayModel):
        with located(where):
            _check_codecs(wanted, allow_pickle=access.allow_pickle)
        return wanted
    if not isinstance(wanted, Mapping) or "data" in wanted:
        raise MetadataError(
            f"node is {type(wanted).__name__}; expected metadata, or options of create_array without data",
            path=where,
        )
    options = dict(wanted)
    if "shape" in options:
        return _settle(store, path, ArrayRequest(zarr_format=zarr_format or 3, **options), access)[1]
    attributes = options.pop("attributes", None) or {}
    if options:
        raise MetadataError(f"a group has no {min(options)!r}; expected a shape, or attributes", path=where)
    return GroupModel(zarr_format or 3, check_attributes(attributes, path=where))


def _parse_document(document: Mapping[str, Any], where: str) -> Model:
    """The model of a node's document; it has the attributes in it, even for formats that store them apart."""
    # Through JSON, because zarr-python's documents have tuples for lists, and to refuse what JSON cannot say.
    document = parse_json(render_json(document), path=where, key="zarr.json")
    if document["zarr_format"] == 3:
        return v3.parse_node({v3.KEY: {k: v for k, v in document.items() if k not in MERGED or v}}, where)
    key = v2.ARRAY_KEY if "shape" in document else v2.GROUP_KEY
    own = {
        name: value for name, value in document.items() if name not in ("attributes", "node_type", *MERGED)
    }
    return v2.parse_node({key: own, v2.ATTRIBUTES_KEY: document.get("attributes") or {}}, where)


class NewNodes:
    """New nodes at and below a path, which readers cannot see until `publish` writes their documents.

    Paths are relative to it; "" is the node at that path itself.
    """

    def __init__(self, store: Store, base: str, zarr_format: ZarrFormat) -> None:
        self._store = store
        self._base = base
        self._format = zarr_format
        self._models: dict[str, ArrayModel | GroupModel] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._models

    def add_group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add a group, but none of the groups above it.

        Raises
            MetadataError: attributes that JSON cannot represent.
        """
        where = place(self._store, join_key(self._base, path))
        self._models[path] = GroupModel(self._format, check_attributes(attributes, path=where))

    def add_array(self, path: str, **options: Any) -> Array:
        """Add an array and store its data, if any; gives the array to write to. Options as of `create_array`.

        Raises
            as `draft_array`.
        """
        request = ArrayRequest(zarr_format=self._format, **options)
        array = draft_array(self._store, join_key(self._base, path), request, Access())
        self._models[path] = array.model
        return array

    def check_own(self) -> None:
        """Check that nobody else has made nodes at these paths while the work was interrupted.

        Raises
            StoreError: somebody has.
        """
        check_own(self._store, self._base, self._models)

    def publish(self) -> None:
        """Write all documents: first those of arrays, then those of groups, from the deepest up.

        Raises
            StoreError: somebody else has made another node there meanwhile.
            ReadOnlyError, StoreError: the store refused.
        """
        publish_nodes(self._store, self._base, self._models)


def _settle(
    store: Store, path: str, request: ArrayRequest, access: Access
) -> tuple[ArrayRequest, ArrayModel]:
    """Complete a request (shape, dtype and attributes), and make the model of the array."""
    where = place(store, path)
    with located(where):
        request = request.complete()
        if request.attributes:
            request = replace(request, attributes=check_attributes(request.attributes, path=where))
        model = request.model()
        _check_codecs(model, allow_pickle=access.allow_pickle)
    return request, model


def _check_codecs(model: ArrayModel, *, allow_pickle: bool) -> None:
    """Check that the codecs can be bound to chunks of every shape; remembers what was checked before."""
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
        # Much faster than `repr`, which only structured dtypes need.
        dtype = model.dtype.str if model.dtype.names is None else repr(model.dtype)
        _bound.get((names, shapes, dtype, fill, allow_pickle), bind)
