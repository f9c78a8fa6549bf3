"""Devices held outside queues: counted once, and the same whether snapshots come one by one or all at once."""

from dataclasses import replace

import pytest

from admission.api.kubernetes import claims, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.pods import Pod
from admission.api.muster import meters, observed
from admission.api.muster.meters import Meter
from admission.api.muster.status_reports import ConditionReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import MeterName, Uid
from admission.kube.writers import status_encoding
from admission.status import outside_queues
from admission.status.outside_queues import OutsideQueues

GPU = "gpu.example.com"
COUNTED = frozenset({GPU})


def a_pod(name: str, *, queue: str = "", claim: str = "c") -> Pod:
    labels = {"muster.dev/queue": queue} if queue else {}
    spec = {"containers": [], "resourceClaims": [{"name": "gpus", "resourceClaimName": claim}]}
    return pods.decode({"metadata": {"name": name, "namespace": "ml", "uid": name, "labels": labels}, "spec": spec})


def a_claim(name: str, *users: str, devices: int = 2, allocated: bool = True) -> Claim:
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU, "count": devices}}
    results = [{"request": "gpu", "driver": "d", "pool": "p", "device": f"{name}-{at}"} for at in range(devices)]
    status = {
        "reservedFor": [{"name": user, "uid": user} for user in users],
        **({"allocation": {"devices": {"results": results}}} if allocated else {}),
    }
    body = {"metadata": {"name": name, "namespace": "ml"}, "spec": {"devices": {"requests": [request]}}}
    return claims.decode({**body, "status": status})


def a_snapshot(*objects: Pod | Claim) -> Snapshot:
    return Snapshot(
        pods={one.meta.uid: one for one in objects if isinstance(one, Pod)},
        claims={one.meta.key: one for one in objects if isinstance(one, Claim)},
    )


HELD = {
    "a pod in no queue": (a_snapshot(a_pod("p"), a_claim("c", "p")), {GPU: 2}),
    "a pod in a queue": (a_snapshot(a_pod("p", queue="q"), a_claim("c", "p")), {}),
    "a claim that a pod in a queue shares": (
        a_snapshot(a_pod("p"), a_pod("other", queue="q"), a_claim("c", "p", "other")),
        {},
    ),
    "a claim that two pods in no queue share counts once": (
        a_snapshot(a_pod("p"), a_pod("other"), a_claim("c", "p", "other")),
        {GPU: 2},
    ),
    "a claim that waits": (a_snapshot(a_pod("p"), a_claim("c", "p", allocated=False)), {}),
    "a claim whose pods are not seen yet": (a_snapshot(a_claim("c", "p")), {}),
}


@pytest.mark.parametrize(("snapshot", "by_class"), HELD.values(), ids=HELD)
def test_devices_of_pods_in_no_queue_are_counted(snapshot: Snapshot, by_class: dict[str, int]) -> None:
    assert OutsideQueues().update(snapshot, COUNTED) == by_class


def test_classes_that_no_meter_counts_are_left_out_until_one_does() -> None:
    outside, snapshot = OutsideQueues(), HELD["a pod in no queue"][0]

    assert outside.update(snapshot, frozenset()) == {}
    assert outside.update(snapshot, COUNTED) == {GPU: 2}
    assert outside.update(snapshot, frozenset()) == {}


def test_a_pod_that_is_seen_after_its_claim_is_counted_then() -> None:
    outside, pod, claim = OutsideQueues(), a_pod("p"), a_claim("c", "p")
    first = a_snapshot(claim)

    assert outside.update(first, COUNTED) == {}
    assert outside.update(replace(first, pods={Uid("p"): pod}), COUNTED) == {GPU: 2}


def test_the_meters_that_know_a_class_report_what_is_held_of_it_outside_queues() -> None:
    def a_meter(name: str, *classes: str) -> Meter:
        sources = [{"deviceClasses": [*classes], "count": {}}]
        return meters.decode({"metadata": {"name": name}, "spec": {"unit": "GPU", "sources": sources}})

    known = {MeterName(name): a_meter(name, *classes) for name, classes in {"gpus": [GPU], "cards": ["card"]}.items()}
    reports = [
        ConditionReport(plural=plural, name=name, generation=1, conditions=())
        for plural, name in (("meters", "gpus"), ("meters", "cards"), ("meters", "unreadable"), ("policies", "gpus"))
    ]

    found = outside_queues.reported(reports, known, {GPU: 2})

    assert [report.outside for report in found] == [{GPU: 2}, {}, {}, {}]
    status = status_encoding.condition_status(found[0], {}, now=EPOCH)
    assert status["outsideQueues"] == [{"deviceClass": GPU, "devices": 2}]
    body = {"metadata": {"name": "gpus"}, "spec": {"sources": []}, "status": status}
    assert observed.decode_meter(body).outside == {GPU: 2}
