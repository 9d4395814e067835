"""The paper's tables and figures, one file each; `registry.py` lists them."""
