"""Gangs that hold devices and leave them idle: `spec.idle` of a Queue, and `status.idle` of a Gang."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from admission.api.values import durations
from admission.api.values.decoding import Reader
from admission.api.values.names import QueueName

BELOW_PERCENT = 5
AFTER = timedelta(hours=2)

LONGEST = timedelta(days=7)
"""The longest `after`: a leader that begins reads back so much of the books."""


class IdleAction(StrEnum):
    """What follows once a gang is idle, beside its condition and Event."""

    REPORT = "Report"
    """Nothing."""
    PREEMPT_FIRST = "PreemptFirst"
    """It is evicted before others where gangs are evicted to make room."""
    EVICT = "Evict"
    """It is evicted, and waits again after a back-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePolicy:
    """When a gang is idle: its devices have been in use for less than `below_percent` of the time, `after` long."""

    below_percent: int = BELOW_PERCENT
    after: timedelta = AFTER
    action: IdleAction = IdleAction.REPORT


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleDevices:
    """That a gang is idle, by the policy of its queue. since: its devices have been in so little use since then."""

    since: datetime
    queue: QueueName
    policy: IdlePolicy

    @property
    def message(self) -> str:
        """Return it as a sentence without its subject's first word, as conditions have it."""
        since = self.since.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        policy = self.policy
        used = f"its devices have been in use for less than {policy.below_percent} % of the time since {since}"
        follows = {
            IdleAction.REPORT: "nothing follows from it",
            IdleAction.PREEMPT_FIRST: "gangs of this queue that are idle are evicted before others to make room",
            IdleAction.EVICT: "gangs of this queue that are idle are evicted",
        }
        limit = f"spec.idle of queue {self.queue} allows that for {durations.render(policy.after)}"
        return f"{used}; {limit}, and {follows[policy.action]}"


def decode(reader: Reader) -> IdlePolicy:
    """Decode `spec.idle`."""
    percent = reader.integer("belowPercent", BELOW_PERCENT)
    if not 1 <= percent <= 100:
        reader.problem("belowPercent", f"{percent} is not a whole number from 1 to 100")
        percent = BELOW_PERCENT
    after = reader.parsed("after", durations.parse_positive, AFTER)
    if after > LONGEST:
        reader.problem("after", f"is longer than {durations.render(LONGEST)}; shorten it")
        after = AFTER
    text = reader.text("action", IdleAction.REPORT)
    if text not in tuple(IdleAction):
        reader.problem("action", f"{text!r} is not one of {', '.join(IdleAction)}")
        text = IdleAction.REPORT
    return IdlePolicy(below_percent=percent, after=after, action=IdleAction(text))


def decode_status(reader: Reader, queue: QueueName) -> IdleDevices | None:
    """Decode `status.idle`; None if it lacks its time."""
    since = reader.time("since")
    return None if since is None else IdleDevices(since=since, queue=queue, policy=decode(reader))
