"""Groups pods into gangs."""

__all__ = [
    "gang_cache",
    "gang_key",
    "gangs",
    "kinds",
    "limit_ranges",
    "name_conflicts",
    "owner_chain",
    "pod_replacement",
    "pod_selectors",
    "runtime_classes",
    "suspendable",
    "template_labels",
    "topology",
]
