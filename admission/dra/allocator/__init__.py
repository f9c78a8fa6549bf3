"""The allocation of devices to one pod on one node, by kube-scheduler's rules."""

__all__ = [
    "allocation",
    "first_fits",
    "node_allocator",
    "nominated",
    "prescribed",
    "results",
    "search",
    "stranded_devices",
    "trampoline",
]
