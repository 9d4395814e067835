"""The paper's tables and figures, one file each."""
