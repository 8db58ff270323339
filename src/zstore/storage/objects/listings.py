"""Pages of a bucket's list as S3 writes them, read as obstore has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

# Objects by path, size and entity tag.
Listing = list[dict[str, Any]]

# Tags take memory of their own: a page has no more than these, and one for each eight of its bytes.
MOST_TAGS = 64


class ListPage(NamedTuple):
    """Objects, the prefixes beside them, and the token of the next page; None: this is the last one."""

    objects: Listing
    prefixes: list[str]
    token: str | None


def read_page(said: bytes) -> ListPage | None:
    """A page of a list as the server has sent it; None for one that obstore is to ask for again."""
    # What is declared may grow without end.
    if b"<!" in said or said.count(b"<") > MOST_TAGS + len(said) // 8:
        return None
    try:
        # Whatever encoding the text names, it is this one.
        root = ElementTree.XML(str(said, "utf-8"))
        space, name, _ = root.tag.partition("ListBucketResult")
        key, size, tag, prefix = (f"{space}{name}" for name in ("Key", "Size", "ETag", "Prefix"))
        found = root.findall(f"{space}Contents")
        paths, sizes = (
            _paths([one.findtext(key, "") for one in found]),
            [int(one.findtext(size, "")) for one in found],
        )
        above = _paths([one.findtext(prefix, "") for one in root.iterfind(f"{space}CommonPrefixes")])
        has_more = {"true": True, "false": False}[root.findtext(f"{space}IsTruncated", "")]
        token = root.findtext(f"{space}NextContinuationToken", "") if has_more else None
    except (ElementTree.ParseError, ValueError, KeyError):
        return None
    if not name or token == "" or min(sizes, default=0) < 0:
        return None
    tags = [one.findtext(tag) for one in found]
    return ListPage(
        [{"path": p, "size": s, "e_tag": t} for p, s, t in zip(paths, sizes, tags, strict=True)], above, token
    )


def _paths(keys: Sequence[str]) -> list[str]:
    """Keys without the "/" at their ends.

    Raises
        ValueError: a name in one is empty, "." or "..", or not printable, which obstore takes for no path's.
    """
    paths = [key.removesuffix("/") for key in keys]
    joined = f"/{'/'.join(paths)}/" if paths else ""
    if not joined.isprintable() or any(odd in joined for odd in ("//", "/./", "/../")):
        raise ValueError("no path")
    return paths
