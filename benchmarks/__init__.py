"""Side-by-side measurements; see README.md."""
