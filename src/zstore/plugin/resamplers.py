"""Resamplers: the call that a method answers, and sampling at any positions."""

from __future__ import annotations

from zstore.geo.resampling.methods import downsample
from zstore.geo.resampling.sample import reach_of, sample

__all__ = [
    "downsample",
    "reach_of",
    "sample",
]
