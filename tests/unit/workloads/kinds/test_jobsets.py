"""The pods of a JobSet: all at once, one ReplicatedJob after the other, and again after a restart."""

import hashlib
from typing import Any

import pytest

from admission.api.kubernetes import pods as api_pods
from admission.api.kubernetes.meta import Owner
from admission.api.values.names import Uid
from admission.workloads import suspendable, topology
from admission.workloads.kinds import catalog, jobset as jobset_kind
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd

GROUP = "jobset.x-k8s.io/v1alpha2"


def entry(name: str, replicas: int, pods: int, **more: Any) -> Manifest:
    spec = {"parallelism": pods, "completions": pods, "template": TEMPLATE}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def with_labels(made: Manifest, labels: dict[str, str]) -> Manifest:
    """Return an entry whose pods have labels."""
    spec = made["template"]["spec"]
    return {**made, "template": {"spec": {**spec, "template": {**TEMPLATE, "metadata": {"labels": labels}}}}}


def run(herd: Herd, jobset: Manifest, *replicated: str, restarts: int = 0) -> list[Manifest]:
    jobs = herd.all(standins.jobset_jobs(jobset, *replicated, restarts=restarts))
    return [pod for job in jobs for pod in herd.all(standins.job_pods(job))]


def test_all_jobs_of_a_jobset_are_one_gang() -> None:
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 1), entry("b", 2, 3)]))
    run(herd, jobset)

    group = herd.gang

    assert (group.identity.size, group.identity.needed, len(group.waiting)) == (7, 7, 7)
    assert (group.uid, group.identity.workload and group.identity.workload.kind) == (
        jobset["metadata"]["uid"],
        "JobSet",
    )
    assert group.identity.size_source == "spec.replicatedJobs of JobSet train"


def test_jobs_of_a_jobset_that_starts_in_order_are_successive_gangs() -> None:
    """The second Job is made when the first is ready: who waited for both would wait for ever."""
    herd = Herd()
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("driver", 1, 1), entry("workers", 2, 2)])
    jobset["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    jobset = herd.put(jobset)

    run(herd, jobset, "driver")
    assert herd.reported == {("train-driver-0-0",): (1, 1)}

    run(herd, jobset, "workers")
    assert sorted(herd.reported.values()) == [(1, 1), (4, 4)]
    assert len({group.uid for group in herd.gangs}) == len({group.key for group in herd.gangs}) == 2


def test_jobs_with_the_same_dependencies_are_one_gang() -> None:
    """As of a TrainJob: what prepares the data is complete before the trainer's Jobs are made."""
    herd = Herd()
    after = {"dependsOn": [{"name": "prepare", "status": "Complete"}]}
    entries = [entry("prepare", 1, 1), entry("left", 1, 2, **after), entry("right", 1, 2, **after)]
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=entries))

    run(herd, jobset)

    assert sorted(herd.reported.values()) == [(1, 1), (4, 4)]


def test_a_restart_is_another_gang() -> None:
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 2)]))
    first = run(herd, jobset)
    before = herd.gang
    for pod in first:
        herd.take(pod)
    run(herd, jobset, restarts=1)

    after = herd.gang

    assert before.uid != after.uid
    assert before.key != after.key
    assert (after.identity.needed, after.identity.name.startswith("train-restart-1-")) == (2, True)


def test_a_restart_that_a_pod_claims_by_its_label_is_none() -> None:
    """What counts is the label of the Job, which its owner's controller writes."""
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 2)]))
    for job in herd.all(standins.jobset_jobs(jobset)):
        one, two = standins.job_pods(job)
        herd.put(one)
        two["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "7"
        herd.put(two)

    assert len(herd.gang.pods) == 2


def test_pods_that_have_succeeded_need_not_come_again() -> None:
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 2)]))
    (job,) = herd.all(standins.jobset_jobs(jobset))
    done, again = standins.job_pods(job)
    herd.put(done, phase="Succeeded")
    herd.put(again)

    group = herd.gang

    assert (len(group.waiting), len(group.ended), group.identity.needed, group.identity.counts_ended) == (1, 1, 2, True)


def test_a_job_with_more_completions_than_parallelism_needs_as_many_pods_as_run_at_a_time() -> None:
    herd = Herd()
    several = entry("a", 1, 4)
    several["template"]["spec"]["completions"] = 10
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[several]))
    needed = []
    for number in range(9):
        (job,) = standins.jobset_jobs(jobset)
        job["metadata"]["uid"] = "job"
        done, *others = standins.job_pods(herd.put(job))
        for at, pod in enumerate(others):
            pod["metadata"] |= {"name": f"left-{at}", "uid": f"left-{at}"}
            herd.put(pod)
        needed.append(herd.gang.still_needed)
        done["metadata"] |= {"name": f"done-{number}", "uid": f"done-{number}"}
        herd.put(done, phase="Succeeded")

    assert needed == [4, 4, 4, 4, 4, 4, 4, 3, 2]


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
BY_NODES = {**EXCLUSIVE, "alpha.jobset.sigs.k8s.io/node-selector": "true"}


