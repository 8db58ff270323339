"""Arrays as batches of samples, for loops that train on them."""
