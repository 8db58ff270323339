"""The attributes of an array or group: a mapping that stores every change at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from zstore.engine.documents import ARRAY_KEYS, GROUP_KEYS, place, read_node, write_node
from zstore.errors import NotFoundError
from zstore.model import v2
from zstore.model.array import ArrayModel
from zstore.model.document import check_attributes
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key


class Attributes(MutableMapping[str, Any]):
    """The user's attributes; setting, deleting and `update` write the node's metadata at once.

    A change applies to what the store holds at that moment, under the store's lock: two writers that set
    different attributes both succeed. Reading gives the attributes as of opening, or of the last change made
    here. Lists and mappings are given as copies; assign the attribute to change one.

    Raises
        MetadataError: a value that JSON cannot represent, such as NaN or infinity.
        ReadOnlyError: the node was opened for reading.
        NotFoundError: the node has been removed meanwhile.
    """

    __slots__ = ("_get_model", "_path", "_set_model", "_store")

    def __init__(
        self,
        store: Store,
        path: str,
        get_model: Callable[[], ArrayModel | GroupModel],
        set_model: Callable[[Any], None],
    ) -> None:
        self._store = store
        self._path = path
        self._get_model = get_model
        self._set_model = set_model

    def __getitem__(self, name: str) -> Any:
        value = self._get_model().attributes[name]
        return deepcopy(value) if isinstance(value, dict | list) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._get_model().attributes)

    def __len__(self) -> int:
        return len(self._get_model().attributes)

    def __contains__(self, name: object) -> bool:
        return name in self._get_model().attributes

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        def remove(attributes: dict[str, Any]) -> dict[str, Any]:
            del attributes[name]
            return attributes

        self._change(remove)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes with one write."""
        added = check_attributes(dict(*args, **kwargs), path=self._where())
        self._change(lambda attributes: attributes | added)

    def put(self, attributes: Mapping[str, Any]) -> None:
        """Replace all attributes with one write."""
        replaced = check_attributes(attributes, path=self._where())
        self._change(lambda _: replaced)

    def clear(self) -> None:
        """Remove all attributes, with one write."""
        self.put({})

    def asdict(self) -> dict[str, Any]:
        """A copy as a plain dict."""
        return deepcopy(dict(self._get_model().attributes))

    def __repr__(self) -> str:
        return f"Attributes({dict(self._get_model().attributes)!r})"

    def _where(self) -> str:
        return place(self._store, self._path)

    def _change(self, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        held = self._get_model()
        key = join_key(self._path, _document_key(held))
        self._store.check_writable(key)

        def change() -> None:
            stored = read_node(self._store, self._path, held.zarr_format)
            if type(stored) is not type(held):
                raise NotFoundError(
                    "the node that the attributes belong to is gone", path=self._where(), key=key
                )
            assert stored is not None
            changed = _with_attributes(stored, edit(dict(stored.attributes)), self._where())
            write_node(self._store, self._path, changed, previous=stored)
            self._set_model(changed)

        self._store.update(key, change)


def _document_key(model: ArrayModel | GroupModel) -> str:
    return (ARRAY_KEYS if isinstance(model, ArrayModel) else GROUP_KEYS)[model.zarr_format]


def _with_attributes(model: ArrayModel | GroupModel, attributes: dict[str, Any], where: str) -> Any:
    if not isinstance(model, ArrayModel) or model.zarr_format == 3 or v2.DIMENSIONS not in attributes:
        return model.with_attributes(attributes)
    # In v1 and v2 this attribute is what the dimension names are made of.
    renamed = replace(model, zarr_format=2, attributes=attributes, dimension_names=None)
    return replace(v2.parse_array(v2.render_array(renamed), path=where), zarr_format=model.zarr_format)
