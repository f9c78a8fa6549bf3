"""Records what allocated devices did, time after time, beside the books: the loop and its place.

A time is read when it is over and late samples have come, page by page of its allocations. Each page is one entry with
its rows, whose key is that page's; so a leader goes on where it, or its predecessor, was interrupted, and nothing is
recorded twice. While the server does not answer, the loop waits at its place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from admission.accounting import measurements
from admission.accounting.device_samples import Quantity, UsageTally
from admission.api.muster.ledger_entries import Allocation, MeasuredPage, MeasuredUsage
from admission.controller.idle_check import IdleCheck
from admission.controller.own_writes import OwnWrites
from admission.controller.recent_use_reader import RecentUseReader
from admission.errors import DeposedError, MusterError
from admission.ports import DeviceMeter, MeasuredLog, View
from admission.status.device_uuids import DeviceUuids

log = structlog.get_logger()

LOOK_SECONDS = 60.0
"""How often the slices are looked at, and whether a time is due."""

NEXT_SECONDS = 1.0
"""The pause before the next time where several are due, and while the books of the leader are not current."""

PAGE = 5000
"""The most allocations in one entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """interval: seconds of each time that is recorded; step: of each sample; delay: after the end of a time."""

    interval: int
    step: int
    delay: int
    actor: str


class UsageRecorder:
    """Reads and records what devices did. One per term.

    is_current: whether the ledger has all that the leader knows. observe: takes the seconds for which it has been due.
    recent: reads back what is recorded; None if nobody asks. check: confirms that gangs are idle up to now.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        *,
        log_: MeasuredLog,
        writes: OwnWrites,
        meter: DeviceMeter,
        view: View,
        uuids: DeviceUuids,
        settings: RecorderSettings,
        clock: Callable[[], datetime],
        is_current: Callable[[], bool],
        observe: Callable[[float], None],
        recent: RecentUseReader | None = None,
        check: IdleCheck | None = None,
    ) -> None:
        self._log = log_
        self._writes = writes
        self._meter = meter
        self._view = view
        self._uuids = uuids
        self._settings = settings
        self._clock = clock
        self._is_current = is_current
        self._observe = observe
        self._recent = recent
        self._check = check
        self._failure = ""
        self._due: datetime | None = None
        """When the time that is to be recorded next was due, or will be."""

    async def run(self, epoch: int) -> None:
        """Record what is due, and read it back, until cancelled; neither waits for the other. Raises DeposedError."""
        while True:
            self._uuids.update(self._view.snapshot())
            is_done, unrecorded = await _tried(partial(self.record, epoch))
            _, unread = await _tried(self._read_back)
            self._log_change(unrecorded or unread)
            if self._due is not None:
                self._observe(max(0.0, (self._clock() - self._due).total_seconds()))
            has_more = is_done or not (unrecorded or self._is_current())
            await asyncio.sleep(min(NEXT_SECONDS if has_more else LOOK_SECONDS, self._until_due()))

    def _until_due(self) -> float:
        """Return the seconds until the next time is due, at least those of a short pause; of one that fails, a look."""
        left = (self._due - self._clock()).total_seconds() if self._due is not None else 0
        return max(NEXT_SECONDS, left if left > 0 else min(LOOK_SECONDS, self._settings.interval))

    async def _read_back(self) -> bool:
        """Read what was recorded, and confirm what follows from it. Raises the errors of both."""
        if self._is_current():
            if self._recent is not None:
                await self._recent.read()
            if self._check is not None:
                await self._check.check(self._clock())
        return True

    async def record(self, epoch: int) -> bool:
        """Record the next time, as far as it is not recorded; return whether one was due.

        Nothing is recorded while entries wait for the database: they may be of that time, and the ledger would refuse
        them as older than the entry of what was measured.

        Raises DeposedError, LedgerUnavailableError, RetryError if the server does not answer, FixError if it refuses,
        and AmountError for an amount that is too large for the ledger.
        """
        now = self._clock()
        if not self._is_current():
            return False
        latest = await self._log.measured()
        start, end, done = self._next(latest, now)
        self._due = end + timedelta(seconds=self._settings.delay)
        if self._due > now:
            return False
        allocations = await self._log.allocations(start, end)
        # One more than there are, if the books were closed meanwhile: the last page says that all are recorded.
        pages = max(-(-len(allocations) // PAGE), done + 1)
        for page in range(done, pages):
            rows = await self._measured(allocations[page * PAGE : (page + 1) * PAGE], start, end)
            await self._write(MeasuredPage(start, end, page + 1, pages), rows, epoch)
        self._uuids.forget_gone()
        log.info("recorded what devices did", start=start, end=end, allocations=len(allocations))
        return True

    def _next(self, latest: MeasuredPage | None, now: datetime) -> tuple[datetime, datetime, int]:
        """Return the next time to record, and how many pages of it are recorded.

        Times end at multiples of the interval, in UTC. The first one is the last that is due.
        """
        if latest is not None and latest.page < latest.pages:
            return latest.start, latest.end, latest.page
        interval = self._settings.interval
        if latest is None:
            due = int(now.timestamp()) - self._settings.delay
            begin = due - due % interval - interval
        else:
            begin = int(latest.end.timestamp())
        end = begin - begin % interval + interval
        return datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC), 0

    async def _measured(self, allocations: Sequence[Allocation], start: datetime, end: datetime) -> list[MeasuredUsage]:
        tally = UsageTally(allocations, self._uuids.by_device, step=self._settings.step)
        for by_driver in tally.devices():
            for quantity in Quantity:
                tally.add(quantity, await self._meter.samples(quantity, by_driver, start, end))
        return tally.usage()

    async def _write(self, page: MeasuredPage, rows: Sequence[MeasuredUsage], epoch: int) -> None:
        entry = measurements.entry(page, rows, actor=self._settings.actor)
        await self._writes.recorded([entry], lambda: self._log.write_measured(entry, rows, epoch=epoch))

    def _log_change(self, failure: str) -> None:
        """Log why nothing can be recorded, and that it can again, once each."""
        if failure and failure != self._failure:
            log.warning("what devices did is recorded later", error=failure)
        elif self._failure and not failure:
            log.info("what devices did is recorded again")
        self._failure = failure


async def _tried(step: Callable[[], Awaitable[bool]]) -> tuple[bool, str]:
    """Return the answer of a step, and why it failed if it did: the leader decides without it. Raises DeposedError."""
    try:
        return await step(), ""
    except DeposedError:
        raise
    except MusterError as error:
        return False, str(error)
