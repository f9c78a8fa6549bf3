"""`muster simulate` heeds what pods demand of each other, as the controller does."""

from typing import Any

import pytest

from admission.api.values.decoding import Json
from admission.api.values.reasons import HoldReason
from tests.unit.simulation.simulated import RACK, Objects, fates, in_rack, job, of, simulate, teams

IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


HARDWARE = [*in_rack("r1", "a", 4), *in_rack("r1", "b", 4), *in_rack("r2", "c", 4)]


def ruled(name: str, *, pods: int, app: str, avoids: str, **more: Any) -> Objects:
    template, made = job(name, pods=pods, gpus=1, **more)
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": avoids}}}
    pod = made["spec"]["template"]
    pod["metadata"] = {"labels": {"app": app}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    return [template, made]


def exclusive_jobs(jobs: int, pods: int = 2, gpus: int = 1) -> Objects:
    """Return a JobSet whose Jobs want a rack each."""
    template, made = job("part", pods=pods, gpus=gpus)
    metadata = {
        "name": "train",
        "annotations": {EXCLUSIVE: RACK},
    }
    spec = {"replicatedJobs": [{"name": "part", "replicas": jobs, "template": {"spec": made["spec"]}}]}
    return [
        template,
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec},
    ]


def test_exclusive_jobs_of_a_jobset_begin_in_a_rack_each() -> None:
    gang = of(simulate(teams(), HARDWARE, exclusive_jobs(2)), "train")

    assert sorted({"a": "r1", "b": "r1", "c": "r2"}[pod.node] for pod in gang.plan) == ["r1", "r2"]


def test_more_exclusive_jobs_than_racks_are_told_the_rule() -> None:
    gang = of(simulate(teams(), HARDWARE, exclusive_jobs(3)), "train")

    assert gang.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert f"the domains of {RACK} have places for 2 of 3 subgroups like part-0 (2 pods)" in gang.message
    assert f"alone in one (annotation {EXCLUSIVE}), even if nothing else were in use" in gang.message


def test_a_job_whose_racks_other_exclusive_jobs_have_is_told_the_annotation() -> None:
    first, second = exclusive_jobs(2), exclusive_jobs(1)[1]
    second["metadata"] = {**second["metadata"], "name": "again"}
    gang = of(simulate(teams(), HARDWARE, first, [second]), "again")

    assert gang.reason == HoldReason.DEVICES_BUSY
    assert f"by annotation {EXCLUSIVE} on {RACK}" in gang.message
    assert "podAntiAffinity" not in gang.message


@pytest.mark.parametrize(("policy", "verdict"), [("Honor", "Admitted"), ("Ignore", "Held")])
def test_pods_that_follow_into_a_rack_are_spread_over_its_nodes_alone(policy: str, verdict: str) -> None:
    """JobSet binds them to the rack by a node selector, so that kube-scheduler counts no other node.

    If node selectors are ignored, the node of the other rack, which they may not use, has none of them.
    """
    template, jobset = exclusive_jobs(1, pods=4)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"labels": {"app": "train"}}
    constraint = {
        "topologyKey": HOSTNAME,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": policy,
        "labelSelector": {"matchLabels": {"app": "train"}},
    }
    pod["spec"]["topologySpreadConstraints"] = [constraint]
    hardware = [*in_rack("r1", "a", 4), *in_rack("r1", "b", 4), *in_rack("r2", "c", 1)]
    for node in hardware[::2]:
        node["metadata"]["labels"][HOSTNAME] = node["metadata"]["name"]

    gang = of(simulate(teams(), hardware, [template, jobset]), "train")

    assert gang.verdict == verdict, gang.message


def test_a_job_that_would_fill_a_rack_with_those_that_follow_waits_for_devices_in_use() -> None:
    outcome = simulate(teams(quota=20), HARDWARE, job("other", pods=5, gpus=2), exclusive_jobs(1, pods=5))

    assert fates(outcome) == {"other": "Admitted", "train": HoldReason.DEVICES_BUSY}


NODES_OF_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"


def for_job(nodes: Objects, name: str) -> Objects:
    """Return the nodes as they are given to a Job: with its label, and a taint that keeps all others off."""
    labelled = [one for one in nodes if one["kind"] == "Node"]
    for node in labelled:
        node["metadata"] = {**node["metadata"], "labels": {**node["metadata"]["labels"], NODES_OF_JOB: name}}
        taint = {"key": "alpha.jobset.sigs.k8s.io/no-schedule", "value": "true", "effect": "NoSchedule"}
        node["spec"] = {"taints": [taint]}
    return nodes


