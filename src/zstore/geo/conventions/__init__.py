"""The meaning of a hierarchy: CF, GDAL, GeoZarr and more, each parsed onto and rendered from a `GeoModel`."""
