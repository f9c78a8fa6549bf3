"""`muster simulate` heeds what pods demand of each other, as the controller does."""

from typing import Any

from admission.api.values.reasons import HoldReason
from tests.unit.simulation.test_offline import Objects, fates, job, node, of, simulate, teams

RACK = "example.com/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def in_rack(rack: str, name: str, gpus: int) -> Objects:
    made, *rest = node(name, gpus)
    return [{**made, "metadata": {"name": name, "labels": {RACK: rack}}}, *rest]


HARDWARE = [*in_rack("r1", "a", 4), *in_rack("r1", "b", 4), *in_rack("r2", "c", 4)]


def ruled(name: str, *, pods: int, app: str, avoids: str, **more: Any) -> Objects:
    template, made = job(name, pods=pods, gpus=1, **more)
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": avoids}}}
    pod = made["spec"]["template"]
    pod["metadata"] = {"labels": {"app": app}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    return [template, made]


def exclusive_jobs(jobs: int) -> Objects:
    """Return a JobSet whose Jobs want a rack each; each of its pods takes a GPU."""
    template, made = job("part", pods=2, gpus=1)
    metadata = {
        "name": "train",
        "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK},
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
    assert f"podAntiAffinity on {RACK}" in gang.message


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
