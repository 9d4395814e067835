"""Train graph neural networks of any width by graph independent subnetwork training (GIST)."""
