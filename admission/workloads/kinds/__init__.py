"""Recognises the kinds of workloads.

There is one small module per group of kinds, which says which pods of its workloads start together. `catalog` lists
them all. An entry says where a kind is served, how its size is read, and a pod's role in it. The pod templates that get
the label of a queue are in `workloads.template_labels`.
"""

__all__ = [
    "catalog",
    "foreign_queues",
    "jobset",
    "kubeflow",
    "labels",
    "leaderworkerset",
    "pod_labels",
    "podgroup",
    "ray",
    "registry",
    "spark",
]
