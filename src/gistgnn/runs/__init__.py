"""A run of the command line: its configuration, and its folder."""

from gistgnn.runs.config import ModelConfig, RunConfig

__all__ = ["ModelConfig", "RunConfig"]
