"""Judges Muster's own objects at admission."""

__all__ = [
    "admission",
    "claim_policies",
    "findings",
    "gangs",
    "in_use",
    "meters",
    "node_shapes",
    "preferences",
    "queues",
    "used_requests",
    "workloads",
]
