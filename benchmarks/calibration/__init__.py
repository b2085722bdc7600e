"""The study behind selection="calibrated"."""
