"""Zip files: a whole hierarchy in one, read from anywhere, written to disk."""
