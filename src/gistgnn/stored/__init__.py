"""Models whose large weights stay in files: what they compute is computed block of rows by block of rows."""

from gistgnn.stored.model import LARGE, held_model, stored_model
from gistgnn.stored.tensor import READING, StoredTensor, reading_bytes

__all__ = ["LARGE", "READING", "StoredTensor", "held_model", "reading_bytes", "stored_model"]
