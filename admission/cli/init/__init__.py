"""`muster init`: the objects for the first gang of a cluster, made from what the cluster has."""
