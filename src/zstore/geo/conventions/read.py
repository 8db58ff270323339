"""Reading of a raster's or a pyramid's georeference and meaning, and of arrays' roles, in any dialect."""

from __future__ import annotations

from collections.abc import Sequence

from zstore.errors import MetadataError
from zstore.geo.conventions.base import Finding, GeoModel, Node
from zstore.geo.conventions.meaning import Meaning, Roles
from zstore.nodes.group import Group
from zstore.nodes.node import StoredNode
from zstore.nodes.open import open as open_node


def read_geo(
    node: Node,
    parent: Node | None = None,
    conventions: Sequence[str] | None = None,
    *,
    above: bool = False,
) -> tuple[GeoModel, list[Finding]]:
    """(model, findings) of an array, a group of arrays, or a multiscale group.

    Every fact comes from the first place that has it; one that is broken or contradicted gives a finding and
    falls through to the next. `docs/conventions.md` lists these places; where two conventions say the same
    thing, `conventions` orders them (see `zstore.geo.conventions.base`).

    `parent` is the group that holds `node`, for facts that an array inherits or has beside it. Nothing above
    the root of the opened store is read, so that a copy elsewhere means the same; with `above`, the groups
    above it are read as well, as by `zstore.open(..., above=True)`.

    Raises
        MetadataError: there is no grid of two dimensions.
        UnknownExtensionError: nobody offers one of the conventions.
    """
    if above and isinstance(node, StoredNode):
        node = open_node(node.store, node.path, mode="r", above=True)
    reading = Meaning(conventions).read(node, parent)
    if reading.geo is None:
        raise reading.trouble or MetadataError("there is no grid", path=node.path)
    return reading.geo, list(reading.findings)


def read_roles(group: Group) -> Roles:
    """The arrays of a group by role: coordinates, grid mappings, auxiliary ones, and data.

    Warns
        ReadingWarning: an array is left out, because its document cannot be read.
    """
    meaning = Meaning()
    roles = meaning.roles(meaning.hold(group))
    kinds = ("coordinates", "mappings", "auxiliary", "data")
    held = {kind: {name: one.node for name, one in getattr(roles, kind).items()} for kind in kinds}
    return Roles(**held, dims=roles.dims)
