"""Codecs between bytes and chunks: compressors and checksums, byte order, items of any length."""
