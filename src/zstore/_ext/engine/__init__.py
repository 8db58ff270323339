"""Selections as plans, and plans carried out on files and buffers."""
