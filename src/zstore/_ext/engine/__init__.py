"""The native engine: plans selections, and reads and writes their chunks in files and buffers without the GIL."""
