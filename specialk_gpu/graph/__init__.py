"""The neighbour graph: neighbours, similarities, duplicates, error bounds."""
