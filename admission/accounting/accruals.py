"""Meter-seconds: what a queue has used of a meter, for how long, since the books were last marked.

Use is counted from settled allocations, in whole seconds: an amount that was used from one moment to another counts for
the whole seconds between them, both cut down to the second. So parts of a time always sum to the whole of it. A mark is
the time of the latest `usage` entry, which writes down what has accrued until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from admission.api.values import quantities
from admission.api.values.names import MeterName, QueueName

QueueMeter = tuple[QueueName, MeterName]

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Accrual:
    """What has accrued since the mark. seconds: meter-seconds up to `since`, a whole second."""

    since: datetime
    seconds: int = 0

    def until(self, at: datetime, used: int) -> "Accrual":
        """Return the accrual at a later time, when `used` was used meanwhile. A clock that went back adds nothing.

        Raises AmountError when the sum is too large to be kept exactly.
        """
        end = max(self.since, whole(at))
        return Accrual(end, quantities.checked(self.seconds + used * between(self.since, end)))


class Change(NamedTuple):
    """One line of the books on what is used: by how much it changed, and when."""

    at: datetime
    key: QueueMeter
    amount: int


def begun(at: datetime, marked: datetime | None) -> Accrual:
    """Return the accrual of what is used for the first time since the mark."""
    return Accrual(whole(at) if marked is None else max(whole(at), marked))


def whole(at: datetime) -> datetime:
    """Return the second in which a moment lies, in UTC."""
    return at.astimezone(UTC).replace(microsecond=0)


def between(start: datetime, end: datetime) -> int:
    """Return the whole seconds from one whole second to another."""
    return (end - start) // _SECOND


def accrued(
    used: Mapping[QueueMeter, int], marked: datetime | None, changes: Iterable[Change]
) -> dict[QueueMeter, Accrual]:
    """Return what has accrued, from what is used now and the lines since the mark, in their order.

    Nothing is kept for a queue that has used nothing since the mark.
    """
    listed = list(changes)
    levels = dict(used)
    for change in listed:
        levels[change.key] = levels.get(change.key, 0) - change.amount
    found = {key: Accrual(marked) for key, level in levels.items() if level and marked is not None}
    for at, key, amount in listed:
        found[key] = found.get(key, begun(at, marked)).until(at, levels[key])
        levels[key] += amount
    return found
