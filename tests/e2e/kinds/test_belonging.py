"""Who belongs to a gang: by the labels of other schedulers, not by forged ones, and not where Muster may not look."""

import json
from contextlib import suppress

import pytest

from admission.api.values import names
from tests import standins
from tests.controlplane import workloads
from tests.controlplane.clients import ApiError
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually, holds_for
from tests.e2e.herds import Herd, named
from tests.e2e.kinds.parents import EARLY, a_job, jobs_and_sets, lws, mpi, training, wait_charged
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP
from tests.standins import an_object

pytestmark = pytest.mark.timeout(300)

KUEUE = "kueue.x-k8s.io/pod-group-"
YUNIKORN = "yunikorn.apache.org/"


def migrants() -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """The labels and annotations by which other systems know a pair."""
    groups = json.dumps([{"name": "a", "minMember": 2}])
    return {
        "kueue": ({f"{KUEUE}name": "pair"}, {f"{KUEUE}total-count": "2"}),
        "yunikorn": (
            {f"{YUNIKORN}app-id": "pair"},
            {f"{YUNIKORN}task-group-name": "a", f"{YUNIKORN}task-groups": groups},
        ),
        "volcano": ({}, {"scheduling.k8s.io/group-name": "pair"}),
        "coscheduling": ({"scheduling.x-k8s.io/pod-group": "pair"}, {}),
        "kai": ({}, {"pod-group-name": "pair"}),
    }


def test_who_comes_from_another_scheduler_is_the_gang_that_it_was(herd: Herd) -> None:
    groups = [herd.put(an_object(version, kind, "pair", minMember=2)) for version, kind in EARLY if kind == "PodGroup"]
    pods = {
        system: [
            workloads.pod(f"{system}-{number}", template="one", labels=labels, annotations=annotations)
            for number in range(2)
        ]
        for system, (labels, annotations) in migrants().items()
    }
    herd.all(one for one, _ in pods.values())
    eventually(lambda: herd.told("1 of 2 pods exist") == len(pods), what="all wait for their second pod")
    for group in groups:
        herd.wait_held("1 of 2 pods exist", of=group)
    assert all(pod["spec"].get("schedulingGates") for pod in herd.pods.values())

    herd.all(other for _, other in pods.values())
    for system in pods:
        herd.wait_running(f"{system}-0", f"{system}-1")
    other = {"metadata": {"labels": {f"{KUEUE}name": "other"}}}
    assert "queue, gang and claims are fixed when the pod" in herd.refusal(f"{herd.lab.namespace.pods}/kueue-0", other)
    herd.clear(*groups)


def test_nobody_joins_a_gang_by_what_he_writes_and_more_than_declared_are_charged(herd: Herd) -> None:
    path = herd.lab.namespace.pods
    group, lead, follow = lws(herd, "mine")
    (leader,) = lead()
    forged = standins.pod_of(herd.pod(leader), "forged", herd.template("Always"))
    del forged["metadata"]["ownerReferences"]
    forged["metadata"]["labels"] |= {
        f"{standins.LWS}name": "mine",
        f"{standins.LWS}group-index": "0",
        f"{standins.LWS}group-key": standins.group_key(herd.pod(leader)),
    }
    forged["metadata"]["annotations"] = {f"{standins.LWS}size": "1"}
    owned = standins.pod_of(group, "owned", herd.template("Always"))
    owned["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000"
    herd.put(forged)
    assert herd.wait_running("forged")["spec"]["workload"]["kind"] == "Pod"
    herd.wait_held("1 of 3 pods exist", leader, of=group)

    said = herd.refusal(f"{path}/{leader}", {"metadata": {"annotations": {f"{standins.LWS}size": "1"}}})
    assert "queue, gang and claims are fixed when the pod" in said

    # The garbage collector deletes what has an owner that does not exist; until then it waits.
    herd.put(owned)
    holds_for(1, lambda: is_gated_or_gone(herd, "owned"), what="it is not let in")
    herd.wait_running(leader, *follow())

    job, first, rest = training(herd, "many")
    more = standins.pod_of(job, "many-worker-9", herd.template())
    pods = [*first(), *named(herd.all([more])), *rest()]
    herd.wait_running(*pods)
    wait_charged(herd, 4)
    herd.clear(group, job, *jobs_and_sets(herd))


def is_gated_or_gone(herd: Herd, name: str) -> bool:
    pod = herd.pods.get(name)
    return pod is None or bool(pod["spec"].get("schedulingGates"))


def test_who_belongs_to_a_kind_that_muster_may_not_read_waits_for_the_right_and_nobody_else_does(
    herd: Herd, muster: Muster
) -> None:
    muster.end()
    with muster.deprived("mpijobs", "leaderworkersets"):
        muster.start()
        (job, work, launch), (group, lead, follow) = mpi(herd), lws(herd, "dark")
        distributed, served = [*launch(), *work()], [*lead(), *follow()]
        for parent, pods, asked, right in (
            (job, distributed, "mpi", "mpijobs of API group kubeflow.org"),
            (group, served, served[-1], "leaderworkersets of API group leaderworkerset.x-k8s.io"),
        ):
            told = f"grant verb list on resource {right} in the whole cluster"
            hold = herd.wait_held(told, *pods, of=parent)["status"]["hold"]
            assert hold["reason"] == "GangIncomplete"
            assert f"Muster cannot see objects of kind {parent['kind']}." in hold["message"]
            assert told in muster.command("why", f"{herd.lab.namespace.name}/{asked}")

        seen, first, rest = training(herd, "seen")
        herd.wait_running(*first(), *rest())
        plain = a_job(herd, "plain", 2)
        herd.wait_running(*herd.pods_of(plain, 2))
        left = left_to_its_gates(herd)
        assert all(herd.pods[name]["spec"].get("schedulingGates") for name in (*distributed, *served))
        assert any("mpijobs" in line for line in muster.refusals), "clean() would not see it where it should not be"

    herd.wait_running(*distributed)
    herd.wait_running(*served)
    eventually(lambda: not herd.told("cannot see") + herd.told("none of its"), what="nobody is told of what is granted")
    herd.clear(job, group, seen, plain, left, *jobs_and_sets(herd))


def left_to_its_gates(herd: Herd) -> Manifest:
    """See that a workload that Muster may not read is not held as a whole in a queue that holds others so."""
    path = f"{GROUP}/queues/{herd.lab.team.queue}"
    herd.lab.client.merge_patch(path, {"spec": {"holdAt": "Workload"}})
    dry = an_object("batch/v1", "Job", "dry", template=herd.template())

    def is_suspended() -> bool:
        # A Job that is made just as the queue changes is refused, with the advice to create it again.
        with suppress(ApiError):
            return bool(herd.lab.client.create(f"{herd.lab.team.jobs}?dryRun=All", dry)["spec"].get("suspend"))
        return False

    eventually(is_suspended, what="Jobs are held as a whole")
    left, _, _ = mpi(herd, "left")
    assert "suspend" not in left["spec"].get("runPolicy", {})
    assert names.HELD not in left["metadata"].get("annotations", {})
    herd.lab.client.merge_patch(path, {"spec": {"holdAt": "Pod"}})
    return left
