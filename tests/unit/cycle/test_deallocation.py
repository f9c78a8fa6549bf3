"""Which claims of a gang that is taken back are deallocated."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding
from admission.api.values import names
from admission.api.values.names import Uid
from admission.cycle.steps import deallocate
from tests.unit.dra.clusters import DRIVER, a_claim, a_request

PLANNED = (RequestDevice(request="r", device=DeviceId(DRIVER, "a", "gpu-0")),)


def marked(claim: Claim) -> Claim:
    """A claim with the mark of a write of Muster's."""
    return replace(claim, meta=replace(claim.meta, annotations={names.PLACEMENT: "1"}))


def allocated(claim: Claim) -> Claim:
    return replace(claim, allocation=a_claim("c", a_request("r"), allocation={"devices": {"results": []}}).allocation)


CLAIMS: dict[str, tuple[Callable[[Claim], Claim], tuple[RequestDevice, ...], bool]] = {
    "that kube-scheduler allocates, untouched": (lambda claim: claim, (), False),
    "that Muster was to allocate": (lambda claim: claim, PLANNED, True),
    "that is allocated": (allocated, (), True),
    "that Muster has marked, and kube-scheduler allocates by now": (marked, (), True),
    "that a pod has reserved": (lambda claim: replace(allocated(claim), reserved_for=("pod",)), PLANNED, False),
    "that is reserved and lost its allocation": (lambda claim: replace(claim, reserved_for=("pod",)), PLANNED, True),
}


@pytest.mark.parametrize(("change", "devices", "is_revocable"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_is_deallocated_if_a_write_may_have_given_it_devices(
    change: Callable[[Claim], Claim], devices: tuple[RequestDevice, ...], is_revocable: bool
) -> None:
    claim = change(a_claim("c", a_request("r")))
    uid = claim.meta.uid
    holding = Holding(claim_uid=uid, claim=claim.meta.key, devices=devices, charge={})
    inputs: Any = SimpleNamespace(observed=SimpleNamespace(claims={uid: claim}))

    assert list(deallocate._revocable(inputs, [holding])) == [claim] * is_revocable


@pytest.mark.parametrize(
    "uid",
    [names.extended_claim(Uid("pod")), names.expected_claim(names.expected_pod(Uid("workload"), 0), "gpus")],
    ids=["kube-scheduler's own", "of a pod that is still to come"],
)
def test_a_claim_that_has_no_object_is_left_alone(uid: Uid) -> None:
    holding = Holding(claim_uid=uid, claim="team/c", devices=PLANNED, charge={})
    inputs: Any = SimpleNamespace(observed=SimpleNamespace(claims={uid: allocated(a_claim("c", a_request("r")))}))

    assert list(deallocate._revocable(inputs, [holding])) == []


def test_a_claim_that_is_gone_is_left_alone() -> None:
    holding = Holding(claim_uid=Uid("gone"), claim="team/c", devices=PLANNED, charge={})
    inputs: Any = SimpleNamespace(observed=SimpleNamespace(claims={}))

    assert list(deallocate._revocable(inputs, [holding])) == []
