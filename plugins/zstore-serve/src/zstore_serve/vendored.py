"""Files of npm packages that the pages need, as the build of this package stored them."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

__all__ = ["read_vendored"]


def read_vendored(name: str) -> bytes | None:
    """The bytes of such a file, or None; the folder in ZSTORE_SERVE_OL goes before what the build stored."""
    named = os.environ.get("ZSTORE_SERVE_OL")
    if named and name in ("ol.js", "ol.css"):
        path = Path(named) / ("dist/ol.js" if name == "ol.js" else "ol.css")
        if path.is_file():
            return path.read_bytes()
    held = files("zstore_serve") / "vendor" / name
    return held.read_bytes() if held.is_file() else None
