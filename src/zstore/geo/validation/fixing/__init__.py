"""Fixing mechanical errors, without touching the chunks of data."""
