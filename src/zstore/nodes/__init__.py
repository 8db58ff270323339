"""What users hold: arrays and groups, how they are opened and made."""
