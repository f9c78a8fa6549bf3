"""What a queue could hold if nobody used anything: a pod that certainly needs more is refused at the door.

Only what is certain counts (`dra.metering.lower_bound`): the cheapest alternative, and no meter whose amount depends on
the device. A pod that passes may still never fit; then its gang is held, with the planner's reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from admission.api.meters import Meter
from admission.api.names import MeterName, QueueName
from admission.api.queues import Queue
from admission.api.reasons import Denial, DenyReason
from admission.dra import metering
from admission.dra.metering import Meters
from admission.policy.doors import KnownClaim
from admission.quota import available
from admission.quota.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """All queues' limits, for as long as queues and meters stay the same; callable as `doors.Limits`.

    _potentials remembers what was asked before, for a door asks the same few queues over and over.
    """

    meters: Meters
    tree: Tree
    _potentials: dict[tuple[QueueName, MeterName], int] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Iterable[Queue], meters: Iterable[Meter]) -> Self:
        return cls(meters=metering.compile_meters(meters), tree=Tree.of(queues))

    def __call__(self, queue: Queue, claims: Sequence[KnownClaim]) -> Denial | None:
        """Refuse claims that together exceed what the queue could ever take. Inactive queues hold, they refuse nothing.

        A claim that is allocated already is charged to whoever took it first.
        """
        if not claims or not self.tree.active(queue.name):
            return None
        needed = metering.added(metering.lower_bound(self.meters, c.spec) for c in claims if not c.allocated)
        for meter, amount in sorted(needed.items()):
            most = self._potential(queue.name, meter)
            if amount > most:
                return _never_fits(queue.name, meter, amount, most, [claim.source for claim in claims])
        return None

    def _potential(self, queue: QueueName, meter: MeterName) -> int:
        key = queue, meter
        if key not in self._potentials:
            self._potentials[key] = available.potential(self.tree, queue, meter)
        return self._potentials[key]


class Memory:
    """Limits of a snapshot, computed again only when its queues or meters are others than last time."""

    def __init__(self) -> None:
        self._queues: Mapping[QueueName, Queue] | None = None
        self._meters: Mapping[MeterName, Meter] | None = None
        self._limits: Limits | None = None

    def of(self, queues: Mapping[QueueName, Queue], meters: Mapping[MeterName, Meter]) -> Limits:
        """Return the limits. The mappings are told apart by identity, so they must not be changed in place."""
        if self._limits is None or self._queues is not queues or self._meters is not meters:
            self._limits = Limits.of(queues.values(), meters.values())
            self._queues, self._meters = queues, meters
        return self._limits


def _never_fits(queue: QueueName, meter: MeterName, amount: int, most: int, sources: list[str]) -> Denial:
    return Denial(
        DenyReason.NEVER_FITS,
        f"the pod's claims need at least {amount} {meter}; queue {queue} can never have more than {most}, with all that"
        " it may borrow; ask for less, or for more quota",
        {"queue": queue, "meter": meter, "needed": str(amount), "potential": str(most), "sources": sources},
    )
