"""`muster gang`: the gangs of a cluster."""

__all__ = ["reports"]
