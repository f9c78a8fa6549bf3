"""Values that Kubernetes JSON is made of: quantities, durations, names, selectors, JSON patches."""

__all__ = [
    "decoding",
    "durations",
    "formats",
    "json_patch",
    "names",
    "quantities",
    "reasons",
    "selectors",
    "time_zones",
]
