"""The base of arrays and groups: a path in a store, metadata, and attributes that store changes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial, wraps
from math import inf
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar

import numpy.typing as npt

from zstore.engine.documents import ARRAY_KEYS, GROUP_KEYS, change_node, place
from zstore.errors import NotFoundError, StoreError
from zstore.model import v2
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.document import check_attributes
from zstore.model.group import GroupModel
from zstore.nodes import above
from zstore.nodes.advice import OPTION_ADVICE
from zstore.storage.base import Store, document_range, join_key

P = ParamSpec("P")
R = TypeVar("R")


def advise_options(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, with an error that names the replacement for an option of another library's.

    Raises
        TypeError: there is such an option.
    """

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if not OPTION_ADVICE.keys().isdisjoint(options):
            name = next(name for name in options if name in OPTION_ADVICE)
            said = f"{function.__name__} takes no {name}={options[name]!r}"
            raise TypeError(f"{said}; use {OPTION_ADVICE[name]}")
        return function(*args, **options)

    return call


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
        said = self._get_model().attributes
        return {name: deepcopy(one) if isinstance(one, dict | list) else one for name, one in said.items()}

    def __repr__(self) -> str:
        return f"Attributes({dict(self._get_model().attributes)!r})"

    def _where(self) -> str:
        return place(self._store, self._path)

    def _change(self, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        held = self._get_model()
        key = join_key(self._path, _document_key(held))
        self._store.check_writable(key)

        changed: ArrayModel | GroupModel | None = None

        def change(stored: object) -> ArrayModel | GroupModel:
            nonlocal changed
            if type(stored) is not type(held):
                raise NotFoundError(
                    "the node that the attributes belong to is gone", path=self._where(), key=key
                )
            assert stored is not None
            changed = _with_attributes(stored, edit(dict(stored.attributes)), self._where())
            return changed

        self._store.update(key, partial(change_node, self._store, self._path, held.zarr_format, change))
        assert changed is not None
        self._set_model(changed)


def _document_key(model: ArrayModel | GroupModel) -> str:
    return (ARRAY_KEYS if isinstance(model, ArrayModel) else GROUP_KEYS)[model.zarr_format]


def _with_attributes(model: ArrayModel | GroupModel, attributes: dict[str, Any], where: str) -> Any:
    if not isinstance(model, ArrayModel) or model.zarr_format == 3 or v2.DIMENSIONS not in attributes:
        return model.with_attributes(attributes)
    # In v1 and v2 this attribute is what the dimension names are made of.
    renamed = replace(model, zarr_format=2, attributes=attributes, dimension_names=None)
    return replace(v2.parse_array(v2.render_array(renamed), path=where), zarr_format=model.zarr_format)


Model = TypeVar("Model", bound=ArrayModel | GroupModel)
Missing = Literal["fill", "error"]


def is_fault(missing: str) -> bool:
    """Whether reading a chunk that is not stored is an error ("error") or gives the fill value ("fill").

    Raises
        ValueError: `missing` is neither.
    """
    if missing not in ("fill", "error"):
        raise ValueError(f"missing={missing!r}, expected 'fill' or 'error'")
    return missing == "error"


@dataclass(frozen=True)
class Access:
    """The options with which a node was opened; nodes below it are opened with the same.

    read_only     writing is an error
    allow_pickle  chunks may be unpickled, which runs code that they contain
    missing       what a chunk that is not stored is: "fill" (the fill value) or "error"
    cache_size    bytes of decoded chunks that an array keeps in a cache of its own
    is_published  whether the metadata documents exist; those of a new array are written after its chunks
    keeps_empty   chunks of nothing but the fill value are stored, too
    is_viewed     items are shown as another type than that of the array's document
    """

    read_only: bool = False
    allow_pickle: bool = False
    missing: Missing = "fill"
    cache_size: int = 0
    is_published: bool = True
    keeps_empty: bool = False
    is_viewed: bool = False

    def __post_init__(self) -> None:
        is_fault(self.missing)


class StoredNode(Generic[Model]):
    """An array or a group, with its metadata as of opening or of the last change made through it."""

    __slots__ = ("_access", "_model", "_path", "_store")

    def __init__(self, store: Store, path: str, model: Model, access: Access = Access()) -> None:
        self._store = store if not access.read_only or store.read_only else store.as_read_only()
        self._path = path
        self._model = model
        self._access = access

    @property
    def store(self) -> Store:
        """The store that holds the node."""
        return self._store

    @property
    def path(self) -> str:
        """The path in the store; "" at the root."""
        return self._path

    @property
    def name(self) -> str:
        """The path with a leading slash."""
        return f"/{self._path}"

    @property
    def basename(self) -> str:
        """The last part of the path."""
        return self._path.rpartition("/")[2]

    @property
    def model(self) -> Model:
        """The parsed metadata."""
        return self._model

    @property
    def zarr_format(self) -> ZarrFormat:
        """The version of the Zarr format: 1, 2 or 3."""
        return self._model.zarr_format

    @property
    def access(self) -> Access:
        """The options with which the node was opened."""
        return self._access

    @property
    def read_only(self) -> bool:
        """Whether the node was opened for reading only."""
        return self._store.read_only

    @property
    def attrs(self) -> Attributes:
        """The attributes; every change is stored at once."""
        return Attributes(self._store, self._path, partial(getattr, self, "_model"), self._set_model)

    def as_durable(self) -> Self:
        """The same node, opened so that completed changes survive a power cut.

        Raises
            StoreError: its store cannot promise that.
        """
        return type(self)(self._store.as_durable(), self._path, self._model, self._access)

    def _kept_store(self, size: int, fresh_for: float) -> Store:
        """The node's store with `size` bytes of its values in memory; directories and memory as they are."""
        if size <= 0 or self._store.in_memory or self._store.local_path("") is not None:
            return self._store
        from zstore.storage.cached import KeptStore  # which few need, and which loads SQLite

        if fresh_for != inf and not self._has_version():
            raise StoreError(
                "cannot be cached: the store does not tell whether values have changed; expected "
                "fresh_for=math.inf, where they never do",
                path=self._where(),
            )
        return KeptStore(self._store, size, fresh_for=fresh_for)

    def _has_version(self) -> bool:
        """Whether the store gives a version with the node's document."""
        keys = ARRAY_KEYS if isinstance(self._model, ArrayModel) else GROUP_KEYS
        (part,) = self._store.get_parts([(join_key(self._path, keys[self.zarr_format]), document_range())])
        return part is not None and part.version is not None

    def tile(
        self, z: int | str, x: int, y: int, array: str | None = None, **indexers: Any
    ) -> npt.NDArray[Any]:
        """The tile in column `x` and row `y` of tile matrix `z` of the pyramid that the node belongs to.

        The cells are those of this array at that level; for a group, those of `array`, or of its only one.
        See `zstore.read_tile`.
        """
        return above.read_tile(self, z, x, y, array, **indexers)

    def _repr_html_(self) -> str | None:
        """The HTML that notebooks show; None, for which they show `repr`, if it cannot be made."""
        try:
            return above.render_html(self)
        except Exception:
            # Showing an object must never fail; using it will raise the error again.
            return None

    def _set_model(self, model: Model) -> None:
        self._model = model

    def _where(self) -> str:
        """The URL of the node, as error messages name it."""
        return place(self._store, self._path)
