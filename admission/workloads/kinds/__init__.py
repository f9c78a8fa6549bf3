"""Recognises the kinds of workloads: one small module per family says which of their pods start together.

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
