"""Handles the requests for pages.

Each handler reads its query, checks rights, and renders a template.
"""

__all__ = [
    "devices",
    "event_stream",
    "gangs",
    "ledger",
    "login",
    "overview",
    "queues",
    "time_travel",
    "usage",
    "used_hours",
]
