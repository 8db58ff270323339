"""Kernels that resample: blocks of cells reduced to one cell, and cells sampled between others."""
