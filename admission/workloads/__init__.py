"""Says which pods are a gang."""

__all__ = [
    "gang_cache",
    "gang_key",
    "gangs",
    "kinds",
    "name_conflicts",
    "owner_chain",
    "pod_replacement",
    "suspendable",
    "topology",
]
