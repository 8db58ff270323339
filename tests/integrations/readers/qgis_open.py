"""What QGIS makes of the rasters that GDAL's names after the first argument stand for, one JSON line each.

Run by the Python that QGIS belongs to. Each name has a place in the raster's own CRS, "x,y", after it.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from osgeo import gdal
from qgis.core import Qgis, QgsApplication, QgsPointXY, QgsRaster, QgsRasterLayer

application = QgsApplication([], False)
application.initQgis()
print(json.dumps({"qgis": Qgis.QGIS_VERSION, "gdal": gdal.__version__}))
for name, place in zip(sys.argv[1::2], sys.argv[2::2]):  # noqa: B905 (Debian's Python may be older)
    layer = QgsRasterLayer(name, "layer", "gdal")
    provider, extent = layer.dataProvider(), layer.extent()
    at = QgsPointXY(*map(float, place.split(",")))
    line = {
        "is_valid": layer.isValid(), "crs": layer.crs().authid(),
        "bounds": [extent.xMinimum(), extent.yMinimum(), extent.xMaximum(), extent.yMaximum()],
        "shape": [layer.height(), layer.width()], "nodata": provider.sourceNoDataValue(1),
        "value": provider.identify(at, QgsRaster.IdentifyFormatValue).results().get(1),
    }  # fmt: skip
    print(json.dumps(line), flush=True)
# Its layers outlive it where Python ends in its own order.
os._exit(0)
