"""Decides whether a gang may start now.

`cycle` goes through the waiting gangs in order; `checks` hold a gang or let it be planned; `placement` says who picks
the devices; `backfill` protects the heads of queues; `preemption` finds gangs to evict; `cache` keeps answers that
still hold.
"""

__all__ = ["backfill", "cache", "checks", "cycle", "placement", "preemption"]
