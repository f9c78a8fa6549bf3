"""EASY backfill: the reservations in time for the heads of queues."""

__all__ = [
    "expected_end",
    "policy",
    "queue_head",
    "reservation_refresh",
    "reservations",
    "running_gangs",
    "single_gang",
]
