"""Kernels that reduce items to cells: sums, extremes, counts, moments."""
