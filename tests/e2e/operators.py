"""Stand-ins of other projects' controllers on a real control plane: they bring about what their objects ask for.

Each looks at what is there and mends what differs, again and again, as the real ones do: children that are gone are
made anew, those of a workload that is suspended go or are suspended with it, and those of an object that is gone go
too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from admission.workloads.kinds.jobset import RESTARTS
from tests import standins
from tests.controlplane import ApiError
from tests.controlplane.fleet import Manifest
from tests.e2e.deaths import Deaths
from tests.e2e.herds import Herd

Key = tuple[str, str, str]
"""apiVersion, kind and name of an object."""

MADE = (("v1", "Pod"), ("batch/v1", "Job"), ("apps/v1", "StatefulSet"), ("ray.io/v1", "RayCluster"))
"""What they make."""


@dataclass(slots=True)
class Sight:
    """What is there in one moment; what is being deleted is there still."""

    objects: dict[Key, Manifest] = field(default_factory=dict)

    def of(self, api_version: str, kind: str) -> Iterator[Manifest]:
        return (obj for (version, name, _), obj in self.objects.items() if (version, name) == (api_version, kind))

    @property
    def abandoned(self) -> set[str]:
        """The UIDs of what has a controller of a kind that is seen, and who is not there: garbage, to Kubernetes."""
        owners = {obj["metadata"]["uid"]: _owner(obj) for obj in self.objects.values()}
        return {
            uid
            for uid, owner in owners.items()
            if (owner.get("apiVersion"), owner.get("kind")) in SEEN and owner["uid"] not in owners
        }


def suspension(obj: Manifest) -> Mapping[str, Any]:
    """Return the part of an object where it says whether it is suspended."""
    spec: Manifest = obj["spec"]
    return spec.get("runPolicy", {}) if obj["kind"] in ("PyTorchJob", "MPIJob") else spec


def is_suspended(obj: Manifest) -> bool:
    return bool(suspension(obj).get("suspend"))


def _of_jobset(jobset: Manifest, _: Sight) -> list[Manifest]:
    jobs = standins.jobset_jobs(jobset, restarts=jobset.get("status", {}).get("restarts", 0))
    return [_suspended_with(jobset, job) for job in jobs]


def _of_training(job: Manifest, _: Sight) -> list[Manifest]:
    return [] if is_suspended(job) else standins.replica_pods(job, "pytorchReplicaSpecs")


def _of_mpi(job: Manifest, _: Sight) -> list[Manifest]:
    workers = [] if is_suspended(job) else standins.replica_pods(job, "mpiReplicaSpecs", "Worker")
    return [*workers, _suspended_with(job, standins.launcher(job))]


def _of_ray_job(job: Manifest, _: Sight) -> list[Manifest]:
    failed = job.get("status", {}).get("failed", 0)
    return [] if is_suspended(job) else [standins.ray_cluster(job, f"try-{failed}")]


def _of_leader_worker_set(lws: Manifest, sight: Sight) -> list[Manifest]:
    """Its leader, and the workers of the one that is there."""
    leader = sight.objects.get(("v1", "Pod", f"{lws['metadata']['name']}-0"))
    followed = leader is not None and "deletionTimestamp" not in leader["metadata"]
    return [standins.leaders(lws), *([standins.workers(lws, leader)] if leader and followed else [])]


def _suspended_with(parent: Manifest, job: Manifest) -> Manifest:
    return {**job, "spec": {**job["spec"], "suspend": is_suspended(parent)}}


CONTROLLERS: Mapping[tuple[str, str], Callable[[Manifest, Sight], list[Manifest]]] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _of_jobset,
    ("kubeflow.org/v1", "PyTorchJob"): _of_training,
    ("kubeflow.org/v2beta1", "MPIJob"): _of_mpi,
    ("batch.volcano.sh/v1alpha1", "Job"): lambda job, _: standins.task_pods(job),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _of_leader_worker_set,
    ("ray.io/v1", "RayJob"): _of_ray_job,
    ("ray.io/v1", "RayCluster"): lambda cluster, _: standins.ray_pods(cluster),
}
"""What each kind's controller wants to be there of an object."""

SEEN = tuple(dict.fromkeys((("resource.k8s.io/v1", "ResourceClaim"), *MADE, *CONTROLLERS)))
"""The kinds that are looked at, in this order."""


@dataclass(frozen=True, slots=True)
class Operators:
    """All of these controllers in the namespace of a herd. deaths: who asks until the API server answers."""

    herd: Herd
    deaths: Deaths

    def reconcile(self) -> Sight:
        """Look once, mend what differs, and return what was there."""
        sight = self._stored()
        for kind, wanted in CONTROLLERS.items():
            for parent in sight.of(*kind):
                if "deletionTimestamp" not in parent["metadata"]:
                    self._bring_about(parent, wanted(parent, sight), sight)
        known = {obj["metadata"]["uid"] for obj in sight.objects.values()}
        for child in list(_made(sight)):
            owner = _owner(child)
            if (owner.get("apiVersion"), owner.get("kind")) in CONTROLLERS and owner["uid"] not in known:
                self._delete(child)
        return sight

    def _stored(self) -> Sight:
        """Read all kinds, what is made before what makes it: whose parent is not seen has none any more."""
        sight = Sight()
        for api_version, kind in SEEN:
            path = self.herd.path({"apiVersion": api_version, "kind": kind})
            for found in self.deaths.insist(lambda: self.herd.lab.client.items(path)):  # noqa: B023 - called at once
                obj = {"apiVersion": api_version, "kind": kind, **found}
                sight.objects[_key(obj)] = obj
        return sight

    def _bring_about(self, parent: Manifest, wanted: list[Manifest], sight: Sight) -> None:
        keys = set(map(_key, wanted))
        for child in [one for one in _made(sight) if _owner(one).get("uid") == parent["metadata"]["uid"]]:
            if _key(child) not in keys:
                self._delete(child)
        for one in wanted:
            there = sight.objects.get(_key(one))
            if there is None:
                self.deaths.create(self.herd.path(one), one)
            elif (_owner(there).get("uid"), _attempt(there)) != (_owner(one)["uid"], _attempt(one)):
                self._delete(there)
            elif is_suspended(there) != is_suspended(one):
                self._change(there, {"spec": {"suspend": is_suspended(one)}})

    def _change(self, obj: Manifest, body: Manifest) -> None:
        path = f"{self.herd.path(obj)}/{obj['metadata']['name']}"
        try:
            self.deaths.insist(lambda: self.herd.lab.client.merge_patch(path, body))
        except ApiError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    def _delete(self, obj: Manifest) -> None:
        """Delete an object; a Job only when its pods are gone, so that its name is free for the next attempt then."""
        if "deletionTimestamp" in obj["metadata"]:
            return
        policy = "Foreground" if obj["kind"] == "Job" else "Background"
        path = f"{self.herd.path(obj)}/{obj['metadata']['name']}?propagationPolicy={policy}"
        self.deaths.insist(lambda: self.herd.lab.client.delete(path))


def _made(sight: Sight) -> Iterator[Manifest]:
    return (obj for kind in MADE for obj in sight.of(*kind))


def _key(obj: Manifest) -> Key:
    return obj["apiVersion"], obj["kind"], obj["metadata"]["name"]


def _owner(obj: Manifest) -> Mapping[str, Any]:
    """Return how an object names its controller; empty where it has none."""
    owners = obj["metadata"].get("ownerReferences", ())
    return next((one for one in owners if one.get("controller")), {})


def _attempt(obj: Manifest) -> str:
    return str(obj["metadata"].get("labels", {}).get(RESTARTS, ""))
