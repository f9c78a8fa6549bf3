"""Who gets past a fence, and who only seems to."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import AllocatedDevice, Allocation, Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.scheduling.placement import protection_conditions
from admission.scheduling.placement.protection import Breach
from admission.scheduling.placement.protection_conditions import Watch
from tests.builders import CLASS, claim_manifest


def a_claim(**meta: Any) -> Claim:
    claim = claims.decode(claim_manifest("c", 1, owner="pod"))
    return replace(claim, meta=replace(claim.meta, **meta))


def given(claim: Claim, driver: str = CLASS, **result: Any) -> Claim:
    device = RequestDevice(request="gpus", device=DeviceId(driver, "a", "gpu-0"))
    return replace(claim, allocation=Allocation(devices=(AllocatedDevice(given=device, **result),)))


def seen(*claims: Claim) -> Snapshot:
    return Snapshot(claims={claim.meta.key: claim for claim in claims})


def looks(*snapshots: Snapshot, booked: frozenset[Uid] = frozenset()) -> Watch:
    """Look at one snapshot after the other, while the fence counts."""
    watch = Watch()
    for snapshot in snapshots:
        watch = replace(protection_conditions.observe(watch, snapshot, booked), drivers=frozenset({CLASS}))
    return watch


def test_a_claim_that_gets_a_fenced_device_is_a_breach_that_is_not_forgotten() -> None:
    watch = looks(seen(a_claim()), seen(given(a_claim())), seen())

    assert watch.breaches == {CLASS: Breach("team/c", DeviceId(CLASS, "a", "gpu-0"))}
    assert looks(seen(), seen(given(a_claim()))).breaches, "it is all the same if it was never seen without"


HARMLESS: dict[str, Watch] = {
    "had it before the fence counted": looks(seen(given(a_claim())), seen(given(a_claim()))),
    "is booked": looks(seen(a_claim()), seen(given(a_claim())), booked=frozenset({a_claim().meta.uid})),
    "got it from Muster": looks(seen(), seen(given(a_claim(annotations={names.PLACEMENT: "allocated now"})))),
    "has it from another driver": looks(seen(a_claim()), seen(given(a_claim(), driver="nic.example.com"))),
    "takes it from nobody": looks(seen(a_claim()), seen(given(a_claim(), admin_access=True))),
}


@pytest.mark.parametrize("watch", HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_claim_is_no_fence_breach(watch: Watch) -> None:
    assert not watch.breaches


def test_without_a_fence_that_counts_no_claim_is_a_breach() -> None:
    watch = protection_conditions.observe(
        protection_conditions.observe(Watch(), seen(a_claim()), ()), seen(given(a_claim())), ()
    )

    assert not watch.breaches
