"""The native codecs: compressors, checksums, filters, byte order, and items of variable length."""
