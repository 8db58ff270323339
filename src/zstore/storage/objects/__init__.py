"""Buckets and web servers through obstore, which is imported in this room only, when the first is opened."""
