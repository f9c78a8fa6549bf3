"""The sums of each queue and all below it, which `kubectl get queues`, the commands and the dashboard show alike.

Queues whose parents form a circle have sums of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from admission.api.muster.gangs import Phase
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import MeterUse, QueueReport
from admission.api.values.names import MeterName, QueueName

STARTED = (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING)

PARTS = 10**9
"""Uses of meters are compared in parts of their nominal quotas; what has no quota is busier than all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeSums:
    """The sums of a queue and all queues below it.

    uses: by meter; what is borrowed and lent, which does not add up, is the queue's own. waiting, started: gangs.
    first: the meters that go before others that are as busy, those of the queue's own spec.
    """

    uses: Mapping[MeterName, MeterUse] = field(default_factory=dict)
    waiting: int = 0
    started: int = 0
    first: Sequence[MeterName] = ()

    @property
    def busiest(self) -> str:
        """The meter of which the largest part is taken; "" without meters."""
        return min(self.uses, key=_busiest_key(self.uses, self.first), default="")


NOTHING: Mapping[QueueName, SubtreeSums] = MappingProxyType({})


def sums(
    reports: Mapping[QueueName, QueueReport],
    queues: Mapping[QueueName, Queue],
    known: Mapping[QueueName, SubtreeSums] = NOTHING,
) -> dict[QueueName, SubtreeSums]:
    """Return the sums of every queue that has a status; one that is missing in `queues` is a root.

    known: those that still hold, of queues below which nothing has changed.
    """
    children = _children(reports, queues)
    order = [*children.get(None, ())]
    for name in order:  # grows as it is walked: every queue comes after its parent
        order.extend(children.get(name, ()))
    found = {name: known.get(name) or _own(report, queues.get(name)) for name, report in reports.items()}
    for name in reversed(order):
        if name in children and name not in known:
            found[name] = total([found[name], *(found[child] for child in children[name])])
    return found


def _children(
    reports: Mapping[QueueName, QueueReport], queues: Mapping[QueueName, Queue]
) -> dict[QueueName | None, list[QueueName]]:
    """Return the queues below each, and under None the roots."""
    children: dict[QueueName | None, list[QueueName]] = {}
    for name in reports:
        parent = queues[name].parent if name in queues else None
        children.setdefault(parent if parent in reports else None, []).append(name)
    return children


def _own(report: QueueReport, queue: Queue | None) -> SubtreeSums:
    return SubtreeSums(
        uses=report.meters,
        waiting=report.gangs.get(Phase.PENDING, 0),
        started=sum(report.gangs.get(phase, 0) for phase in STARTED),
        first=tuple(quota.meter for quota in queue.quotas) if queue is not None else (),
    )


def total(parts: Sequence[SubtreeSums]) -> SubtreeSums:
    """Return the sums of a queue, the first of the parts, with those of the queues below it."""
    by_meter: dict[MeterName, list[MeterUse]] = {}
    for part in parts:
        for meter, use in part.uses.items():
            by_meter.setdefault(meter, []).append(use)
    own = parts[0].uses
    return SubtreeSums(
        uses={
            meter: MeterUse(
                nominal=sum(use.nominal for use in uses),
                reserved=sum(use.reserved for use in uses),
                used=sum(use.used for use in uses),
                pending=sum(use.pending for use in uses),
                borrowed=own[meter].borrowed if meter in own else 0,
                lent=own[meter].lent if meter in own else 0,
            )
            for meter, uses in by_meter.items()
        },
        waiting=sum(part.waiting for part in parts),
        started=sum(part.started for part in parts),
        first=parts[0].first,
    )


def busiest_first(uses: Mapping[MeterName, MeterUse]) -> list[MeterName]:
    """Return meters, those of which the largest part of the nominal quota is taken first, then by name."""
    return sorted(uses, key=_busiest_key(uses))


def _busiest_key(
    uses: Mapping[MeterName, MeterUse], first: Sequence[MeterName] = ()
) -> Callable[[MeterName], tuple[int, int, str]]:
    """Return the order of meters. first: those that go before others that are as busy."""
    ranks = {meter: rank for rank, meter in enumerate(first)}
    return lambda meter: (-taken_parts(uses[meter]), ranks.get(meter, len(ranks)), meter)


def taken_parts(use: MeterUse) -> int:
    """Return how much of the nominal quota is reserved or used, in `PARTS`."""
    taken = use.reserved + use.used
    return taken * PARTS // use.nominal if use.nominal else taken * PARTS * PARTS
