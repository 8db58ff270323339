"""Dialects in which a pyramid is a list of datasets, the finest first."""
