"""A run of the command line: its configuration, and its folder."""
