"""Boxes made smaller: every resampling method, and where its cells lie."""