def exclusive(herd: Herd, of_set: dict[str, str], of_jobs: dict[str, str]) -> list[Manifest]:
    """Put a JobSet of two Jobs of three pods and one of one; return the first pod of each Job, and then the others."""
    entries = [entry("a", 2, 3), entry("b", 1, 1)]
    entries[0]["template"]["metadata"] = {"annotations": of_jobs}
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=entries)
    jobset["metadata"]["annotations"] = of_set
    pods = [pod for job in herd.all(standins.jobset_jobs(herd.put(jobset))) for pod in standins.job_pods(job)]
    for pod in pods:
        index = pod["metadata"]["name"].rpartition("-")[2]
        pod["metadata"].setdefault("annotations", {})["batch.kubernetes.io/job-completion-index"] = index
    return sorted(pods, key=lambda pod: not pod["metadata"]["name"].endswith("-0"))


@pytest.mark.parametrize(("of_set", "of_jobs"), [(EXCLUSIVE, {}), ({}, EXCLUSIVE)])
def test_pods_of_a_job_that_follow_its_first_scheduled_pod_are_a_gang_of_their_own(
    of_set: dict[str, str], of_jobs: dict[str, str]
) -> None:
    herd = Herd()
    pods = exclusive(herd, of_set, of_jobs)
    herd.all(pods[:3])
    assert sorted(herd.reported.values()) == [(3, 3)]

    herd.all(pods[3:])
    assert sorted(herd.reported.values()) == [(3, 3), (4, 4)]
    assert len({group.key for group in herd.gangs}) == 2


def test_nodes_that_are_labelled_beforehand_let_all_pods_come_at_once() -> None:
    herd = Herd()
    herd.all(exclusive(herd, BY_NODES, {}))

    assert sorted(herd.reported.values()) == [(7, 7)]


def test_finished_jobs_of_a_jobset_of_two_gangs_are_known_from_their_pods_only() -> None:
    herd = Herd()
    first, *others = exclusive(herd, EXCLUSIVE, {})
    herd.put(first, phase="Succeeded")
    herd.all(others)

    assert sorted(group.still_needed for group in herd.gangs) == [2, 4]


def test_the_expected_pods_of_a_held_jobset_are_the_first_pods_of_each_job() -> None:
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 2, 3), entry("b", 1, 1)])
    jobset["metadata"] |= {"uid": "train", "annotations": EXCLUSIVE}

    assert [one.pods for one in suspendable.BY_KEY["JobSet.jobset.x-k8s.io"].templates(jobset)] == [2, 1]


def test_pods_of_a_jobset_that_is_not_seen_wait_with_that_reason() -> None:
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 2)]))
    run(herd, jobset)
    herd.take(jobset)

    assert "JobSet train, which the pods belong to, is not seen yet; if it was deleted" in herd.gang.identity.unknown


def test_a_job_that_only_claims_by_label_to_be_of_a_jobset_is_its_own_gang() -> None:
    herd = Herd()
    jobset = herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 1, 2)]))
    run(herd, jobset)
    (thief,) = standins.jobset_jobs(jobset, "a")
    thief["metadata"]["name"] = "thief"
    del thief["metadata"]["ownerReferences"]
    herd.all(standins.job_pods(herd.put(thief)))

    assert sorted(herd.reported.values()) == [(2, 2), (2, 2)]


def test_a_replicated_job_of_which_no_number_is_said_is_made_once() -> None:
    herd = Herd()
    alone = {key: value for key, value in entry("a", 1, 2).items() if key != "replicas"}
    herd.put(an_object(GROUP, "JobSet", "train", replicatedJobs=[alone]))

    (jobset,) = herd.snapshot.parents["JobSet.jobset.x-k8s.io"].values()

    assert jobset.waves[""].pods == 2


DONE: dict[str, tuple[dict[str, int], list[tuple[str, int]]]] = {
    "nothing has succeeded": ({}, [("train-first", 2)]),
    "a Job of the first wave is left": ({"first": 0}, [("train-first", 2)]),
    "the first wave has succeeded": ({"first": 1}, [("train-second", 6)]),
    "and some of the second": ({"first": 1, "second": 2}, [("train-second", 2)]),
    "all have succeeded": ({"first": 1, "second": 3}, []),
}


