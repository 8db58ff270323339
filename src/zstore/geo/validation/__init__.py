"""Telling whether a hierarchy says what it means in a way that every reader understands."""
