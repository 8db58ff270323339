"""Facts about the data beside their place: their time, their spectral bands, their entry in a catalogue."""
