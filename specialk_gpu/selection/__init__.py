"""What decides on the number of clusters."""
