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
    "selectors",
    "strict_json",
    "time_zones",
    "typed_json",
    "work_budget",
]
