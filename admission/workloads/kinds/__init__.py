"""Recognises the kinds of workloads.

There is one small module per group of kinds, which says which pods of its workloads start together. `catalog` lists
them all. A new kind is one entry: where it is served, how its size is read, and a pod's role in it.
"""

__all__ = [
    "catalog",
    "foreign_queues",
    "jobset",
    "labels",
    "leaderworkerset",
    "pod_labels",
    "podgroup",
    "registry",
    "spark",
]
