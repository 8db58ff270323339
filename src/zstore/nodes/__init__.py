"""Arrays and groups as users hold them, and the functions that open and create them."""
