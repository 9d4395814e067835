"""Which dimension of which tensor lies along which hidden axis: inferred, then checked."""
