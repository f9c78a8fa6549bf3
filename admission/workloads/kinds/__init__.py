"""What people submit, and which of its pods start together: one small module for each family of kinds.

`catalog` lists them all. A new kind is one entry: where it is served, how its size is read, and what a pod is to it.
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
