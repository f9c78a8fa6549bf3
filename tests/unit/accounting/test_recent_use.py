"""How little devices were in use of late."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admission.accounting.recent_use import MICRO, LowUse, RecentUse, percent_in_use
from admission.api.muster.ledger_entries import MeasuredUsage
from admission.api.values.names import GangUid, QueueName, Uid

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
GANG = GangUid("g")


def a_row(
    start: datetime = NOON,
    end: datetime | None = None,
    *,
    percent: int = 0,
    devices: int = 1,
    measured: int | None = None,
    gang: GangUid = GANG,
) -> MeasuredUsage:
    """Return a row of devices in use for so many percent of the measured time. measured: seconds; None for all."""
    end = end or start + HOUR
    seconds = devices * int((end - start).total_seconds()) if measured is None else measured
    return MeasuredUsage(
        queue=QueueName("q"),
        gang_uid=gang,
        gang="ml/g",
        user="zoe",
        claim_uid=Uid("c"),
        claim="ml/c",
        start=start,
        end=end,
        devices=devices,
        measured_seconds=seconds,
        used_microseconds=seconds * MICRO * percent // 100 if seconds else None,
    )


SHARES = {
    "nothing ran": (a_row(), 1, 0),
    "a little ran": (a_row(percent=4), 1, 4),
    "it is rounded down": (replace(a_row(), used_microseconds=3600 * MICRO // 20 - 1), 1, 4),
    "of two devices one ran all the time": (a_row(percent=50, devices=2), 2, 50),
    "nothing was measured": (a_row(measured=0), 1, 100),
    "what was not measured counts as use": (a_row(measured=3600 - 360), 1, 10),
    "a device that is never measured does not count": (a_row(devices=2, measured=3600), 1, 0),
    "no more than all": (replace(a_row(), used_microseconds=2 * 3600 * MICRO), 1, 100),
}


@pytest.mark.parametrize(("row", "devices", "percent"), SHARES.values(), ids=SHARES)
def test_the_share_of_use_counts_what_is_missing(row: MeasuredUsage, devices: int, percent: int) -> None:
    assert percent_in_use(row, devices) == percent


def below(rows: list[MeasuredUsage], percent: int) -> LowUse | None:
    use = RecentUse()
    for row in rows:
        use.add(row, row.devices)
    return use.below(GANG, percent)


def at(hours: float) -> datetime:
    return NOON + hours * HOUR


ROWS = {
    "idle from the first row on": ([a_row(at(0)), a_row(at(1))], LowUse(at(0), at(2))),
    "idle since it was last in use": ([a_row(at(0), percent=60), a_row(at(1))], LowUse(at(1), at(2))),
    "in use at last": ([a_row(at(0)), a_row(at(1), percent=5)], None),
    "one claim of two is in use": ([a_row(at(0)), a_row(at(1)), a_row(at(1), percent=9)], None),
    "a claim that ended within the time was in use": (
        [a_row(at(0)), a_row(at(1)), a_row(at(1), at(1.5), percent=70)],
        LowUse(at(1.5), at(2)),
    ),
    "the same, and its row comes first": (
        [a_row(at(0)), a_row(at(1), at(1.5), percent=70), a_row(at(1))],
        LowUse(at(1.5), at(2)),
    ),
    "it had no devices in between": ([a_row(at(0)), a_row(at(2))], LowUse(at(2), at(3))),
    "an hour that nobody measured": ([a_row(at(0)), a_row(at(1), measured=0), a_row(at(2))], LowUse(at(2), at(3))),
    "no rows": ([], None),
}


@pytest.mark.parametrize(("rows", "found"), ROWS.values(), ids=ROWS)
def test_since_when_a_gang_is_in_little_use(rows: list[MeasuredUsage], found: LowUse | None) -> None:
    assert below(rows, 5) == found


def test_what_is_kept_of_a_gang_is_bounded() -> None:
    use = RecentUse()
    for hour in range(1000):
        use.add(a_row(at(hour), percent=hour % 101), 1)
    assert len(use._gangs[GANG].peaks) <= 101

    use.keep(())
    assert use.below(GANG, 100) is None


def test_a_row_of_which_nothing_can_be_measured_says_nothing() -> None:
    use = RecentUse()
    use.add(a_row(at(0)), 1)
    use.add(a_row(at(0), measured=0), 0)
    use.add(a_row(at(0), at(0)), 1)
    assert use.below(GANG, 5) == LowUse(at(0), at(1))
