"""One chunk to bytes and back: what a codec is, chains of them, and one file per codec."""
