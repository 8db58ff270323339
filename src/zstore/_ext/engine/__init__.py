"""The native engine: plans selections, reads and writes their chunks in files and buffers without the GIL."""
