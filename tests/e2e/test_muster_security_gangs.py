"""Tries to pass for a part of somebody else's gang: docs/security.md lists them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import intruders, teams
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

NO_JOB = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def neighbour(control_plane: ControlPlane, namespace: Namespace) -> Iterator[Namespace]:
    """Another namespace of the same queue."""
    other = replace(namespace, name=f"{namespace.name}-next")
    control_plane.client().create("/api/v1/namespaces", {"metadata": {"name": other.name}})
    yield other
    other.empty()
    control_plane.client().delete(f"/api/v1/namespaces/{other.name}")


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace, neighbour: Namespace) -> Iterator[Lab]:
    """A queue that starts nobody yet, for two namespaces."""
    both = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace.name, neighbour.name]}]
    selector = {"matchExpressions": both}
    with intruders.lab(control_plane, muster, namespace, stopPolicy="Hold", namespaceSelector=selector) as lab:
        people = [{"kind": "User", "name": name} for name in intruders.PEOPLE]
        intruders.let_in(control_plane, neighbour, people)
        neighbour.create(intruders.template(lab, "gpu"))
        yield lab


def of_job(name: str, uid: str) -> Any:
    """A pod that says that a Job controls it."""
    pod = workloads.pod("thief", template="gpu")
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


def submitted(lab: Lab) -> Any:
    """Have bob submit a Job of two pods, and return it once both are there."""
    lab.control_plane.client("bob").create(lab.team.jobs, teams.job("train", pods=2, template="gpu", annotations={}))
    eventually(lambda: len(lab.team.gated("train")) == 2, what="both pods are held")
    return lab.client.get(f"{lab.team.jobs}/train")


def test_a_name_gathers_pods_of_its_own_namespace_only(lab: Lab, neighbour: Namespace) -> None:
    for where in (lab.namespace, neighbour):
        pod = workloads.pod("one", labels={names.GANG: "pair"}, annotations={names.GANG_SIZE: "2"})
        where.seen_by(lab.control_plane.client("alice")).create(pod)
    lab.stop_queue("None")

    for where in (lab.namespace, neighbour):
        hold = intruders.wait_hold(lab, "pair", "GangIncomplete", where)
        assert hold["message"].startswith("1 of 2 pods exist")


@pytest.mark.parametrize(
    "whose", ["a Job of the namespace", "a Job of another namespace", "a Job that is not there", "a named gang"]
)
def test_nobody_makes_a_pod_of_a_job(lab: Lab, neighbour: Namespace, whose: str) -> None:
    job = submitted(lab)["metadata"]["uid"]
    alice = lab.control_plane.client("alice")
    here = whose == "a Job of the namespace"
    uids = {"a Job that is not there": NO_JOB, "a named gang": f"{lab.namespace.name}/pair"}
    where = (lab.namespace if here else neighbour).seen_by(alice)

    said = refused(where.create, of_job("train", uids.get(whose, job)))

    assert "GateTampering: metadata.ownerReferences say that Job train controls the pod, and alice makes it" in said


def test_nobody_makes_a_pod_another_jobs_later(lab: Lab, neighbour: Namespace) -> None:
    job = submitted(lab)["metadata"]["uid"]
    alice = neighbour.seen_by(lab.control_plane.client("alice"))
    alice.create(workloads.pod("mine", template="gpu"))
    reference = of_job("train", job)["metadata"]["ownerReferences"]

    said = refused(alice.client.merge_patch, f"{alice.pods}/mine", {"metadata": {"ownerReferences": reference}})
    assert "the Job that controls it is changed from none to train" in said
    (name, _) = lab.team.gated("train")
    here = intruders.seen_by(lab, "alice")
    said = refused(here.client.merge_patch, f"{here.pods}/{name}", {"metadata": {"ownerReferences": None}})
    assert f"the Job that controls it is changed from train (UID {job}) to none" in said


def test_a_job_that_is_orphaned_lets_its_pods_go(lab: Lab) -> None:
    """The garbage collector may do what others may not."""
    submitted(lab)
    pods = lab.team.gated("train")

    lab.control_plane.kubectl("delete", "job", "train", "--cascade=orphan", "-n", lab.namespace.name, user="bob")

    for name in pods:
        assert not lab.namespace.pod(name)["metadata"].get("ownerReferences")
        assert intruders.is_gated(lab.namespace.pod(name))


def test_nobody_names_a_gang_like_a_jobs(lab: Lab) -> None:
    submitted(lab)
    name = eventually(lambda: lab.team.gang("train"), what="the Job has a gang")["metadata"]["name"]

    pod = workloads.pod("thief", labels={names.GANG: name}, annotations={names.GANG_SIZE: "1"})

    assert f"PolicyViolation: label muster.dev/gang is {name}, the gang of Job train" in refused(
        intruders.seen_by(lab, "alice").create, pod
    )


FOREIGN = {
    "a Job": {"batch.kubernetes.io/job-name": "train", "job-name": "train"},
    "a pod group": {"scheduling.x-k8s.io/pod-group": "pair", "kueue.x-k8s.io/pod-group-name": "pair"},
    "a ReplicaSet": {"pod-template-hash": "5d4f8c7b9"},
}


@pytest.mark.parametrize("labels", FOREIGN.values(), ids=FOREIGN)
def test_labels_of_others_make_no_gang(lab: Lab, neighbour: Namespace, labels: dict[str, str]) -> None:
    """A pod is alone unless the Job controller made it, or it names a gang in Muster's own words."""
    uid = submitted(lab)["metadata"]["uid"]
    labels = labels | {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    alice = neighbour.seen_by(lab.control_plane.client("alice"))
    alice.create(workloads.pod("one", labels=labels), workloads.pod("two", labels=labels))

    def sizes() -> dict[str, int]:
        found = intruders.gangs(lab, neighbour)
        return {gang["spec"]["workload"]["name"]: gang["spec"]["size"] for gang in found}

    eventually(lambda: sizes() == {"one": 1, "two": 1}, what="each is a gang of its own")
    eventually(lambda: (lab.team.gang("train") or {}).get("spec", {}).get("size") == 2, what="the Job's has two pods")


def test_a_gang_larger_than_it_says_pays_for_all_of_it(lab: Lab) -> None:
    """Three pods that say to be two: the queue has two GPUs, so two of them start, and the third waits for its own."""
    bob = intruders.seen_by(lab, "bob")
    for name in ("one", "two", "three"):
        size = {names.GANG_SIZE: "2"}
        bob.create(workloads.pod(name, template="gpu", labels={names.GANG: "pair"}, annotations=size))
        lab.namespace.claim_of(name)
    intruders.wait_hold(lab, "pair", "QueueStopped")
    lab.stop_queue("None")

    lab.wait_used(gpus=(0, 2))
    pods = [lab.namespace.pod(name) for name in ("one", "two", "three")]
    (left,) = [pod["metadata"]["name"] for pod in pods if intruders.is_gated(pod)]
    holds_for(2, lambda: intruders.is_gated(lab.namespace.pod(left)), what="the third is not let in for nothing")
    assert lab.used(lab.meters[0]) == (0, 2)


def test_a_pod_joins_no_gang_of_another_queue(lab: Lab) -> None:
    """Within a namespace people can spoil each other's gangs, which do not start then; nobody gains by it."""
    other = intruders.another_queue(lab)
    lab.stop_queue("None")
    alice, pair, size = intruders.seen_by(lab, "alice"), {names.GANG: "pair"}, {names.GANG_SIZE: "2"}
    alice.create(workloads.pod("theirs", labels=pair | {names.QUEUE: other}, annotations=size))
    alice.create(workloads.pod("ours", labels=pair, annotations=size))

    hold = intruders.wait_hold(lab, "pair", "PolicyViolation")
    assert f"its pods name the queues {lab.team.queue}, {other}" in hold["message"]
    alice.client.delete(f"{alice.pods}/theirs")
    lab.client.delete(f"{teams.GROUP}/queues/{other}")
