"""Decoded objects of Muster."""

__all__ = [
    "claim_policies",
    "gang_references",
    "gang_requests",
    "gangs",
    "ledger_entries",
    "meters",
    "observed",
    "policy_rules",
    "preferences",
    "queue_references",
    "queues",
    "status_reports",
    "status_views",
]