def test_the_pods_of_an_exclusive_job_ask_for_the_nodes_that_were_labelled_for_it() -> None:
    template, jobset = exclusive_jobs(2)
    jobset["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = "true"
    of_first = for_job(in_rack("r1", "a", 4), "default_train-part-0")
    of_second = for_job(in_rack("r1", "b", 4), "default_train-part-1")

    gang = of(simulate(teams(), of_first, of_second, [template, jobset]), "train")
    held = of(simulate(teams(), of_first, in_rack("r1", "b", 4), [template, jobset]), "train")

    assert sorted((pod.pod.removeprefix("default/train-part-"), pod.node) for pod in gang.plan) == [
        *(("0", "a"), ("1", "a")),
        *(("2", "b"), ("3", "b")),
    ]
    assert f"does not have label {NODES_OF_JOB}=default_train-part-1" in held.message


CACHE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "cache", "labels": {"app": "cache"}},
    "spec": {"containers": [{"name": "main", "image": "cache"}], "nodeName": "a"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(("app", "jobs", "verdict"), [("cache", 1, "Held"), ("train", 2, "Admitted")])
def test_affinity_beside_that_of_an_exclusive_job_is_met_by_pods_that_meet_both(
    app: str, jobs: int, verdict: str
) -> None:
    """kube-scheduler counts those pods alone that all terms are about: a pod of another workload is in no Job of this.

    So the first pod of each Job is the first of its group, and may go anywhere if its terms are about itself.
    """
    template, jobset = exclusive_jobs(jobs)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pod["metadata"] = {"labels": {"app": "train"}}
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": app}}}
    pod["spec"]["affinity"] = {"podAffinity": {REQUIRED: [term]}}
    gang = of(simulate(teams(), HARDWARE, [CACHE], [template, jobset]), "train")

    assert gang.verdict == verdict
    assert verdict == "Admitted" or f"annotation {EXCLUSIVE} beside podAffinity on {RACK}" in gang.message


def test_a_first_pod_gets_a_rack_that_takes_its_whole_job() -> None:
    """Of r2, the smallest rack, the other pod of the Job would never get out, as JobSet pins it there."""
    racks = [*HARDWARE, *in_rack("r3", "d", 4), *in_rack("r3", "e", 4)]
    gang = of(simulate(teams(quota=8), racks, exclusive_jobs(2, gpus=4)), "train")

    assert {pod.node for pod in gang.plan} <= {"a", "b", "d", "e"}
    assert len(gang.plan) == 2
    assert gang.charges == {"gpus": 8}, "those that follow are charged when they come"
    assert gang.not_simulated == ()


@pytest.mark.parametrize(
    ("quota", "order", "never"),
    [
        (4, {}, []),
        (
            3,
            {},
            ["followers of part never fit: QuotaExceeded: queue team has 3 gpus left (nominal 3, used 0), the gang"],
        ),
        (
            7,
            IN_ORDER,
            ["followers of rest never fit beside part: QuotaExceeded: queue team has 7 gpus left (nominal 7"],
        ),
    ],
    ids=["all of it", "less than the first pods and those that follow", "less than all that has to be ready"],
)
def test_the_quota_of_pods_that_follow_is_asked_for_with_that_of_the_first_ones(
    quota: int, order: Json, never: list[str]
) -> None:
    jobset = exclusive_jobs(1, pods=4)[1]
    if order:
        part = jobset["spec"]["replicatedJobs"][0]
        jobset["spec"] = {"replicatedJobs": [part, {**part, "name": "rest"}], **order}

    gang = of(simulate(teams(quota=quota), HARDWARE, exclusive_jobs(1)[:1], [jobset]), "train")

    assert (gang.verdict, gang.charges) == ("Admitted", {"gpus": 1})
    assert [text.startswith(f"may start, but its {why}") for text in gang.later for why in never] == [True] * len(never)
    assert len(gang.later) == len(never)


def test_pods_that_find_no_place_behind_the_first_one_of_their_job_are_named() -> None:
    gang = of(simulate(teams(quota=99), HARDWARE, exclusive_jobs(1, pods=4, gpus=3)), "train")

    assert gang.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert gang.message.startswith(
        f"none of 2 domains of {RACK} takes subgroup part-0 as a whole, 4 pods; r1 comes nearest, with places for 2:"
    )
    assert "pod train-part-0 (follower 2) needs 3 devices" in gang.message
    assert "train-part-0 (follower 1) took 3" in gang.message


def test_a_gang_waits_for_one_that_it_may_not_be_beside() -> None:
    everywhere = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    first, second = ruled("first", pods=2, app="x", avoids="x"), ruled("second", pods=1, app="y", avoids="nobody")
    affinity = first[1]["spec"]["template"]["spec"]["affinity"]
    affinity["podAntiAffinity"][REQUIRED][0]["labelSelector"] = everywhere
    objects = (teams(), HARDWARE, first, second)
    now, later = simulate(*objects), simulate(*objects, until_empty=True)

    assert fates(now) == {"first": "Admitted", "second": HoldReason.DEVICES_BUSY}
    assert f"podAntiAffinity of other pods on {RACK}" in of(now, "second").message
    assert fates(later) == {"first": "Admitted", "second": "Admitted"}
