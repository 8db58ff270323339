"""Fixing what is mechanical, without touching the chunks of data."""
