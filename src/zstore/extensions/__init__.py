"""Codecs, data types, stores and other classes by name: built-in tables, plugins, and the registries."""
