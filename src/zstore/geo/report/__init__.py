"""Reports on a node for people: a summary, a notebook view, and the programs that can read it."""
