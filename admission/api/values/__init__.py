"""Values in Kubernetes' JSON, such as quantities, durations, names, selectors."""

__all__ = [
    "decoding",
    "durations",
    "formats",
    "json_patch",
    "names",
    "quantities",
    "reasons",
    "references",
    "scheduling_rules",
    "selectors",
    "strict_json",
    "time_zones",
    "work_budget",
]
