"""Inspection of a fitted model: in words and numbers, as plots, and as a report."""
