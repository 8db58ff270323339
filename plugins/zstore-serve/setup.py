"""Builds the package, with the files that its page needs from npm: OpenLayers, and Natural Earth's countries.

The source tree holds none of these files. Of OpenLayers, the modules that the pages use become one script.
A build without npm or without a network serves tiles, and says what is missing when it is asked for the page.
Nothing is downloaded again unless this file or the list of modules is newer than what is there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
VENDOR = HERE / "src" / "zstore_serve" / "vendor"
MODULES = HERE / "openlayers.js"
# rbush and quickselect are what OpenLayers' modules import; esbuild makes the script of all of them.
PACKAGES = ("ol@10.11.0", "rbush@4.0.1", "quickselect@3.0.0", "world-atlas@2.0.2", "esbuild@0.28.2")
SCRIPT = "ol.js"
# Files of these packages, and their names here.
COPIED = {
    "ol/ol.css": "ol.css",
    "ol/LICENSE.md": "LICENSE-ol.md",
    "rbush/LICENSE": "LICENSE-rbush",
    "quickselect/LICENSE": "LICENSE-quickselect",
    "world-atlas/countries-110m.json": "countries-110m.json",
    "world-atlas/LICENSE": "LICENSE-world-atlas",
}

# Seconds that npm may take: it waits long for a network that does not answer.
PATIENCE = 300


def is_new() -> bool:
    """Whether all files are there, and newer than what says which they are."""
    made = [VENDOR / name for name in (SCRIPT, *COPIED.values())]
    if not all(file.exists() for file in made):
        return False
    stated = max(file.stat().st_mtime for file in (Path(__file__), MODULES))
    return (VENDOR / SCRIPT).stat().st_mtime >= stated


def take(npm: str, folder: Path) -> None:
    """Install the packages in a folder, whose integrity npm checks, and make the files of them.

    Raises
        OSError: a file of the packages is missing, or npm is.
        SubprocessError: npm has no network, or a module is missing.
    """
    line = [npm, "install", *PACKAGES, "--silent", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"]
    subprocess.run([*line, "--prefix", folder], check=True, timeout=PATIENCE, capture_output=True, cwd=folder)
    modules = folder / "node_modules"
    shutil.copy(MODULES, folder)
    line = [str(modules / ".bin" / "esbuild"), MODULES.name, "--bundle", "--minify", "--format=iife"]
    subprocess.run(
        [*line, "--global-name=ol", f"--outfile={folder / SCRIPT}"],
        check=True, timeout=PATIENCE, capture_output=True, cwd=folder,
    )  # fmt: skip
    VENDOR.mkdir(exist_ok=True)
    for source, name in COPIED.items():
        shutil.copyfile(modules / source, VENDOR / name)
    shutil.copyfile(folder / SCRIPT, VENDOR / SCRIPT)


npm = shutil.which("npm")
if npm is not None and not is_new():
    with tempfile.TemporaryDirectory() as made:
        try:
            take(npm, Path(made))
        except (OSError, subprocess.SubprocessError) as error:
            print(f"npm gives none of the page's files, built without them: {error}", file=sys.stderr)
setup()