@pytest.mark.parametrize(("done", "planned"), DONE.values(), ids=DONE)
def test_the_next_expected_pods_of_a_jobset_that_starts_in_order(
    done: dict[str, int], planned: list[tuple[str, int]]
) -> None:
    first = {key: value for key, value in entry("first", 1, 2).items() if key != "replicas"}
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=[first, entry("second", 3, 2)])
    jobset["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    statuses = [{"name": name, "succeeded": count} for name, count in done.items()]

    templates = suspendable.BY_KEY["JobSet.jobset.x-k8s.io"].templates(
        {**jobset, "status": {"replicatedJobsStatus": statuses, "restarts": 1}}
    )

    assert [(one.name, one.pods) for one in templates] == planned


def test_the_first_pods_of_exclusive_jobs_get_the_affinity_that_the_webhook_of_jobset_writes() -> None:
    """As `setExclusiveAffinities` does: with the pods of their own Job, and none of another one."""
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=[entry("a", 2, 3)])
    jobset["metadata"]["annotations"] = EXCLUSIVE
    (template,) = suspendable.BY_KEY["JobSet.jobset.x-k8s.io"].templates(jobset)
    owner = Owner(api_version="v1", kind="JobSet", name="train", uid=Uid("u"), controller=True)
    made = [
        api_pods.decode(
            suspendable.pod_body(
                template, at, owner=owner, namespace="team", uid=Uid(f"p-{at}"), created="2026-11-21T12:00:00Z"
            )
        )
        for at in range(2)
    ]

    keys = [pod.meta.labels[jobset_kind.JOB_KEY] for pod in made]
    assert keys == [hashlib.sha1(f"team/train-a-{at}".encode()).hexdigest() for at in range(2)]  # noqa: S324
    for pod, own, other in zip(made, keys, reversed(keys), strict=True):
        (wanted,), (unwanted,) = pod.rules.affinity, pod.rules.anti_affinity
        assert wanted.topology_key == unwanted.topology_key == "rack"
        assert [wanted.matches("other", {jobset_kind.JOB_KEY: key}, {}) for key in (own, other)] == [True, False]
        assert [unwanted.matches("other", {jobset_kind.JOB_KEY: key}, {}) for key in (own, other)] == [False, True]
        assert not unwanted.matches("team", {}, {})


def test_jobs_that_are_alone_in_a_domain_are_subgroups_with_the_pods_that_follow() -> None:
    herd = Herd()
    herd.all([with_affinity(pod) for pod in exclusive(herd, EXCLUSIVE, {})[:3]])

    found = topology.request(herd.gang)

    assert found is not None
    assert {name: (own.exclusive, own.followers) for name, own in found.subgroups} == {
        "a-0": ("rack", 2),
        "a-1": ("rack", 2),
        "b-0": ("rack", 0),
    }
    assert not found.is_required, "nobody asks Muster for a domain, which placement Count would refuse"


IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def after(name: str, status: str) -> Manifest:
    return {"dependsOn": [{"name": name, "status": status}]}


BESIDE: dict[str, tuple[list[Manifest], Manifest, list[tuple[str, str, int]]]] = {
    "in order: all that came before": (
        [entry("a", 1, 1), entry("b", 2, 1), entry("c", 4, 1)],
        IN_ORDER,
        [("b", "", 2), ("b", "a", 3), ("c", "", 4), ("c", "a b", 7)],
    ),
    "some of which have ended": (
        [entry("done", 1, 1), entry("b", 2, 1), entry("c", 4, 1)],
        IN_ORDER,
        [("b", "", 2), ("b", "done", 2), ("c", "", 4), ("c", "done b", 6)],
    ),
    "what has to be ready, and what that waited for": (
        [entry("a", 1, 1), entry("b", 2, 1, **after("a", "Ready")), entry("c", 4, 1, **after("b", "Ready"))],
        {},
        [("b", "", 2), ("b", "a", 3), ("c", "", 4), ("c", "a b", 7)],
    ),
    "not what has to end, nor what that waited for": (
        [entry("a", 1, 1), entry("b", 2, 1, **after("a", "Ready")), entry("c", 4, 1, **after("b", "Complete"))],
        {},
        [("b", "", 2), ("b", "a", 3), ("c", "", 4)],
    ),
    "nothing for what has ended itself": ([entry("a", 1, 1), entry("done", 1, 1)], IN_ORDER, []),
    "not what is in another queue": (
        [entry("a", 1, 1), with_labels(entry("b", 2, 1), {"muster.dev/queue": "other"})],
        IN_ORDER,
        [("b", "", 2)],
    ),
    "not what says how large its gang is": (
        [with_labels(entry("a", 1, 1), {"muster.dev/gang-size": "1"}), entry("b", 2, 1)],
        IN_ORDER,
        [("b", "", 2)],
    ),
}


@pytest.mark.parametrize(("entries", "spec", "later"), BESIDE.values(), ids=BESIDE)
def test_a_wave_is_looked_at_alone_and_beside_what_runs_on(
    entries: list[Manifest], spec: Manifest, later: list[tuple[str, str, int]]
) -> None:
    jobset = an_object(GROUP, "JobSet", "train", replicatedJobs=entries, **spec)
    jobset["status"] = {"replicatedJobsStatus": [{"name": "done", "succeeded": 1}]}

    found = catalog.BY_GROUP["jobset.x-k8s.io", "JobSet"].decode(jobset).later

    assert [
        (" ".join(wave.roles), " ".join(wave.running_roles), sum(template.pods for template in wave.templates))
        for wave in found
    ] == later


def with_affinity(pod: Manifest) -> Manifest:
    """Return the first pod of a Job as JobSet's webhook completes it."""
    key = pod["metadata"]["labels"][jobset_kind.JOB_KEY]
    return {**pod, "spec": {**pod["spec"], "affinity": jobset_kind.exclusive_affinity("rack", key)}}
