"""The most that each queue could hold if nothing were in use: a pod that certainly needs more is refused at admission.

Only certain needs count (`device_meters.lower_bound`): the cheapest alternative, and no meter whose amount depends on
the device. A pod that passes may still never fit; then its gang is held, with the planner's reason.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.muster.gangs import Charge
from admission.api.muster.meters import Meter
from admission.api.muster.queues import Queue
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import Meters
from admission.podpolicy.admission import NOTHING_REQUESTED, Requested
from admission.podpolicy.known_claims import KnownClaim
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree

MOST_BOUNDS = 10_000
"""The most claim specs with a cached bound; without a limit, replaced templates would accumulate."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """The limits of all queues, while queues and meters stay the same; callable as `admission.Limits`.

    _potentials and _bounds cache earlier results, since reviews repeat the same few. queue_state: the queues with
    nothing in use; built once, since that costs a step for every queue.
    """

    meters: Meters
    queue_state: QueueUsage
    _potentials: dict[tuple[QueueName, MeterName], int] = field(default_factory=dict)
    _bounds: dict[int, tuple[ClaimSpec, Charge]] = field(default_factory=dict)

    @classmethod
    def build(cls, queues: Iterable[Queue], meters: Iterable[Meter]) -> Self:
        return cls(meters=device_meters.compile_meters(meters), queue_state=QueueUsage(Tree.build(queues), {}))

    @property
    def counted(self) -> frozenset[str]:
        """The resources of nodes that some meter counts."""
        return self.meters.resources

    def __call__(
        self,
        queue: Queue,
        claims: Sequence[KnownClaim],
        requested: Requested = NOTHING_REQUESTED,
        *,
        noun: str = "the pod",
    ) -> Denial | None:
        """Refuse what together exceeds what the queue could ever hold. An inactive queue holds its gangs instead.

        An allocated claim counts as nothing here: it is charged to the gang that used it first. noun: the subject of
        the message.
        """
        if not (claims or requested.resources) or not self.queue_state.tree.active(queue.name):
            return None
        bounds = [self._bound(claim.spec) for claim in claims if not claim.allocated]
        bounds.append(holdings.least(self.meters, requested.resources, requested.offered))
        needed = Counter[MeterName]()
        for bound in bounds:
            needed.update(bound)
        for meter, amount in sorted(needed.items()):
            most = self._potential(queue.name, meter)
            if amount > most:
                sources = [*(claim.source for claim in claims), *sorted(requested.resources)]
                return _never_fits(queue, meter, (amount, most), noun, sources)
        return None

    def _bound(self, spec: ClaimSpec) -> Charge:
        """Return the least charge of a claim. Cached, since the pods of a gang share their templates."""
        cached = self._bounds.get(id(spec))
        if cached is None:
            if len(self._bounds) >= MOST_BOUNDS:
                self._bounds.clear()
            # The spec is kept with its bound, so that no other spec gets its id.
            cached = self._bounds[id(spec)] = spec, device_meters.lower_bound(self.meters, spec)
        return cached[1]

    def _potential(self, queue: QueueName, meter: MeterName) -> int:
        key = queue, meter
        if key not in self._potentials:
            self._potentials[key] = self.queue_state.potential(queue, meter)
        return self._potentials[key]


def _never_fits(queue: Queue, meter: MeterName, amounts: tuple[int, int], noun: str, sources: list[str]) -> Denial:
    """Return the denial. amounts: the need, and the most that the queue could hold."""
    amount, most = amounts
    named = [quota.meter for quota in queue.quotas]
    why = (
        f"; queue {queue.name} can never have more than {most}, with all that it may borrow; ask for less, or for more"
        " quota"
    )
    if not most and meter not in named:
        others = f" (they name {', '.join(sorted(named))})" if named else ""
        why = (
            f", and spec.quotas of queue {queue.name} do not name that Meter{others}, nor is there any to borrow; name"
            " another queue, or have a quota of it added"
        )
    return Denial(
        DenyReason.NEVER_FITS,
        f"{noun} needs at least {amount} {meter}{why}",
        {"queue": queue.name, "meter": meter, "needed": str(amount), "potential": str(most), "sources": sources},
    )
