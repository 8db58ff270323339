"""How what the conventions found is weighed: axes, affines and levels of one grid and of a pyramid."""
