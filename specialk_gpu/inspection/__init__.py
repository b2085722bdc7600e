"""Inspection: what a fitted model says, drawn and written."""
