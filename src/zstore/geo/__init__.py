"""The meaning of arrays on Earth: conventions, validation, pyramids, resampling and rasters."""
