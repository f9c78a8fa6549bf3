"""`muster init`: the objects for the first gang of a cluster, made from what the cluster has."""

__all__ = ["live_cluster"]
