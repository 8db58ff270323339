"""The meaning of a hierarchy: CF, GDAL, GeoZarr and others, each parsed onto and rendered from a `GeoModel`."""
