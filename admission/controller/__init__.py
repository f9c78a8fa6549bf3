"""Runs the leader's loops: wait for the lease, then an admission cycle whenever something has changed."""

__all__ = [
    "admission_loop",
    "head_publisher",
    "head_signer",
    "idle_check",
    "leadership",
    "own_writes",
    "recent_use_reader",
    "standby",
    "status_writer",
    "usage_recorder",
    "waiting_recorder",
    "waiting_shapes",
]
