"""Data types beyond the core ones, one file for each family."""
