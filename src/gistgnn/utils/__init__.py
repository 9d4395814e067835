"""Small helpers that know nothing of graphs or of GIST."""
