"""What Muster does not see though it is there: hardware that cannot be read, in the hold of a gang that may lack it.

What cannot be read takes no part in decisions. Who waits for devices would otherwise be told that there are none.
"""

from dataclasses import replace

from admission.api.snapshot import Snapshot
from admission.api.values.reasons import Denial, Hold, HoldReason

LACKING = frozenset({HoldReason.NO_FEASIBLE_PLACEMENT, HoldReason.DEVICES_BUSY, HoldReason.POOL_INCOMPLETE})
HARDWARE = ("ResourceSlice", "Node", "DeviceClass")


def told(hold: Hold | Denial | None, snapshot: Snapshot) -> Hold | Denial | None:
    """Return the hold; where devices are missing, with the first object that cannot be read, its field and the mend."""
    if not isinstance(hold, Hold) or hold.reason not in LACKING or not snapshot.malformed:
        return hold
    unread = sorted(key for key in snapshot.malformed if key[0] in HARDWARE)
    if not unread:
        return hold
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    said = f"{hold.message}; not counted, since it cannot be read: {snapshot.malformed[unread[0]]}{more}; mend it"
    return replace(hold, message=said)
