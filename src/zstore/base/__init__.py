"""Small tools for every floor: locks that survive a fork, caches, byte ranges, settings of the process."""
