"""K-means: starting centres and Lloyd's iterations, for many fits in one batch."""
