"""What the controller writes into a status is read back as it was meant."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Condition, ConditionStatus, Owner
from admission.api.muster import status_views
from admission.api.muster.gangs import (
    DomainReport,
    DomainRequest,
    GangReport,
    Phase,
    PlannedClaim,
    PlannedPod,
    TopologyReport,
)
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Denial, DenyReason, Hold, HoldReason
from admission.kube.writers import status_encoding

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOON = datetime(2026, 4, 1, 12, tzinfo=UTC)
JOB = Owner(api_version="batch/v1", kind="Job", name="train", uid=Uid("u-1"), controller=True)
DEVICE = RequestDevice(request="gpu", device=DeviceId("gpu.example.com", "one", "gpu-0"))

RUNS = GangReport(
    uid=GangUid("u-1"),
    namespace="a",
    name="train-1",
    queue=QueueName("team"),
    size=2,
    priority=3,
    workload=JOB,
    phase=Phase.RUNNING,
    pods=2,
    plan=(
        PlannedPod(
            uid=Uid(""),
            pod="a/train-0",
            node=NodeName("one"),
            claims=(PlannedClaim(uid=Uid(""), claim="a/train-0-gpu", devices=(DEVICE,)),),
        ),
    ),
    charges={MeterName("gpus"): 2, MeterName("memory"): 80 * 1024**3},
    placement="Pin",
    topology=TopologyReport(gang=DomainReport(request=DomainRequest(required="example.com/rack"), domains=("r1",))),
)
WAITS = replace(
    RUNS,
    phase=Phase.PENDING,
    plan=(),
    charges={},
    placement="",
    topology=TopologyReport(gang=DomainReport(request=DomainRequest(preferred="rack"))),
    hold=Hold(HoldReason.QUOTA_EXCEEDED, "too much", {"left": "1", "needed": "2", "names": ["a", "b"]}),
    position=2,
    evictions=1,
    queued_since=NOW,
    next_try=NOW,
)
DENIED = replace(WAITS, hold=Denial(DenyReason.UNMETERED_CLASS, "not counted", {"class": "gpu"}))


@pytest.mark.parametrize("report", [RUNS, WAITS, DENIED], ids=["runs", "waits", "denied"])
def test_a_gang_status_survives_a_round_trip(report: GangReport) -> None:
    obj = {**status_encoding.gang(report), "status": status_encoding.gang_status(report, {}, now=NOW)}

    assert status_views.gang(obj) == report


def test_a_queue_status_survives_a_round_trip() -> None:
    report = QueueReport(
        name=QueueName("team"),
        generation=4,
        conditions=(Condition(type="Active", status=ConditionStatus.TRUE, reason="Ready", message="it admits"),),
        meters={MeterName("gpus"): MeterUse(nominal=8, reserved=1, used=2, borrowed=3, lent=4, pending=5)},
        budgets=(
            BudgetUse(meter=MeterName("gpus"), limit=36_000, spent=1, promised=2, start=NOON, end=NOW, period="Day"),
            BudgetUse(meter=MeterName("gpus"), limit=1, spent=3_601, elsewhere=7, start=NOON, end=NOW, scope="Global"),
        ),
        gangs={phase: 1 for phase in Phase if phase is not Phase.FINISHED},
    )
    obj = {"metadata": {"name": "team", "generation": 4}, "status": status_encoding.queue_status(report, {}, now=NOW)}

    assert status_views.queue(obj) == report


def test_a_hold_reason_of_a_newer_muster_is_still_read() -> None:
    status = {"phase": "Pending", "hold": {"reason": "MoonTooFull", "message": "wait for the wane"}}
    obj = {"metadata": {"name": "g", "namespace": "a"}, "spec": {"queue": "team", "size": 1}, "status": status}
    hold = status_views.gang(obj).hold

    assert hold is not None
    assert hold.message == "MoonTooFull: wait for the wane"
