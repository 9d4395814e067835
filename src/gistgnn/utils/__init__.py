"""Small helpers that know nothing of graphs or GIST: prefetching, random streams, console, memory, lazy imports."""
