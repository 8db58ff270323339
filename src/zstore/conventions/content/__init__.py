"""What the data are of, beside where they lie: when, in which bands, and what a catalogue says of them."""
