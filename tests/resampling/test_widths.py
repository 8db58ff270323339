"""Kernels of wide vectors give the same on processors that have narrower ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
HEADERS = HERE.parents[1] / "src/zstore/_ext"


def test_all_widths_of_vectors_give_the_same(tmp_path: Path) -> None:
    program = tmp_path / "widths"
    # Compilers warn of wide vectors as arguments; there are none.
    words = [os.environ.get("CXX", "c++"), "-std=gnu++17", "-w", f"-I{HEADERS}", f"-I{HEADERS / 'resample'}"]
    subprocess.run([*words, "-o", str(program), str(HERE / "widths.cc")], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
