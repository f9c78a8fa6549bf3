"""`muster gang`: the gangs of a cluster, and what may be asked of them."""

__all__ = ["reports"]
