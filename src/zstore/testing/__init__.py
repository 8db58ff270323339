"""Contracts: test classes for plugins to inherit from, one for each kind; zstore itself passes them."""
