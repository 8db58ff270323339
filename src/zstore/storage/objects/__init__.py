"""Buckets and web servers through obstore, which is imported here alone, when the first one is opened."""
