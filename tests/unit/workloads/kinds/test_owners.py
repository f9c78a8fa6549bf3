"""Who a pod belongs to is proved by UIDs: forged owners, lost ones, and circles of them."""

from admission.api.values import names
from admission.workloads.gang_key import UNKNOWN_SIZE
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod


def a_job(name: str, pods: int, **meta: object) -> Manifest:
    spec = {"parallelism": pods, "completions": pods, "template": TEMPLATE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **meta}, "spec": spec}


def owned(pod: Manifest, *parents: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [standins.owner(one) for one in parents]}}


def test_the_pods_of_workflows_and_deployments_start_one_by_one() -> None:
    herd = Herd()
    workflow = an_object("argoproj.io/v1alpha1", "Workflow", "w")
    workflow["metadata"]["uid"] = "w"
    replica_set = an_object("apps/v1", "ReplicaSet", "web-1")
    replica_set["metadata"]["uid"] = "rs"
    for name, parent in (("w-1", workflow), ("w-2", workflow), ("web-1-a", replica_set)):
        herd.put(owned(a_pod(name), parent))

    assert sorted(herd.reported.values()) == [(1, 1)] * 3


def test_an_owner_in_another_namespace_is_none() -> None:
    """Anyone may write a UID into a pod; that of a Job elsewhere must not hold up or join its gang."""
    herd = Herd()
    job = herd.put(a_job("train", 2))
    herd.all(standins.job_pods(job))
    thief = owned(a_pod("thief"), job)
    thief["metadata"]["namespace"] = "elsewhere"
    herd.put(thief)

    theirs, own = sorted(herd.gangs, key=lambda group: len(group.pods), reverse=True)

    assert (theirs.uid, len(theirs.pods)) == (job["metadata"]["uid"], 2)
    assert (own.identity.namespace, own.identity.needed) == ("elsewhere", 1)


def test_a_group_larger_than_declared_is_one_gang_with_all_of_its_pods() -> None:
    """Whoever comes beside those that were declared is planned and charged with them."""
    herd = Herd()
    job = herd.put(a_job("train", 2))
    herd.all([*standins.job_pods(job), owned(a_pod("more"), job)])

    assert herd.reported == {("more", "train-0", "train-1"): (2, 2)}


def test_owners_that_go_round_in_a_circle_hold_their_pods() -> None:
    herd = Herd()
    one = an_object("apps/v1", "StatefulSet", "one")
    two = an_object("apps/v1", "StatefulSet", "two")
    one["metadata"]["uid"], two["metadata"]["uid"] = "1", "2"
    herd.put(owned(one, two) | {"spec": {}})
    herd.put(owned(two, one) | {"spec": {}})
    herd.put(owned(a_pod("a"), one))

    assert "circle or on and on (StatefulSet one → StatefulSet two → StatefulSet one)" in herd.gang.identity.unknown
    assert herd.gang.identity.needed == UNKNOWN_SIZE


def test_a_pod_that_names_itself_as_its_owner_waits() -> None:
    herd = Herd()
    pod = a_pod("a")
    pod["metadata"]["uid"] = "a"
    herd.put(owned(pod, pod))

    assert herd.gang.identity.needed == UNKNOWN_SIZE


def test_a_gang_that_is_named_goes_before_all_owners() -> None:
    herd = Herd()
    job = herd.put(a_job("train", 2))
    herd.all([standins.labelled(pod, {names.GANG: "all"}) for pod in standins.job_pods(job)])

    assert herd.gang.uid == "team/all"


def test_a_gang_whose_owner_kind_is_not_watched_says_why() -> None:
    herd = Herd()
    herd.unwatched["JobSet.jobset.x-k8s.io"] = "list jobsets: forbidden (403); grant verb list on resource jobsets"
    jobset = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "train")
    jobset["metadata"]["uid"] = "js"
    for name in ("train-a-0", "train-a-1"):
        job = herd.put(owned(a_job(name, 1), jobset))
        herd.all(standins.job_pods(job))

    identity = herd.gang.identity
    assert "cannot see objects of kind JobSet.jobset.x-k8s.io: list jobsets: forbidden" in identity.unknown
    assert identity.workload is not None
    assert (identity.workload.kind, identity.workload.name, identity.uid) == ("JobSet", "train", "js"), (
        "not a Job of it"
    )
