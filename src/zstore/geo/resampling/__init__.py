"""Smaller versions of boxes: every resampling method, and the positions of its cells."""
