"""Which gangs are idle, where some of their devices are measured and others are not."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from admission.api.device_use.idle import IdlePolicy
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Holding, MeasuredUsage, Placement
from admission.api.values.names import GangUid, QueueName, Uid
from admission.status.idle_gangs import IdleGangs

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPU, NET = "gpu.example.com", "net.example.com"


def a_holding(claim: str, *drivers: str) -> Holding:
    devices = [RequestDevice(request="r", device=DeviceId(driver, "a", f"{claim}-{driver}")) for driver in drivers]
    return Holding(claim_uid=Uid(claim), claim=f"ml/{claim}", devices=tuple(devices), charge={})


def a_row(holding: Holding) -> MeasuredUsage:
    """Return that the GPUs of a claim did nothing for an hour; of others nothing was measured."""
    gpus = sum(one.device.driver == GPU for one in holding.devices)
    return MeasuredUsage(
        queue=QueueName("q"),
        gang_uid=GangUid("g"),
        gang="ml/g",
        user="",
        claim_uid=holding.claim_uid,
        claim=holding.claim,
        start=NOON,
        end=NOON + HOUR,
        devices=len(holding.devices),
        measured_seconds=3600 * gpus,
        used_microseconds=0 if gpus else None,
    )


CASES = {
    "all of its devices are measured": ([a_holding("a", GPU, GPU)], (), True),
    "of one claim nothing is measured": ([a_holding("a", GPU), a_holding("b", NET)], (), False),
    "what is not measured does not count": ([a_holding("a", GPU), a_holding("b", NET)], (NET,), True),
    "the same in one claim": ([a_holding("a", GPU, NET)], (NET,), True),
    "in one claim some are not measured": ([a_holding("a", GPU, NET)], (), False),
    "nothing of it counts": ([a_holding("a", NET)], (NET,), False),
}


@pytest.mark.parametrize(("holdings", "uncounted", "is_idle"), CASES.values(), ids=CASES)
async def test_what_nobody_measures_is_in_use_unless_it_does_not_count(
    holdings: list[Holding], uncounted: tuple[str, ...], is_idle: bool
) -> None:
    placement = Placement(
        gang_uid=GangUid("g"),
        gang="ml/g",
        queue=QueueName("q"),
        holdings={one.claim_uid: one for one in holdings},
        reserved_at=NOON,
    )
    placements = {placement.gang_uid: placement}
    queue = queues.decode({"metadata": {"name": "q"}, "spec": {"idle": {"after": "1h"}}})
    assert queue.idle == IdlePolicy(after=HOUR)

    async def rows() -> AsyncIterator[MeasuredUsage]:
        for holding in holdings:
            yield a_row(holding)

    gangs = IdleGangs(uncounted=uncounted, fresh=HOUR)
    await gangs.read(rows(), NOON + HOUR, placements, replaces=True)
    gangs.update({queue.name: queue}, placements, NOON + HOUR)
    assert bool(gangs.reported({}, {queue.name: queue})) is is_idle
