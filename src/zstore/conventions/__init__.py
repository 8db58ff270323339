"""What a hierarchy means: CF, GDAL and GeoZarr, each parsed onto and rendered from one `GeoModel`."""
