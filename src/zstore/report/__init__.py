"""Descriptions of a node for people: on a terminal, in a notebook, and which programs can read it."""
