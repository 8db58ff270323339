"""Builds the package, with the files that its page needs from npm: OpenLayers, and Natural Earth's countries.

The source tree holds none of these files. A build without npm or without a network serves tiles, and says
what is missing when it is asked for the page. Files that are there already are not downloaded again.
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
# npm packages: of each, the names that some of its files get here.
PACKAGES = {
    "ol@10.11.0": {"dist/ol.js": "ol.js", "ol.css": "ol.css", "LICENSE.md": "LICENSE-ol.md"},
    "world-atlas@2.0.2": {"countries-110m.json": "countries-110m.json", "LICENSE": "LICENSE-world-atlas"},
}

# Seconds that npm may take: it waits long for a network that does not answer.
PATIENCE = 300


def take(package: str, wanted: dict[str, str]) -> None:
    """Download files of an npm package, unless all are there; npm verifies them against the registry."""
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
