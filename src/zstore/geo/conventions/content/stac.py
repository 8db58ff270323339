"""A STAC item or collection in a group's attributes, or where it is to be found.

Spec: zarr-conventions/stac, v0.1 and the draft v1 before it, which had `stac:encoding`; GeoZarr draft, class
"stac". Written: what both take, as far as they have it.
Example: {"stac:encoding": "attribute", "stac:item": {"type": "Feature", "id": "scene"}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from zstore.geo.conventions.base import (
    Convention,
    Document,
    Documents,
    Facts,
    Finding,
    GroupNode,
    Node,
    is_group,
)
from zstore.geo.conventions.model import GeoModel, Stac
from zstore.geo.conventions.zarr_conventions import declare, member_of, objects

KINDS: tuple[Literal["item", "collection", "link", "key"], ...] = ("item", "collection", "link", "key")
TYPES = {"item": "Feature", "collection": "Collection"}


class StacConvention(Convention):
    """STAC's item or collection of a group, embedded or linked."""

    name = "stac"

    def parse(self, node: Node, parent: GroupNode | None = None) -> Facts:
        """`stac:item`, `stac:collection`, `stac:link` or `stac:key` of a group, the first that is one."""
        if not is_group(node):
            return Facts()
        findings: list[Finding] = []
        found: list[Stac] = []
        for kind in KINDS:
            stated = node.attrs.get(f"stac:{kind}")
            if stated is not None:
                found += _parse(kind, stated, node, findings)
        if len(found) > 1:
            message = f"stac:{found[1].kind} is beside stac:{found[0].kind}; expected one of them"
            findings.append(Finding("ZC-08", "error", node.path, message, found[0].kind, found[1].kind))
        return Facts(stac=found[0] if found else None, findings=tuple(findings))

    def render(self, geo: GeoModel, zarr_format: int) -> Documents:
        """The object or the link, on the outermost group."""
        if geo.stac is None:
            return {}
        attributes: dict[str, Any] = {"zarr_conventions": declare(["stac"])}
        content = geo.stac.content
        attributes[f"stac:{geo.stac.kind}"] = dict(content) if isinstance(content, Mapping) else content
        attributes["stac:encoding"] = "attribute" if geo.stac.kind in TYPES else geo.stac.kind
        return {"": Document(kind="group", attributes=attributes)}

    def check(self, node: Node, geo: GeoModel, parent: GroupNode | None = None) -> list[Finding]:
        """Where the object is malformed, refers to places outside its group, or to its own store."""
        facts = self.parse(node, parent)
        findings = list(facts.findings)
        if facts.stac is None or not isinstance(facts.stac.content, Mapping) or facts.stac.kind not in TYPES:
            return findings
        for message in _faults(facts.stac.content):
            findings.append(Finding("ZC-08", "error", node.path, message))
        return findings

    def dialects(self, node: Node) -> Iterator[str]:
        """The words of a catalogue about a group."""
        if is_group(node) and any(key.startswith("stac:") for key in node.attrs):
            yield "STAC"


def _parse(
    kind: Literal["item", "collection", "link", "key"], stated: Any, node: Node, findings: list[Finding]
) -> Iterator[Stac]:
    encoding = node.attrs.get("stac:encoding")
    if encoding not in (None, "attribute", "link", "key", "array"):
        message = f"stac:encoding is {encoding!r}; expected 'attribute' or 'link'"
        findings.append(Finding("ZC-08", "error", node.path, message, "attribute or link", encoding))
    is_object = isinstance(stated, Mapping)
    if kind in TYPES and is_object and stated.get("type") == TYPES[kind]:
        yield Stac(kind, stated)
    elif kind in TYPES and is_object and isinstance(stated.get("href"), str):
        yield Stac("link", stated)
    elif kind in TYPES and isinstance(stated, str) and encoding in ("link", "key", "array"):
        yield Stac("link", {"href": stated}) if encoding == "link" else Stac("key", stated)
    elif (kind == "link" and is_object and isinstance(stated.get("href"), str)) or (
        kind == "key" and isinstance(stated, str)
    ):
        yield Stac(kind, stated)
    else:
        other = "an href" if kind == "link" else "a key"
        expected = f"an object of type {TYPES[kind]!r}" if kind in TYPES else other
        shown = repr(stated)[:80]
        message = f"stac:{kind} is {shown}; expected {expected}; it is not used"
        findings.append(Finding("ZC-08", "error", node.path, message, expected, shown))


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    assets = content.get("assets")
    for name, asset in assets.items() if isinstance(assets, Mapping) else ():
        href = member_of(asset, "href")
        if not isinstance(href, str):
            yield f"asset {name!r} has no href"
        elif "://" in href or href.startswith("/") or ".." in href.split("/"):
            yield f"href of asset {name!r} is {href!r}; expected a path below the group"
    if any(link.get("rel") == "store" for link in objects(content.get("links"))):
        yield "there is a link to the store, which is the one that it is in"
