"""The study behind the law of the cut test."""
