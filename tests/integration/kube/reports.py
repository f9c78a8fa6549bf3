"""A report to be written, and the clock by which it is."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from admission.api.kubernetes.meta import Owner
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.names import GangUid, QueueName, Uid

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Owner(api_version="batch/v1", kind="Job", name="train", uid=Uid("job-1"), controller=True)


def ticking() -> Callable[[], datetime]:
    """A clock that moves by a minute whenever it is looked at."""
    times: Iterator[datetime] = (START + timedelta(minutes=n) for n in range(1000))
    return lambda: next(times)


def a_report(**more: Any) -> GangReport:
    values: dict[str, Any] = {"queue": QueueName("q"), "size": 2, "pods": 1, "phase": Phase.PENDING}
    values |= {"workload": JOB} | more
    return GangReport(uid=GangUid("job-1"), namespace="team", name="train", **values)
