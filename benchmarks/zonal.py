"""What do statistics of 500 polygons with holes cost, beside exactextract's?

zstore reads float32 from a directory, in chunks of 256 × 256; exactextract has the items in memory. Times are
processor time, the best of three rounds; the statistics of both differ by at most a millionth, or it fails.

    python -m benchmarks.zonal DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

# Rows and columns of a raster, and the smallest and the largest radius of polygons, in cells.
CASES = ((2000, (2, 15)), (2000, (5, 120)), (4000, (20, 600)))
COUNT = 500
NAMES = {"count": "count", "sum": "sum", "mean": "mean", "min": "min", "max": "max", "std": "stdev"}


def polygons(rng: np.random.Generator, size: int, radii: tuple[int, int]) -> list[dict[str, Any]]:
    """Features of stars of 12 to 120 corners, each with a hole."""
    made = []
    for number in range(COUNT):
        (x, y), radius, rings = rng.uniform(0, size, 2), rng.uniform(*radii), []
        for low, high in ((0.5, 1.0), (0.1, 0.4)):
            count = int(rng.integers(12, 120))
            angles = np.arange(count) * 2 * np.pi / count
            lengths = radius * rng.uniform(low, high, count)
            ring = np.c_[x + lengths * np.cos(angles), y + lengths * np.sin(angles)]
            rings.append(np.vstack([ring, ring[:1]]).tolist())
        shape = {"type": "Polygon", "coordinates": rings}
        made.append({"type": "Feature", "id": number, "properties": {}, "geometry": shape})
    return made


def main(place: Path) -> None:
    """Print the times, case by case."""
    from exactextract import exact_extract
    from exactextract.raster import NumPyRasterSource

    import zstore

    rng = np.random.default_rng(0)
    for number, (size, radii) in enumerate(CASES):
        values = rng.uniform(-10, 100, (size, size)).astype("f4")
        values[rng.random(values.shape) < 0.05] = np.nan
        features = polygons(rng, size, radii)
        raster = NumPyRasterSource(values, xmin=0, ymin=0, xmax=size, ymax=size, nodata=np.nan)
        attributes = {
            "proj:code": "EPSG:32632",
            "spatial:dimensions": ["y", "x"],
            "spatial:transform": [1, 0, 0, 0, -1, size],
        }
        path = place / f"{number}.zarr"
        zstore.create_array(
            path, data=values, chunks=(256, 256), dimension_names=("y", "x"), attributes=attributes
        )
        theirs = ours = np.inf
        for _ in range(3):
            begin = time.process_time()
            expected = exact_extract(raster, features, [*NAMES.values()])
            theirs = min(theirs, time.process_time() - begin)
            begin = time.process_time()
            made = zstore.zonal_statistics(path, features, [*NAMES], crs="EPSG:32632")
            ours = min(ours, time.process_time() - begin)
        for name, other in NAMES.items():
            wanted = np.array([one["properties"][other] for one in expected], "f8")
            np.testing.assert_allclose(made[name], wanted, rtol=1e-6, atol=1e-6, err_msg=name)
        print(f"{size}², radii {radii}: zstore {ours:.2f} s, exactextract {theirs:.2f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
