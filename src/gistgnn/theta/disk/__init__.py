"""Θ in files."""
