"""Items folded into the cells of reductions."""
