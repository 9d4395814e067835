"""Measurements; README.md says how to run them."""
