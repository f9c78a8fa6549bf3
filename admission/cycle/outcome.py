"""The outcomes of a cycle, gang by gang, for the log and the metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Detail


class Kind(StrEnum):
    """The kind of an outcome."""

    ADMITTED = "admitted"
    HELD = "held"
    REFUSED = "refused"
    """The gang can never start as it is."""
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome for one gang. reason: empty if it was admitted. details: the numbers behind the message.

    pods, charge, user: of an admission. waited: since the gang was queued; None for pods that join a running gang.
    made_room_for: the gang for which it was evicted.
    """

    kind: Kind
    gang: str
    """`namespace/name`."""
    uid: GangUid
    queue: QueueName
    reason: str = ""
    message: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    pods: int = 0
    charge: Charge = field(default_factory=dict)
    user: str = ""
    waited: timedelta | None = None
    made_room_for: str = ""
