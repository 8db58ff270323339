"""The base of arrays and groups: a path in a store, metadata and attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, TypeVar

import numpy.typing as npt

from zstore.engine.documents import place
from zstore.model.array import ArrayModel, ZarrFormat
from zstore.model.group import GroupModel
from zstore.nodes import above
from zstore.nodes.attributes import Attributes
from zstore.storage.base import Store

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
    """How a node was opened; the nodes below it are opened the same way.

    read_only     writing is an error
    allow_pickle  chunks may be unpickled, which runs code that they contain
    missing       what a chunk that is not stored is: "fill" (the fill value) or "error"
    cache_size    bytes of decoded chunks that an array keeps in a cache of its own
    is_published  whether the metadata documents exist; those of a new array are written after its chunks
    """

    read_only: bool = False
    allow_pickle: bool = False
    missing: Missing = "fill"
    cache_size: int = 0
    is_published: bool = True

    def __post_init__(self) -> None:
        is_fault(self.missing)


class Node(Generic[Model]):
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
        """The metadata, parsed."""
        return self._model

    @property
    def zarr_format(self) -> ZarrFormat:
        """The version of the Zarr format: 1, 2 or 3."""
        return self._model.zarr_format

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._store.read_only

    @property
    def attrs(self) -> Attributes:
        """The attributes; every change is stored at once."""
        return Attributes(self._store, self._path, lambda: self._model, self._set_model)

    def as_durable(self) -> Self:
        """The same node, opened so that completed changes survive a power cut.

        Raises
            StoreError: its store cannot promise that.
        """
        return type(self)(self._store.as_durable(), self._path, self._model, self._access)

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
