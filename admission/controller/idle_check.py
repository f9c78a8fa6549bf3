"""Looks at what devices of idle gangs did after the last recorded time, so that none is evicted that is at work again.

A recorded time may be over for an hour. So wherever something follows from it that a gang is idle, the same server is
asked for the minutes since: about gangs that are idle by the books, and about no others.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from admission.accounting.device_samples import BusiestSteps, Quantity, UsageTally
from admission.api.muster.ledger_entries import Allocation, Placement
from admission.api.values.names import GangUid
from admission.ports import DeviceMeter
from admission.status.device_uuids import DeviceUuids
from admission.status.idle_gangs import IdleGangs

WINDOW = 600
"""The most seconds that are looked at, up to now, and before `delay` ago; one step, if that is longer.

Not more, since a gang that is at work again does little in the mean of an hour.
"""


class IdleCheck:
    """Confirms that gangs are idle up to now. One per term. step, delay: seconds, as those of what is recorded.

    placements: those of the leader, as they are at each call.
    """

    def __init__(
        self,
        *,
        meter: DeviceMeter,
        idle: IdleGangs,
        uuids: DeviceUuids,
        placements: Callable[[], Mapping[GangUid, Placement]],
        step: int,
        delay: int,
    ) -> None:
        self._meter = meter
        self._idle = idle
        self._uuids = uuids
        self._placements = placements
        self._step = step
        self._delay = delay

    async def check(self, now: datetime) -> None:
        """Look at the gangs for which something follows from it that they are idle; of none nothing is asked.

        What is not measured counts as use. Since `delay` ago it does not, since samples may still come; a step of that
        time in which a claim is known to have been in use is enough, though. Raises RetryError if the server does not
        answer, FixError if it refuses.
        """
        suspects = self._idle.suspects
        if suspects is None:
            return
        (until, gangs), step = suspects, self._step
        window = max(1, WINDOW // step) * step
        end = int(now.timestamp()) // step * step
        settled = (int(now.timestamp()) - self._delay) // step * step
        start = max(int(until.timestamp()), settled - window)
        if end - start < step:  # until there is a sample, the last recorded time says it
            self._idle.confirm(gangs, None, self._placements(), now)
            return
        placements, begin, until = self._placements(), _time(start), _time(max(start, settled))
        held = [one for uid in gangs if uid in placements for one in _allocations(placements[uid], begin, until)]
        tally = UsageTally(held, self._uuids.by_device, step=step)
        latest = BusiestSteps(held, self._uuids.by_device, after=max(start, settled, end - window))
        for by_driver in tally.devices():
            samples = await self._meter.samples(Quantity.UTILIZATION, by_driver, begin, _time(end))
            tally.add(Quantity.UTILIZATION, samples)
            latest.add(samples)
        rows = tally.usage() if settled - start >= step else None
        self._idle.confirm(gangs, rows, self._placements(), now, latest.percent())


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _allocations(placement: Placement, start: datetime, end: datetime) -> Iterator[Allocation]:
    """Yield what a gang holds, as if it had for the whole time: what it did not counts as use."""
    for holding in placement.holdings.values():
        if holding.devices:
            yield Allocation(
                queue=placement.queue,
                gang_uid=placement.gang_uid,
                gang=placement.gang,
                user="",
                claim_uid=holding.claim_uid,
                claim=holding.claim,
                devices=tuple(dict.fromkeys(one.device for one in holding.devices)),
                start=start,
                end=end,
            )
