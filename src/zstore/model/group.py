"""The model of a group: its metadata as frozen data, the same for every Zarr format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zstore.base.once import look_up
from zstore.errors import MetadataError, ZstoreError
from zstore.model.array import ArrayModel, ZarrFormat


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The metadata of one group, and of all nodes below if its document is consolidated.

    consolidated     path relative to this group ("a/b") -> model of that array or group; None if the
                     document has no consolidated metadata
    extra            members of the document that zstore does not know and may ignore; written back unchanged
    """

    zarr_format: ZarrFormat
    attributes: Mapping[str, Any] = field(default_factory=dict)
    consolidated: Mapping[str, ArrayModel | GroupModel] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def with_attributes(self, attributes: Mapping[str, Any]) -> GroupModel:
        """The same group with other attributes."""
        return replace(self, attributes=dict(attributes))


Documents = Mapping[str, Any]
ParseNode = Callable[[Documents, str], ArrayModel | GroupModel]


def check_node_path(path: Any, *, where: str) -> str:
    """Check that a path is relative and leads to a node below the group at `where`; returns the path.

    Raises
        MetadataError: it is empty or absolute, or has an empty, "." or ".." part, or a NUL.
    """
    if isinstance(path, str) and path and "\0" not in path:
        if "." not in path and "//" not in path and path[0] != "/" and path[-1] != "/":
            return path
        if not {"", ".", ".."}.intersection(path.split("/")):
            return path
    raise MetadataError(f"consolidated metadata names the node {path!r}; expected a path below {where!r}")


def _parse_nothing(documents: Documents, where: str) -> ArrayModel | GroupModel:
    raise MetadataError("there is no model of the node", path=where)


class Consolidated(Mapping[str, ArrayModel | GroupModel]):
    """The models of all nodes below a group by path, parsed when they are asked for.

    `documents` has for each path the documents of that node by name; `parse` makes a model of them.
    """

    __slots__ = ("_base", "_children", "_documents", "_models", "_parse", "_prefix")

    def __init__(self, documents: Mapping[str, Documents], parse: ParseNode, *, base: str = "") -> None:
        self._documents = documents
        self._base = base
        self._parse = parse
        self._prefix = ""
        self._models: dict[str, ArrayModel | GroupModel] = {}
        self._children: dict[str, list[str]] | None = None

    @classmethod
    def of(cls, models: Mapping[str, ArrayModel | GroupModel | ZstoreError], path: str = "") -> Consolidated:
        """The nodes below a path among models that are there, or errors, and have no documents."""
        made = cls({}, _parse_nothing)
        made._documents = made._models = models  # type: ignore[assignment]
        made._prefix = path and f"{path}/"
        return made

    def below(self, path: str) -> Consolidated:
        """The nodes below the one at `path`, as the consolidated metadata of that group."""
        part = Consolidated.__new__(Consolidated)
        part._documents, part._base = self._documents, self._base
        part._parse, part._models = self._parse, self._models
        part._children = self.index()
        part._prefix = f"{self._prefix}{path}/"
        return part

    def index(self) -> dict[str, list[str]]:
        """The sorted names of children by the prefix of their parent: "" or "a/b/"."""
        if self._children is None:
            children: dict[str, list[str]] = {}
            for path in sorted(filter(None, self._documents)):
                parent, slash, name = path.rpartition("/")
                children.setdefault(parent + slash, []).append(name)
            self._children = children
        return self._children

    def names(self) -> list[str]:
        """The sorted names of this group's children."""
        return self.index().get(self._prefix, [])

    def document(self, path: str) -> Documents:
        """The documents of the node at `path` by name, as they were read."""
        return self._documents[self._prefix + path]

    @staticmethod
    def documents_of(
        models: Mapping[str, ArrayModel | GroupModel],
        render_array: Callable[[ArrayModel], Documents],
        render_group: Callable[[GroupModel], Documents],
    ) -> dict[str, Documents]:
        """The documents by path and name: as they were read, or rendered from models made elsewhere."""
        if isinstance(models, Consolidated):
            return {path: models.document(path) for path in models}
        return {
            path: render_array(model)
            if isinstance(model, ArrayModel)
            else render_group(replace(model, consolidated=None))
            for path, model in models.items()
        }

    def __getitem__(self, path: str) -> ArrayModel | GroupModel:
        full = self._prefix + path
        model = look_up(self._models, full)
        if isinstance(model, ZstoreError):
            raise model.with_traceback(None)
        if model is None:
            documents = self._documents[full]
            model = self._parse(documents, f"{self._base}/{full}" if self._base else full)
            if isinstance(model, GroupModel):
                model = GroupModel(model.zarr_format, model.attributes, self.below(path), model.extra)
            self._models[full] = model
        return model

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._prefix + path in self._documents

    def __iter__(self) -> Iterator[str]:
        skip = len(self._prefix)
        return (path[skip:] for path in self._documents if path.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Consolidated({len(self)} nodes)"
