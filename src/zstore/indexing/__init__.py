"""Turning selections into plans: the chunks that each touches, and the items that it takes of each."""
