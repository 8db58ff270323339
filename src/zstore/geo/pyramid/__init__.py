"""Levels of a pyramid: built, updated and viewed."""
