"""What a hierarchy is: arrays and groups as frozen data, and the documents that describe them. No I/O."""
