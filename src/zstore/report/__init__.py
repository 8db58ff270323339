"""What there is to say of a node: for people, on a terminal or in a notebook, and about its readers."""
