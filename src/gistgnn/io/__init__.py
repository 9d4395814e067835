"""Files: written whole or not at all, tensors read in parts, and models whose large weights stay on disk."""
