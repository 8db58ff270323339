"""Other libraries: what zstore reads for them, and what they read through it."""
