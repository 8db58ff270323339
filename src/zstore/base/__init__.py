"""What every floor may use: locks that a fork leaves free, values kept, byte ranges."""
