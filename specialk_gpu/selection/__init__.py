"""Selection of the number of clusters: the cut test and the paper's rule."""
