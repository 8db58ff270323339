"""Pyramids on tile matrix sets: reprojected, sparse, read tile by tile."""
