"""A cluster of parents and what they make, to ask what becomes a gang: UIDs are given as the API server would."""

from typing import Any, Self

from admission.api.kubernetes import jobs, pods
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.workloads import gangs
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog
from tests.standins import Manifest

TEMPLATE: Manifest = {
    "metadata": {"labels": {names.QUEUE: "q"}},
    "spec": {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.GATE}]},
}


class Herd:
    """Objects as they are stored. `put` completes an object and returns it."""

    def __init__(self) -> None:
        self.pods: dict[Uid, Pod] = {}
        self.jobs: dict[Uid, Any] = {}
        self.parents: dict[str, dict[str, Any]] = {family.key: {} for family in catalog.ALL}
        self.unwatched: dict[str, str] = {}
        self._number = 0

    def put(self, obj: Manifest, **status: Any) -> Manifest:
        self._number += 1
        meta = {
            "namespace": "team",
            "creationTimestamp": f"2026-11-21T12:00:{self._number % 60:02}Z",
            **obj["metadata"],
        }
        meta.setdefault("uid", f"{obj['kind'].lower()}-{meta['name']}-{self._number}")
        whole: Manifest = {**obj, "metadata": meta, "status": {**obj.get("status", {}), **status}}
        group = str(obj["apiVersion"]).rpartition("/")[0]
        if obj["kind"] == "Pod":
            self.pods[meta["uid"]] = pods.decode(whole)
        elif (group, obj["kind"]) == ("batch", "Job"):
            self.jobs[meta["uid"]] = jobs.decode(whole)
        else:
            family = catalog.BY_GROUP[group, obj["kind"]]
            parent = family.decode(whole)
            self.parents[family.key][parent.meta.key if family.named else parent.meta.uid] = parent
        return whole

    def all(self, objects: list[Manifest], **status: Any) -> list[Manifest]:
        return [self.put(obj, **status) for obj in objects]

    def take(self, obj: Manifest) -> Self:
        """Take an object away."""
        uid = obj["metadata"]["uid"]
        self.pods.pop(uid, None)
        self.jobs.pop(uid, None)
        for parents in self.parents.values():
            parents.pop(uid, None)
        return self

    @property
    def snapshot(self) -> Snapshot:
        parents = {kind: dict(objects) for kind, objects in self.parents.items()}
        return Snapshot(pods=dict(self.pods), jobs=dict(self.jobs), parents=parents, unwatched=dict(self.unwatched))

    @property
    def gangs(self) -> list[Group]:
        return gangs.groups(self.snapshot, {})

    @property
    def gang(self) -> Group:
        (found,) = self.gangs
        return found

    @property
    def reported(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """The pods of every gang → how many it has, and how many it needs."""
        return {
            tuple(sorted(pod.meta.name for pod in group.pods)): (group.identity.size, group.identity.needed)
            for group in self.gangs
        }


def a_pod(name: str, *, labels: Any = None, group: str = "", **annotations: str) -> Manifest:
    spec: Manifest = dict(TEMPLATE["spec"])
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.QUEUE: "q", **(labels or {})}, "annotations": annotations},
        "spec": spec,
    }
