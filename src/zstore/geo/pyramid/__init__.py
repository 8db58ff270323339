"""Levels of a pyramid: built, kept and looked at."""
