"""What the pages are drawn with: files of npm's packages, as the build of this package found them."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

__all__ = ["vendor"]


def vendor(name: str) -> bytes | None:
    """A file of npm's packages, as the build of this package found it; else of the folder that is named."""
    named = os.environ.get("ZSTORE_SERVE_OL")
    if named and name in ("ol.js", "ol.css"):
        path = Path(named) / ("dist/ol.js" if name == "ol.js" else "ol.css")
        if path.is_file():
            return path.read_bytes()
    held = files("zstore_serve") / "vendor" / name
    return held.read_bytes() if held.is_file() else None
