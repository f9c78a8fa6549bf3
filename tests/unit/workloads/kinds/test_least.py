"""How many pods are enough to start: by `muster.dev/gang-min`, by a Gang that a user wrote, by what makes the pods."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import gangs
from admission.api.values import names
from admission.workloads import gangs as workloads_gangs
from admission.workloads.gang_key import UNKNOWN_SIZE
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod

FEW = {"metadata": {**TEMPLATE["metadata"], "annotations": {names.GANG_MIN: "3"}}, "spec": TEMPLATE["spec"]}


def a_job(*, succeeded: int = 0) -> Herd:
    herd = Herd()
    spec = {"parallelism": 4, "completions": 4, "template": FEW}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    herd.all(standins.job_pods(herd.put(job, succeeded=succeeded)))
    return herd


def training(template: Manifest, replicas: int = 4, **spec: Any) -> Herd:
    herd = Herd()
    of_role = {"Worker": {"replicas": replicas, "template": template}}
    job = herd.put(an_object("kubeflow.org/v1", "PyTorchJob", "train", pytorchReplicaSpecs=of_role, **spec))
    herd.all(standins.replica_pods(job, "pytorchReplicaSpecs"))
    return herd


def named(**annotations: str) -> Herd:
    herd = Herd()
    herd.put(a_pod("a", labels={names.GANG: "g"}, **annotations))
    return herd


LEAST: dict[str, Any] = {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}

CASES = {
    "a Job": (a_job(), (4, 3, True)),
    "a Job of which fewer are left": (a_job(succeeded=2), (4, 2, True)),
    "a training job": (training(FEW), (4, 3, True)),
    "a training job that says another number itself": (training(FEW, **LEAST), (4, 3, True)),
    "a training job's own number": (training(TEMPLATE, **LEAST), (4, 2, True)),
    "more than there are": (training(FEW, replicas=2), (2, 2, False)),
    "as many as there are": (training(FEW, replicas=3), (3, 3, False)),
    "a named gang": (named(**{names.GANG_SIZE: "4", names.GANG_MIN: "3"}), (4, 3, True)),
    "a named gang without a size": (named(**{names.GANG_MIN: "3"}), (0, UNKNOWN_SIZE, False)),
    "a number that is none": (named(**{names.GANG_SIZE: "4", names.GANG_MIN: "3.5"}), (4, 4, False)),
    "nothing is said": (named(**{names.GANG_SIZE: "4"}), (4, 4, False)),
}


@pytest.mark.parametrize(("herd", "expected"), CASES.values(), ids=CASES)
def test_a_gang_needs_the_expected_least_number_of_pods(herd: Herd, expected: tuple[int, int, bool]) -> None:
    identity = herd.gang.identity
    assert (identity.size, identity.needed, identity.elastic) == expected


@pytest.mark.parametrize(("annotations", "needed"), [({}, 2), ({names.GANG_MIN: "3"}, 3)])
def test_the_least_size_in_a_gang_object_counts_where_the_pods_state_none(
    annotations: dict[str, str], needed: int
) -> None:
    spec = {"queue": "q", "size": 4, "minCount": 2}
    gang = gangs.decode({"metadata": {"name": "g", "namespace": "team"}, "spec": spec})
    snapshot = replace(named(**annotations).snapshot, gangs={gang.meta.key: gang})

    (found,) = workloads_gangs.groups(snapshot, {})

    assert (found.identity.size, found.identity.needed) == (4, needed)
    assert found.identity.size_source.startswith(
        "muster.dev/gang-min" if annotations else "spec.minCount of Gang team/g"
    )
