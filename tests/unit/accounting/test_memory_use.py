"""Who uses more memory of shared devices than claims asked for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.accounting import memory_use
from admission.accounting.memory_use import MemoryUse
from admission.api.device_use.memory import MemoryExceeded
from admission.api.kubernetes import claims
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.ledger_entries import Allocation, MeasuredUsage
from admission.api.values.names import GangUid, QueueName, Uid

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
GIB = 2**30


def a_claim(name: str, asks: str = "", devices: tuple[str, ...] = ("gpu-0",), key: str = "memory") -> claims.Claim:
    results: list[dict[str, Any]] = [
        {
            "request": "r",
            "driver": "gpu.example.com",
            "pool": "a",
            "device": device,
            **({"consumedCapacity": {key: asks}} if asks else {}),
        }
        for device in devices
    ]
    meta = {"name": name, "namespace": "ml", "uid": name}
    return claims.decode({"metadata": meta, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}})


def held(name: str, *devices: str, start: datetime = NOON) -> Allocation:
    return Allocation(
        queue=QueueName("q"),
        gang_uid=GangUid(f"gang-{name}"),
        gang=f"ml/{name}",
        user="",
        claim_uid=Uid(name),
        claim=f"ml/{name}",
        devices=tuple(DeviceId("gpu.example.com", "a", device) for device in devices or ("gpu-0",)),
        start=start,
        end=NOON + HOUR,
    )


def a_row(of: Allocation, gibibytes: float | None) -> MeasuredUsage:
    return MeasuredUsage(
        queue=of.queue,
        gang_uid=of.gang_uid,
        gang=of.gang,
        user="",
        claim_uid=of.claim_uid,
        claim=of.claim,
        start=of.start,
        end=of.end,
        devices=len(of.devices),
        memory_peak=None if gibibytes is None else int(gibibytes * GIB),
    )


A, B = a_claim("a", "10Gi"), a_claim("b", "6Gi")

CASES: dict[str, tuple[list[claims.Claim], list[tuple[Allocation, float | None]], dict[str, tuple[int, int]]]] = {
    "one claim used no more than it asked for": ([A], [(held("a"), 10)], {}),
    "one claim used more": ([A], [(held("a"), 10.5)], {"gang-a": (1, 10)}),
    "two used no more than both asked for": ([A, B], [(held("a"), 15), (held("b"), 15)], {}),
    "two used more than both asked for": (
        [A, B],
        [(held("a"), 17), (held("b"), 17)],
        {"gang-a": (2, 16), "gang-b": (2, 16)},
    ),
    "the capacity has a domain": (
        [a_claim("a", "1Gi", key="example.com/memory")],
        [(held("a"), 2)],
        {"gang-a": (1, 1)},
    ),
    "nothing was measured": ([A], [(held("a"), None)], {}),
    "a claim that has the device for itself": ([a_claim("a")], [(held("a"), 80)], {}),
    "another capacity": ([a_claim("a", "1Gi", key="cores")], [(held("a"), 80)], {}),
    "of another claim it is not known what it asked for": ([A], [(held("a"), 80), (held("gone"), 80)], {}),
    "a claim of no queue has it as well": ([A, a_claim("outside", "40Gi")], [(held("a"), 30)], {}),
    "a claim of no queue of which it is not known": ([A, a_claim("outside")], [(held("a"), 80)], {}),
    "another claim had it earlier in that time": (
        [A, B],
        [(held("b"), 16), (held("a", start=NOON + HOUR / 2), 16)],
        {},
    ),
    "of two devices the peak is more than was asked for of each": (
        [a_claim("a", "10Gi", ("gpu-0", "gpu-1")), B],
        [(held("a", "gpu-0", "gpu-1"), 12), (held("b"), 12)],
        {},
    ),
    "the same, and more than for the most": (
        [a_claim("a", "10Gi", ("gpu-0", "gpu-1")), B],
        [(held("a", "gpu-0", "gpu-1"), 17), (held("b"), 17)],
        {"gang-a": (2, 16), "gang-b": (2, 16)},
    ),
}


@pytest.mark.parametrize(("known", "used", "found"), CASES.values(), ids=CASES)
def test_more_than_all_claims_of_a_device_asked_for_is_told(
    known: list[claims.Claim],
    used: list[tuple[Allocation, float | None]],
    found: dict[str, tuple[int, int]],
) -> None:
    rows = [a_row(of, peak) for of, peak in used]
    over = memory_use.exceeding(rows, [of for of, _ in used], memory_use.asked(known))

    assert {gang: (one.sharers, one.asked) for gang, one in over.items()} == {
        gang: (sharers, asked * GIB) for gang, (sharers, asked) in found.items()
    }


def test_a_fraction_of_a_byte_is_rounded_up() -> None:
    ((of_claim),) = memory_use.asked([a_claim("a", "1500m")]).values()
    assert [*of_claim.values()] == [2]


def test_what_was_read_holds_for_some_time() -> None:
    use = MemoryUse()
    assert not use.is_known
    one = MemoryExceeded(claim="a", sharers=1, asked=10 * GIB, peak=11 * GIB, start=NOON, end=NOON + HOUR)
    use.note({GangUid("g"): one}, NOON + HOUR)

    assert use.exceeding(NOON + HOUR) == {GangUid("g"): one}
    assert use.exceeding(NOON + HOUR + timedelta(seconds=1)) == {}
    assert one.message == (
        "up to 11264 MiB of memory were in use on a device of claim a between 2026-11-21T12:00:00Z and"
        " 2026-11-21T13:00:00Z, and the claim asked for 10240 MiB of it"
    )
