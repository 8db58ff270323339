"""Takes what the page is drawn with from npm, where there is one: OpenLayers, and Natural Earth's coasts.

Nothing of it is in the source tree. A build without npm, or without the network, has no page, and says so
when it is asked for; tiles are served all the same. What is there already is kept, so that a second build
asks for nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from setuptools import setup

VENDOR = Path(__file__).parent / "src" / "zstore_serve" / "vendor"
# The npm package, and which of its files become which.
PACKAGES = {
    "ol@10.11.0": {"dist/ol.js": "ol.js", "ol.css": "ol.css", "LICENSE.md": "LICENSE-ol.md"},
    "world-atlas@2.0.2": {"land-110m.json": "land-110m.json", "LICENSE": "LICENSE-world-atlas"},
}

# Seconds for npm, which waits long for a network that does not answer.
PATIENCE = 300


def take(package: str, wanted: dict[str, str]) -> None:
    """Put files of an npm package where they are missing; npm checks that they are what the registry has."""
    npm = shutil.which("npm")
    if npm is None or all((VENDOR / name).exists() for name in wanted.values()):
        return
    with tempfile.TemporaryDirectory() as place:
        line = [npm, "pack", package, "--silent", "--pack-destination", place]
        try:
            subprocess.run(line, check=True, timeout=PATIENCE, capture_output=True, cwd=place)
        except (OSError, subprocess.SubprocessError):
            print(f"npm gives no {package}: built without it", file=sys.stderr)
            return
        (archive,) = Path(place).glob("*.tgz")
        with tarfile.open(archive) as held:
            for source, name in wanted.items():
                found = held.extractfile(f"package/{source}")
                assert found is not None, source
                VENDOR.mkdir(exist_ok=True)
                (VENDOR / name).write_bytes(found.read())


for package, wanted in PACKAGES.items():
    take(package, wanted)
setup()
