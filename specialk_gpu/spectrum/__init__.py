"""The spectrum: leading eigenpairs of the graph, and the embedding made of them."""
