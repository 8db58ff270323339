"""Write src/zstore/geo/pictures/colours.txt anew, of the colour maps that `cmap` has.

python tools/refresh_colours.py

"""

from __future__ import annotations

from pathlib import Path

import cmap
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Colour maps: a name, and 256 colours as red, green and blue in hexadecimal digits.
# viridis: N. Smith, S. van der Walt, E. Firing (CC0). YlGn, Blues: ColorBrewer, C. Brewer, M. Harrower and
# The Pennsylvania State University (Apache 2.0). batlow, vik: F. Crameri, Scientific colour maps (MIT).
# All others: K. Thyng and others, cmocean (MIT).
"""
NAMES = (
    *("viridis", "YlGn", "batlow", "vik", "phase", "balance", "speed", "rain", "thermal", "haline", "algae"),
    *("dense", "turbid", "tempo", "deep", "cmocean:ice", "Blues"),
)


def main() -> None:
    """Write the file."""
    lines = []
    for name in NAMES:
        colours = np.rint(cmap.Colormap(name).lut(256) * 255).astype(np.uint8)[:, :3]
        lines.append(f"{name.removeprefix('cmocean:')} {colours.tobytes().hex()}\n")
    (ROOT / "src/zstore/geo/pictures/colours.txt").write_text(HEAD + "".join(lines), "ascii")


if __name__ == "__main__":
    main()
