"""Meter-seconds: the use that has accrued by queue and meter since the latest mark of the books.

Use is counted from settled allocations, in whole seconds: an amount that was in use from one moment to another counts
for the whole seconds between them, with both cut to the second. So the parts of a time always sum to the whole. A mark
is the time of the latest `usage` entry, which records the use accrued until then.
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
    """The use accrued since the mark. seconds: meter-seconds up to `since`, a whole second."""

    since: datetime
    seconds: int = 0

    def until(self, at: datetime, used: int) -> "Accrual":
        """Return the accrual at a later time, with `used` in use meanwhile. A clock that went back adds nothing.

        Raises AmountError when the sum is too large for the ledger.
        """
        end = max(self.since, floor_to_second(at))
        return Accrual(end, quantities.checked(self.seconds + used * between(self.since, end)))


class Change(NamedTuple):
    """One line of the books that changes an amount in use."""

    at: datetime
    key: QueueMeter
    amount: int


def begin(at: datetime, marked: datetime | None) -> Accrual:
    """Return the initial accrual of a queue and meter whose first use since the mark begins at a time."""
    return Accrual(floor_to_second(at) if marked is None else max(floor_to_second(at), marked))


def floor_to_second(at: datetime) -> datetime:
    """Return a moment in UTC, cut to the whole second."""
    return at.astimezone(UTC).replace(microsecond=0)


def between(start: datetime, end: datetime) -> int:
    """Return the whole seconds from one whole second to another."""
    return (end - start) // _SECOND


def accrued(
    used: Mapping[QueueMeter, int], marked: datetime | None, changes: Iterable[Change]
) -> dict[QueueMeter, Accrual]:
    """Return the accruals, from the amounts in use now and the lines since the mark, in their order.

    A queue and meter without use since the mark has no accrual.
    """
    change_list = list(changes)
    levels = dict(used)
    for change in change_list:
        levels[change.key] = levels.get(change.key, 0) - change.amount
    accruals = {key: Accrual(marked) for key, level in levels.items() if level and marked is not None}
    for at, key, amount in change_list:
        accruals[key] = accruals.get(key, begin(at, marked)).until(at, levels[key])
        levels[key] += amount
    return accruals
