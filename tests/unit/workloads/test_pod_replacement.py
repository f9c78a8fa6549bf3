"""Pods that take the places which were granted to expected ones of their workload."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim, ClaimSpec
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.muster.ledger_entries import Entry, Placement, Seat
from admission.api.scheduling.pod_volumes import PodVolume
from admission.api.scheduling.scheduling_rules import AffinityTerm, SchedulingRules
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.selectors import LabelSelector, Requirement, Toleration
from admission.workloads import pod_replacement
from admission.workloads.gangs import Group
from admission.workloads.pod_replacement import Mismatch
from tests import standins
from tests.builders import NOON
from tests.standins import an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd


def a_gang(*, planned: int, came: int) -> tuple[Group, Snapshot]:
    """Return a Job's gang with places for so many expected pods, of which so many have come."""
    herd = Herd()
    job = herd.put(an_object("batch/v1", "Job", "train", parallelism=2, completions=2, template=TEMPLATE))
    made = herd.all(standins.job_pods(job))
    group = herd.gang
    pods = [
        replace(
            group.pods[at % len(made)],
            meta=replace(group.pods[0].meta, uid=names.expected_pod(job["metadata"]["uid"], at), name=f"train-{at}"),
        )
        for at in range(planned)
    ]
    seats = {pod.meta.uid: Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=NodeName("n"), claims=()) for pod in pods}
    placement = Placement(gang_uid=group.uid, gang=group.key, queue=group.queue, reserved_at=NOON, seats=seats)
    return replace(group, pods=(*pods, *group.pods[:came]), placement=placement), herd.snapshot


def succession(*, planned: int, came: int) -> Entry | Mismatch | None:
    group, snapshot = a_gang(planned=planned, came=came)
    return pod_replacement.replacement_entry(group, snapshot, at=NOON, actor="test")


def test_real_pods_take_over_the_slots_once_all_exist() -> None:
    entry = succession(planned=2, came=2)

    assert isinstance(entry, Entry)
    group, _ = a_gang(planned=2, came=2)
    assert [seat.pod_uid for seat in entry.seats] == [pod.meta.uid for pod in group.pods[2:]]
    assert {seat.node for seat in entry.seats} == {"n"}


def test_no_slot_is_taken_over_before_all_pods_exist_or_where_no_slot_is_kept() -> None:
    assert succession(planned=2, came=0) is None
    assert succession(planned=2, came=1) is None
    assert succession(planned=0, came=2) is None


def test_no_slot_is_taken_over_before_the_claims_that_the_pods_name_exist() -> None:
    group, snapshot = a_gang(planned=2, came=2)
    naming = [replace(pod, claims=(PodClaim(name="gpu", claim="c"),)) for pod in group.pods]
    group = replace(group, pods=tuple(naming))
    claim = Claim(meta=Meta(name="c", namespace="team"), spec=ClaimSpec())

    assert pod_replacement.replacement_entry(group, snapshot, at=NOON, actor="test") is None
    there = replace(snapshot, claims={"team/c": claim})
    assert isinstance(pod_replacement.replacement_entry(group, there, at=NOON, actor="test"), Entry)


def test_nothing_follows_for_a_gang_without_a_place() -> None:
    group, snapshot = a_gang(planned=2, came=2)

    assert pod_replacement.replacement_entry(replace(group, placement=None), snapshot, at=NOON, actor="test") is None


MORE = Toleration(key="spot", operator="Exists")
APART = SchedulingRules(
    anti_affinity=(
        AffinityTerm(
            topology_key="kubernetes.io/hostname",
            selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("train",)),)),
            namespaces=frozenset({"team"}),
        ),
    )
)
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nothing": ({}, {}, ""),
    "a toleration that the API server adds": ({}, {"tolerations": (MORE,)}, ""),
    "a toleration that is gone": ({"tolerations": (MORE,)}, {}, "spec.tolerations"),
    "a selector of nodes": ({}, {"node_selector": {"a": "b"}}, "spec.nodeSelector"),
    "what it requests": ({"requests": {"cpu": 1}}, {"requests": {"cpu": 2}}, "what its containers request"),
    "a label that its rules read": (
        {"rules": APART, "meta": {"app": "train"}},
        {"rules": APART, "meta": {"app": "other"}},
        "the label app, which what pods demand of each other reads,",
    ),
    "a label that no rule reads": ({"rules": APART, "meta": {"a": "b"}}, {"rules": APART}, ""),
    "a volume": ({"rules": SchedulingRules(volumes=(PodVolume(name="data", claim="data"),))}, {}, "spec.volumes"),
    "a claim": ({"claims": (PodClaim(name="gpu", template="one"),)}, {}, "spec.resourceClaims"),
}


def changed(pod: Pod, fields: dict[str, Any]) -> Pod:
    """Return a pod with other fields, and more labels."""
    labels = {**pod.meta.labels, **fields.get("meta", {})}
    return replace(pod, **{**fields, "meta": replace(pod.meta, labels=labels)})


@pytest.mark.parametrize(("planned", "actual", "differs"), CHANGES.values(), ids=CHANGES)
def test_real_pods_take_over_a_plan_only_where_planned_and_real_pods_ask_for_the_same(
    planned: dict[str, Any], actual: dict[str, Any], differs: str
) -> None:
    group, snapshot = a_gang(planned=2, came=2)
    pods = [*(changed(pod, planned) for pod in group.pods[:2]), *(changed(pod, actual) for pod in group.pods[2:])]

    found = pod_replacement.replacement_entry(replace(group, pods=tuple(pods)), snapshot, at=NOON, actor="test")

    assert (found.difference if isinstance(found, Mismatch) else "") == differs
    assert isinstance(found, Mismatch) is bool(differs)
