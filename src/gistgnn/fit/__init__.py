"""A run of `GIST.fit`: what watches it, scores it, saves it, and what it returns."""
