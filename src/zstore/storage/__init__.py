"""Bytes by key: what a store is, and the stores that come with zstore."""
