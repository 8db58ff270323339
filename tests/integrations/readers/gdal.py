"""What rasterio makes of the rasters given as arguments, one JSON line each; run by a Python of its own."""

from __future__ import annotations

import json
import sys

import rasterio

print(json.dumps({"gdal": rasterio.__gdal_version__}))
for name in sys.argv[1:]:
    with rasterio.open(name) as raster:
        pixels = raster.read(1)
        print(
            json.dumps(
                {
                    "epsg": raster.crs.to_epsg() if raster.crs else None,
                    "transform": list(raster.transform[:6]),
                    "nodata": None if raster.nodata is None else repr(float(raster.nodata)),
                    "scale": raster.scales[0],
                    "shape": list(raster.shape),
                    "sum": float(pixels.astype("f8").sum()),
                }
            )
        )
