"""Kernels that ask servers for values."""
