"""Contracts that prove a plugin; each is a test class to inherit from."""
