"""Sources that are made of other ones, by functions that documents name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from zstore.base.boxes import Box
from zstore.base.once import once
from zstore.errors import ChangedError, MetadataError, ZstoreError
from zstore.extensions.registry import makers
from zstore.jobs.chunks import source_of
from zstore.jobs.source import Source
from zstore.model.array import ZarrFormat
from zstore.model.grid import RegularGrid
from zstore.nodes.array import Array
from zstore.storage.base import Store
from zstore.storage.memory import MemoryStore


@dataclass(frozen=True)
class MadeBy:
    """The way a source is made: by a function, of other sources or of an address.

    by       the function's name in `extensions.builtin.MAKERS`
    options  what it takes by keyword, in JSON, and numbers or items of numpy's
    of       what it takes in order: sources, each as `view` takes them, or steps of views
    url      None: no address
    storage_options  of the address
    """

    by: str
    options: Mapping[str, Any]
    of: tuple[Any, ...] = ()
    url: str | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def make(self) -> Source:
        """The source.

        Raises
            MetadataError: the function does not take that.
        """
        places = {} if self.url is None else {"url": self.url, "storage_options": self.storage_options}
        try:
            made: Source = makers.resolve(self.by)(*self.of, **places, **self.options)
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ZstoreError):
                raise
            said = f"{self.by!r} of a view is damaged: {type(error).__name__}: {error}"
            raise MetadataError(said) from error
        return made


class MadeSource(Source):
    """A source that can be made again, so that a document can have it.

    source  the one that it is made of, whose data type and version it has, unless it says otherwise
    """

    if TYPE_CHECKING:  # a property here would be the default of a field of the same name

        @property
        def source(self) -> Source: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype.newbyteorder("=")

    def version(self) -> str:
        return self.source.version()

    def check_apart(self, target: Store, base: str, work: str) -> None:
        self.source.check_apart(target, base, work)

    @property
    def request_count(self) -> int:
        return self.source.request_count

    def close(self) -> None:
        self.source.close()

    @abstractmethod
    def making(self) -> MadeBy:
        """The way it is made.

        Raises
            UnsupportedError: no document can say it.
        """


def origin_of(source: Any) -> Any:
    """The source itself, or the view or made source that an array shows: what documents name."""
    shown = source_of(source) if isinstance(source, Array) else source
    return shown if isinstance(shown, MadeSource) or hasattr(shown, "step") else source


@dataclass(frozen=True, repr=False)
class Remade(MadeSource):
    """A source of a document, which is made when its first item is read.

    shape, dtype, chunks  as they were when the document was written; other ones are an error
    """

    how: MadeBy
    lengths: tuple[int, ...]
    items: np.dtype[Any]
    chunks: tuple[int, ...]

    @once
    def source(self) -> Source:
        """The source, made now if it was not.

        Raises
            ChangedError: it has another shape or dtype.
        """
        made = self.how.make()
        if (made.shape, made.dtype) != (self.lengths, self.items):
            raise ChangedError(
                f"{self.how.by!r} made shape {made.shape} and dtype {made.dtype}; expected {self.lengths} "
                f"and {self.items}, as when the view of it was saved",
                path=made.url,
            )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Remade, (self.how, self.lengths, self.items, self.chunks)

    def making(self) -> MadeBy:
        return self.how

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lengths

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.items

    @property
    def grid(self) -> RegularGrid:
        return RegularGrid(self.chunks)

    @property
    def url(self) -> str:
        return self.source.url

    @property
    def meant(self) -> Any:
        """The description that views of it carry."""
        return getattr(self.source, "meant", None)

    @property
    def name(self) -> str:
        return self.source.name

    def documents(self, zarr_format: ZarrFormat) -> tuple[MemoryStore, str] | None:
        return self.source.documents(zarr_format)

    def describe(self) -> dict[str, str]:
        return self.source.describe()

    def close(self) -> None:
        if "source" in self.__dict__:
            super().close()

    def read(self, box: Box, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        return self.source.read(box, out)
