"""A gang over nodes, device choice made by Muster."""

__all__ = ["bin_packing", "search"]
