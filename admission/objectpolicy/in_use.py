"""The devices in use, by the status of Gangs: all that the webhook can know.

The status is written a moment after the ledger, and does not contain claims that outlive their gang. So these numbers
serve for warnings, and for denials only of what may be tried again (`podpolicy.resize`).
"""

from collections.abc import Collection, Iterable, Mapping

from admission.api.muster.gangs import Gang, Phase
from admission.api.values import quantities, references
from admission.api.values.names import MeterName, QueueName
from admission.api.values.references import Kind, Referent

Amounts = Mapping[QueueName, Mapping[MeterName, int]]


def amounts(gangs: Iterable[Gang]) -> Amounts:
    """Return the charges of each queue."""
    found: dict[QueueName, dict[MeterName, int]] = {}
    for gang in gangs:
        charges = found.setdefault(gang.queue, {})
        for meter, amount in gang.charges.items():
            charges[meter] = charges.get(meter, 0) + amount
    return found


def charged(meter: MeterName, gangs: Iterable[Gang]) -> tuple[int, tuple[Gang, ...]]:
    """Return the charged amount of a meter, and the charged gangs."""
    holders = tuple(gang for gang in gangs if gang.charges.get(meter))
    return sum(gang.charges[meter] for gang in holders), holders


def describe(gangs: Iterable[Gang]) -> str:
    """Return gangs in words that any reader may know: a user who writes a Queue or a Meter may not know their names."""
    return references.refer(Referent(kind=Kind.GANG, key=one.meta.key, queue=one.queue) for one in gangs).phrase


def unfinished(queues: Collection[QueueName], gangs: Iterable[Gang]) -> list[Gang]:
    """Return the unfinished gangs of the queues, by name."""
    found = [gang for gang in gangs if gang.queue in queues and gang.phase is not Phase.FINISHED]
    return sorted(found, key=lambda gang: gang.meta.key)


def is_admitted(gang: Gang) -> bool:
    """Whether the gang was given its devices and has not returned all of them."""
    return gang.phase in (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING) or bool(gang.charges)


def format_amount(amount: int, meter: MeterName) -> str:
    return f"{quantities.render(amount)} {meter}"
