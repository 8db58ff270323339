"""Turning selections into plans: which chunks to touch, and which part of each."""
