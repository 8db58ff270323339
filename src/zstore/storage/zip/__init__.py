"""Stores in zip files: read from anywhere, written on local disks."""
