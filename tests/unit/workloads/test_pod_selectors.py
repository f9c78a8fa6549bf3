"""What the API server is asked for the pods of a gang, by what makes them."""

import pytest

from admission.api.kubernetes.meta import Owner
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.names import GangUid, QueueName, Uid
from admission.workloads import gang_key, pod_selectors
from admission.workloads.pod_selectors import PodSelector

WHOLE = gang_key.unique_name("train", "uid")

CASES: dict[str, tuple[str, str, str, PodSelector | None]] = {
    "a Job labels its pods with its UID": (
        "batch/v1",
        "Job",
        WHOLE,
        PodSelector(labels="batch.kubernetes.io/controller-uid=uid"),
    ),
    "a pod alone is found by name": ("v1", "Pod", WHOLE, PodSelector(fields="metadata.name=train")),
    "executors are no pods of their driver's name": ("v1", "Pod", "train-executors-abcde", None),
    "other workloads label their pods with their name": (
        "kubeflow.org/v1",
        "PyTorchJob",
        WHOLE,
        PodSelector(labels="training.kubeflow.org/job-name=train"),
    ),
    "a wave is a part of a JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        "train-workers-abcde",
        PodSelector(labels="jobset.sigs.k8s.io/jobset-name=train", whole=False),
    ),
    "a group of Kubernetes is named in a field of pods": ("scheduling.k8s.io/v1beta1", "PodGroup", WHOLE, None),
    "pods name their gang": ("", "", "mine", PodSelector(labels="muster.dev/gang=mine")),
}


@pytest.mark.parametrize(("version", "kind", "name", "expected"), CASES.values(), ids=CASES)
def test_a_gangs_pods_are_selected_by_what_its_workload_writes_on_them(
    version: str, kind: str, name: str, expected: PodSelector | None
) -> None:
    workload = Owner(api_version=version, kind=kind, name="train", uid=Uid("uid")) if kind else None
    report = GangReport(
        uid=GangUid("uid"),
        namespace="ns",
        name=name,
        queue=QueueName("q"),
        size=1,
        phase=Phase.PENDING,
        workload=workload,
    )

    assert pod_selectors.selector(report) == expected
