"""The topology domains that parts of a gang have to share."""

__all__ = ["exclusive", "search", "subgroups"]
