"""What a user may bring to `GIST.fit`: a loss, a metric, an optimiser, a schedule."""
