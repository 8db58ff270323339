"""What arrays and groups have in common: a place in a store, metadata and attributes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, TypeVar

from zstore.model.array import ArrayModel
from zstore.model.group import GroupModel
from zstore.nodes.attributes import Attributes
from zstore.storage.base import Store

__all__ = ["Node"]

Model = TypeVar("Model", bound=ArrayModel | GroupModel)


class Node(Generic[Model]):
    """An array or a group, as of opening or of the last change made here."""

    __slots__ = ("_model", "_path", "_read_only", "_store")

    def __init__(self, store: Store, path: str, model: Model, *, read_only: bool = False) -> None:
        self._store = store if not read_only or store.read_only else store.as_read_only()
        self._path = path
        self._model = model
        self._read_only = read_only or store.read_only

    @property
    def store(self) -> Store:
        """The store that holds it."""
        return self._store

    @property
    def path(self) -> str:
        """Where it is in its store; "" at the root."""
        return self._path

    @property
    def name(self) -> str:
        """Its path with a leading slash."""
        return f"/{self._path}"

    @property
    def basename(self) -> str:
        """The last part of its path."""
        return self._path.rpartition("/")[2]

    @property
    def model(self) -> Model:
        """What its metadata says."""
        return self._model

    @property
    def zarr_format(self) -> int:
        """1, 2 or 3."""
        return self._model.zarr_format

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._read_only

    @property
    def attrs(self) -> Attributes:
        """Its attributes; changes go straight to the store."""
        return Attributes(self._store, self._path, lambda: self._model, self._set_model)

    def tile(self, z: int | str, x: int, y: int, array: str | None = None, **indexers: Any) -> Any:
        """The tile in column `x` and row `y` of tile matrix `z`, of the pyramid this is, or is a part of.

        Of an array, its own cells at that level; of a group, those of `array`, or of the only one there is.
        See `zstore.read_tile`.
        """
        return import_module("zstore.pyramid.tiles").read_tile(self, z, x, y, array, **indexers)

    def _repr_html_(self) -> str | None:
        """What notebooks show; None, for which they take `repr`, where that cannot be made."""
        try:
            made: str = import_module("zstore.report.notebook").render_html(self)
        except Exception:
            # To show an object must never fail: whatever is wrong comes up again when it is used.
            return None
        return made

    def _set_model(self, model: Model) -> None:
        self._model = model
