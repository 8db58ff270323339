"""Documents written when all that they describe is there, so that nobody sees a node half made."""

from __future__ import annotations

from collections.abc import Mapping

from zstore.engine.documents import write_node
from zstore.model.array import ArrayModel
from zstore.model.group import GroupModel
from zstore.storage.base import Store, join_key

Model = ArrayModel | GroupModel


def publish_nodes(store: Store, base: str, models: Mapping[str, Model]) -> None:
    """Write the documents of nodes by their paths below `base`, over what is there.

    Arrays come first, then groups from the deepest up; the topmost makes all of it visible.

    Raises
        UnsupportedError: a model cannot be said in its format.
        ReadOnlyError, StoreError: the store refused.
    """

    def order(below: str) -> tuple[bool, bool, int, str]:
        return not below, isinstance(models[below], GroupModel), -below.count("/"), below

    for below in sorted(models, key=order):
        write_node(store, join_key(base, below), models[below])
