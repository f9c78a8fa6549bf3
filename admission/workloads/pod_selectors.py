"""Selectors by which the API server lists the pods of a gang, for readers that watch no pods.

A gang is known by the owners of its pods, not by a label; but the controllers of the known kinds label the pods that
they make. What a selector finds is shown to people, and decides nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from admission.api.muster.gangs import GangReport
from admission.api.values import names
from admission.workloads import gang_key
from admission.workloads.kinds import jobset, kubeflow, leaderworkerset, podgroup, ray

JOB_UID = "batch.kubernetes.io/controller-uid"
"""Label of the pods of a batch Job: its UID (`pkg/controller/job`)."""


class PodSelector(NamedTuple):
    """A selector of pods in the gang's namespace. whole: False if it also finds pods of the workload's other gangs."""

    labels: str = ""
    fields: str = ""
    whole: bool = True


_NAME_LABELS: Mapping[tuple[str, str], str] = {
    ("jobset.x-k8s.io", "JobSet"): jobset.JOBSET_NAME,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): leaderworkerset.NAME,
    **{
        ("kubeflow.org", kind): kubeflow.JOB_NAME
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
    },
    ("ray.io", "RayCluster"): ray.CLUSTER_NAME,
    ("sparkoperator.k8s.io", "SparkApplication"): "sparkoperator.k8s.io/app-name",
    ("batch.volcano.sh", "Job"): "volcano.sh/job-name",
    ("scheduling.x-k8s.io", "PodGroup"): podgroup.COSCHEDULING_KEY,
    ("scheduling.run.ai", "PodGroup"): podgroup.KAI_KEY,
}
"""By API group and kind of a workload, the label of its pods that has its name."""


def selector(report: GangReport) -> PodSelector | None:
    """Return what selects the pods of a gang; None where its pods have no label that tells."""
    workload = report.workload
    if workload is None:
        return PodSelector(labels=f"{names.GANG}={report.name}")
    # A wave, an attempt, or a group of a workload is a gang of its own, with another name.
    whole = report.name == gang_key.unique_name(workload.name, workload.uid)
    group, _, _ = workload.api_version.rpartition("/")
    if (group, workload.kind) == ("batch", "Job"):
        return PodSelector(labels=f"{JOB_UID}={workload.uid}", whole=whole)
    if (group, workload.kind) == ("", "Pod"):
        return PodSelector(fields=f"metadata.name={workload.name}") if whole else None
    label = _NAME_LABELS.get((group, workload.kind))
    return PodSelector(labels=f"{label}={workload.name}", whole=whole) if label is not None else None
