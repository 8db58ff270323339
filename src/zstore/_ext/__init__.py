"""Compiled kernels: buffers in, status out, no GIL."""
