"""Decides whether a gang may start now.

`cycle` goes through the pending gangs in order, in which `postponed_grants` wait for others; `checks` hold a gang or
let it be planned; `placement` decides whether Muster or kube-scheduler picks the devices; `backfill` protects the heads
of queues; `preemption` finds gangs to evict; `capacity` says which nodes would have to come; `fragments` shows what
stands free in pieces; `cache` keeps answers that still hold.
"""

__all__ = [
    "backfill",
    "cache",
    "capacity",
    "checks",
    "cycle",
    "fragments",
    "placement",
    "postponed_grants",
    "preemption",
]
