"""K-means: starts and iterations, of many fits in one batch."""
