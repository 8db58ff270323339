"""Pictures: bands, colours by meaning, a quick look at a raster, PNG files."""
