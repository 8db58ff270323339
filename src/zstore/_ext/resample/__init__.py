"""Blocks of cells as one cell, and cells sampled at places between others."""
