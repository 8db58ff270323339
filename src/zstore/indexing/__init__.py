"""Selections, made into plans of what each chunk gives."""
