"""Θ on several ranks."""
