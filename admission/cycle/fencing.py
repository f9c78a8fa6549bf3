"""Whether this leader is still the one, asked of the ledger, which knows the latest epoch.

What is written to claims and gates is refused when it comes late, by the version that it is written for. An eviction is
not, nor is a deallocation of what a later leader has booked: before these, the ledger is asked.
"""

import asyncio

from admission.cycle.state.leader import LeaderState
from admission.errors import LedgerAwayError

GLANCE = 0.5
"""Seconds that a cycle waits for the answer, when what it wants to do may wait for the next one."""


async def holds(desk: LeaderState) -> bool:
    """Return whether the database answers, and knows of no later leader. Raises DeposedError when it does.

    A glance: what happens meanwhile is to be seen when it is back.
    """
    try:
        async with asyncio.timeout(GLANCE):
            await desk.ports.ledger.fence(desk.epoch)
    except (LedgerAwayError, TimeoutError):
        return False
    return True
