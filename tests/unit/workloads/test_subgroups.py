"""Which part of its gang a pod is in, by its own word and by those of the systems that make it."""

import pytest

from admission.api.kubernetes import pods
from admission.workloads import gangs

JOBSET = {"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "3"}
RAY = {"ray.io/group": "gpus", "ray.io/cluster": "c"}

SAID: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "nothing": ({}, {}, ""),
    "its own word": ({"muster.dev/subgroup": "a"}, {}, "a"),
    "the same as an annotation": ({}, {"muster.dev/subgroup": "a"}, "a"),
    "its own word before that of its JobSet": (JOBSET, {"muster.dev/subgroup": "a"}, "a"),
    "KAI's": ({"kai.scheduler/subgroup-name": "prefill"}, {}, "prefill"),
    "a Job of a JobSet": (JOBSET, {}, "workers-3"),
    "a subgroup of a LeaderWorkerSet": ({"leaderworkerset.sigs.k8s.io/subgroup-index": "0"}, {}, "0"),
    "a group of Ray": (RAY, {}, "gpus"),
    "a replica of a group of Ray": ({**RAY, "ray.io/worker-group-replica-name": "gpus-x7"}, {}, "gpus-x7"),
    "a replica type": ({"training.kubeflow.org/replica-type": "worker"}, {}, "worker"),
    "a role of an MPIJob, which has no replica type": ({"training.kubeflow.org/job-role": "launcher"}, {}, "launcher"),
    "a task of Volcano": ({}, {"volcano.sh/task-spec": "ps"}, "ps"),
    "a task group of YuniKorn": ({}, {"yunikorn.apache.org/task-group-name": "exec"}, "exec"),
}


@pytest.mark.parametrize(("labels", "annotations", "name"), SAID.values(), ids=SAID)
def test_a_pod_is_in_the_subgroup(labels: dict[str, str], annotations: dict[str, str], name: str) -> None:
    pod = pods.decode({"metadata": {"name": "p", "labels": labels, "annotations": annotations}, "spec": {}})

    assert gangs.subgroup_of(pod) == name
