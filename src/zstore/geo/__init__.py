"""What arrays mean on Earth: conventions, validation, pyramids, resampling and rasters."""
