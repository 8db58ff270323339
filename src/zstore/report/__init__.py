"""Reports on a node for people: a summary, a notebook view, and which programs can read it."""
