"""Validation: whether every reader will understand the meaning of a hierarchy."""
