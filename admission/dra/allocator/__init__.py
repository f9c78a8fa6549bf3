"""One pod on one node, allocated as kube-scheduler does it."""

__all__ = ["allocation", "node_allocator", "nominated", "prescribed", "results", "search", "trampoline"]
