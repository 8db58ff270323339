"""Sums, means, extremes and the like of stored arrays, in one pass over their chunks."""
