"""Workloads of other projects on a real control plane: their CRDs, cut down to what is read, and what they make.

Jobs and StatefulSets are run by their real controllers; what others would make is made by the test, as `standins` says.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from admission.policy.families import table
from admission.policy.families.kinship import Family
from tests.controlplane import ApiError, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e.labs import Lab
from tests.e2e.teams import GROUP

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVED = ("apps", "scheduling.k8s.io")
"""Groups of Kubernetes itself."""

COLLECTIONS = {"Pod": "/api/v1", "Job.batch": "/apis/batch/v1"}
GONE_SECONDS = 90.0
"""Within which garbage is collected: its collector looks for new kinds every half minute."""


def foreign() -> list[Family]:
    return [family for family in table.ALL if family.group not in SERVED]


def definition(family: Family) -> Manifest:
    """A CRD of the kind, which takes any spec and status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    names = {"kind": family.kind, "plural": family.plural, "singular": family.kind.lower()}
    version = {"served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    group = {"group": family.group, "scope": "Namespaced", "names": {**names, "listKind": f"{family.kind}List"}}
    meta: Manifest = {"name": f"{family.plural}.{family.group}"}
    if family.group.endswith((".k8s.io", ".kubernetes.io")):
        meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {**group, "versions": [{"name": family.versions[0], **version}]},
    }


@contextmanager
def installed(client: Client) -> Iterator[None]:
    """Have all foreign kinds served for a while."""
    made = [definition(family) for family in foreign()]
    for crd in made:
        client.apply(f"{CRDS}/{crd['metadata']['name']}", crd)
    for family in foreign():
        path = f"/apis/{family.group}/{family.versions[0]}/{family.plural}"
        eventually(lambda: client.find(path) is not None, what=f"{path} is served")  # noqa: B023 - called at once
    yield
    for crd in made:
        client.delete(f"{CRDS}/{crd['metadata']['name']}")
    for crd in made:
        path = f"{CRDS}/{crd['metadata']['name']}"
        eventually(lambda: client.find(path) is None, what=f"{path} is gone")  # noqa: B023 - called at once


@dataclass(frozen=True)
class Herd:
    """What a team submits in a lab: every pod asks for one device."""

    lab: Lab

    def template(self, restart_policy: str = "Never") -> Manifest:
        pod = workloads.pod("-", template="one", restartPolicy=restart_policy)
        del pod["spec"]["schedulingGates"]
        return {"metadata": {"labels": {"app": "herd"}}, "spec": pod["spec"]}

    def path(self, obj: Manifest) -> str:
        """Where objects of the kind are."""
        group, _, _ = str(obj["apiVersion"]).rpartition("/")
        kind = f"{obj['kind']}.{group}" if group else obj["kind"]
        family = table.BY_GROUP.get((group, obj["kind"]))
        root = COLLECTIONS.get(kind) or f"/apis/{obj['apiVersion']}"
        plural = family.plural if family else f"{obj['kind'].lower()}s"
        return f"{root}/namespaces/{self.lab.namespace.name}/{plural}"

    def put(self, obj: Manifest) -> Manifest:
        """Create an object, and return it as the API server has it."""
        found: Manifest = self.lab.client.create(self.path(obj), obj)
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **found}

    def all(self, objects: list[Manifest]) -> list[Manifest]:
        return [self.put(obj) for obj in objects]

    def delete(self, obj: Manifest) -> None:
        self.lab.client.delete(f"{self.path(obj)}/{obj['metadata']['name']}?propagationPolicy=Background")

    @property
    def pods(self) -> dict[str, Any]:
        """The pods that are not being deleted, by name."""
        found = self.lab.client.items(self.lab.namespace.pods)
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def pod(self, name: str) -> Manifest:
        """Wait for a pod, and return it."""
        found: Manifest = eventually(lambda: self.pods.get(name), what=f"pod {name}; there are {list(self.pods)}")
        return {"apiVersion": "v1", "kind": "Pod", **found}

    @property
    def gangs(self) -> list[Any]:
        return self.lab.client.items(f"{GROUP}/namespaces/{self.lab.namespace.name}/gangs")

    def gang_of(self, pod: str) -> Any:
        """The Gang in whose plan a pod is."""
        found = [gang for gang in self.gangs if pod in {one["pod"] for one in gang.get("status", {}).get("plan", ())}]
        return found[0] if found else None

    def wait_held(self, message: str, *pods: str, within: float = 30.0) -> Any:
        """Wait until a Gang says so, and see that none of these pods is let in."""

        def held() -> Any | None:
            mine = [one for one in self.gangs if message in one.get("status", {}).get("hold", {}).get("message", "")]
            return mine[0] if mine else None

        gang = eventually(
            held,
            what=f"{message}; they say {[one.get('status', {}).get('hold') for one in self.gangs]}",
            within=within,
        )
        assert all(self.pods[name]["spec"].get("schedulingGates") for name in pods)
        return gang

    def wait_running(self, *pods: str) -> Any:
        """Wait until these pods run, all in one gang, each where it was planned; and return the gang."""

        def running() -> Any | None:
            found = self.pods
            if any(found.get(name, {}).get("status", {}).get("phase") != "Running" for name in pods):
                return None
            return self.gang_of(pods[0])

        gang = eventually(running, what=f"{pods} run; {self.shown()}", within=60.0)
        plan = {one["pod"]: one["node"] for one in gang["status"]["plan"]}
        assert plan == {name: self.pods[name]["spec"]["nodeName"] for name in pods}
        return gang

    def shown(self) -> object:
        return [
            (gang["metadata"]["name"], gang.get("status", {}).get("phase"), gang.get("status", {}).get("hold", {}))
            for gang in self.gangs
        ]

    def wait_gone(self) -> None:
        """Wait until no pod, claim or Gang is left, and nothing is charged."""
        eventually(
            lambda: not self.lab.client.items(self.lab.namespace.pods), what="all pods are gone", within=GONE_SECONDS
        )
        eventually(
            lambda: not [gang for gang in self.gangs if gang["spec"].get("workload")],
            what=f"all Gangs are gone; {self.shown()}",
            within=GONE_SECONDS,
        )
        eventually(lambda: all(self.lab.used(meter) == (0, 0) for meter in self.lab.meters), what="all is given back")

    def refusal(self, path: str, body: Manifest) -> str:
        """Return what the API server says against a change."""
        try:
            self.lab.client.merge_patch(path, body)
        except ApiError as error:
            return str(error)
        return ""
