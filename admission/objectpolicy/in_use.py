"""What is in use, as far as the webhook can know it: by what the status of Gangs says.

The status is written a moment after the books, and says nothing of claims that outlive their gang; so these are numbers
for warnings, and nothing is refused for them.
"""

from collections.abc import Collection, Iterable, Mapping

from admission.api.muster.gangs import Gang, Phase
from admission.api.values import quantities
from admission.api.values.names import MeterName, QueueName

Amounts = Mapping[QueueName, Mapping[MeterName, int]]


def amounts(gangs: Iterable[Gang]) -> Amounts:
    """Return what is charged to each queue."""
    found: dict[QueueName, dict[MeterName, int]] = {}
    for gang in gangs:
        own = found.setdefault(gang.queue, {})
        for meter, amount in gang.charges.items():
            own[meter] = own.get(meter, 0) + amount
    return found


def charged(meter: MeterName, gangs: Iterable[Gang]) -> tuple[int, tuple[str, ...]]:
    """Return how much of a meter is charged, and to which gangs, `namespace/name`."""
    holders = [gang for gang in gangs if gang.charges.get(meter)]
    return sum(gang.charges[meter] for gang in holders), tuple(sorted(gang.meta.key for gang in holders))


def alive(queues: Collection[QueueName], gangs: Iterable[Gang]) -> list[Gang]:
    """Return the gangs of queues that are not finished, in the order of their names."""
    found = [gang for gang in gangs if gang.queue in queues and gang.phase is not Phase.FINISHED]
    return sorted(found, key=lambda gang: gang.meta.key)


def let_in(gang: Gang) -> bool:
    """Whether it was granted its devices, and has not given all of them back."""
    return gang.phase in (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING) or bool(gang.charges)


def said(amount: int, meter: MeterName) -> str:
    return f"{quantities.render(amount)} {meter}"
