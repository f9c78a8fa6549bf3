"""Workloads of other projects on a real control plane: their CRDs, cut down to what is read, and what they make.

Jobs, StatefulSets and Deployments are run by their real controllers; what others would make is made by the test, as
`standins` says. The garbage collector knows a new kind only after half a minute, so the test also deletes.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import PATIENCE, eventually
from tests.e2e.labs import Lab, exactly, plain
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NATIVE = {"Pod": "/api/v1", "Job": "/apis/batch/v1", "StatefulSet": "/apis/apps/v1", "Deployment": "/apis/apps/v1"}

MAKERS = (("batch/v1", "Job"), ("apps/v1", "StatefulSet"), ("apps/v1", "Deployment"))
"""What controllers of Kubernetes make pods of."""


def plural(kind: str) -> str:
    return f"{kind.lower()}s"


def definition(api_version: str, kind: str) -> Manifest:
    """A CRD of the kind, which takes any spec and status."""
    group, _, version = api_version.partition("/")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural(kind), "singular": kind.lower()}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    meta: Manifest = {"name": f"{plural(kind)}.{group}"}
    if group.endswith(".k8s.io"):
        meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


@contextmanager
def installed(client: Client, *kinds: tuple[str, str]) -> Iterator[None]:
    """Have the API server know some kinds for a while. kinds: apiVersion and kind of each."""
    try:
        for api_version, kind in kinds:
            client.create(CRDS, definition(api_version, kind))
        _wait(client, kinds, served=True)
        yield
    finally:
        remove(client, *kinds)


def remove(client: Client, *kinds: tuple[str, str]) -> None:
    """Delete kinds and all of their objects, if they are there."""
    for api_version, kind in kinds:
        client.delete(f"{CRDS}/{plural(kind)}.{api_version.partition('/')[0]}")
    _wait(client, kinds, served=False)


def _wait(client: Client, kinds: Iterable[tuple[str, str]], *, served: bool) -> None:
    left = {f"/apis/{api_version}/{plural(kind)}" for api_version, kind in kinds}

    def done() -> bool:
        left.difference_update([path for path in left if _is_served(client, path) is served])
        return not left

    eventually(done, what=f"kinds are {'' if served else 'no longer '}served")


def _is_served(client: Client, path: str) -> bool | None:
    """Whether a kind is served; None while the API server is about to."""
    try:
        return client.find(path) is not None
    except ApiError as error:
        if error.code == HTTPStatus.TOO_MANY_REQUESTS:
            return None
        raise


def named(pods: Iterable[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


@dataclass(frozen=True)
class Herd:
    """What a team submits in a lab, whose template `one` asks for one device: every pod does."""

    lab: Lab

    @property
    def muster(self) -> Muster:
        """Who looks after it; what it logged is shown where a test of the herd fails."""
        return self.lab.muster

    def template(self, restart_policy: str = "Never", **labels: str) -> Manifest:
        pod = workloads.pod("-", template="one", restartPolicy=restart_policy)
        del pod["spec"]["schedulingGates"]
        return {"metadata": {"labels": {"app": "herd", **labels}}, "spec": pod["spec"]}

    def path(self, obj: Manifest) -> str:
        """Where objects of the kind are."""
        group, _, _ = str(obj["apiVersion"]).rpartition("/")
        root = NATIVE.get(obj["kind"]) if group in ("", "apps", "batch") else None
        return f"{root or '/apis/' + obj['apiVersion']}/namespaces/{self.lab.namespace.name}/{plural(obj['kind'])}"

    def put(self, obj: Manifest) -> Manifest:
        """Create an object, and return it as the API server has it."""
        found: Manifest = self.lab.client.create(self.path(obj), obj)
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **found}

    def all(self, objects: Iterable[Manifest]) -> list[Manifest]:
        return [self.put(obj) for obj in objects]

    def delete(self, *objects: Manifest) -> None:
        for obj in objects:
            grace = "&gracePeriodSeconds=0" if obj["kind"] == "Pod" else ""
            path = f"{self.path(obj)}/{obj['metadata']['name']}?propagationPolicy=Background{grace}"
            self.lab.client.delete(path)

    @property
    def pods(self) -> dict[str, Any]:
        """The pods that are not being deleted, by name."""
        found = self.lab.client.items(self.lab.namespace.pods)
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def pods_of(self, parent: Manifest, count: int) -> list[str]:
        """Wait until a controller of Kubernetes has made so many pods of an object, and return their names."""
        uid = parent["metadata"]["uid"]

        def mine() -> list[str]:
            owners = {name: pod["metadata"].get("ownerReferences", [{}])[0] for name, pod in self.pods.items()}
            return [name for name, owner in owners.items() if owner.get("uid") == uid]

        return eventually(
            lambda: found if len(found := mine()) == count else None,
            what=f"{count} pods of {parent['kind']} {parent['metadata']['name']}",
        )

    def pod(self, name: str) -> Manifest:
        """Wait for a pod, and return it."""
        found: Manifest = eventually(lambda: self.pods.get(name), what=f"pod {name}")
        return {"apiVersion": "v1", "kind": "Pod", **found}

    @property
    def gangs_path(self) -> str:
        return f"{GROUP}/namespaces/{self.lab.namespace.name}/gangs"

    @property
    def gangs(self) -> list[Any]:
        return self.lab.client.items(self.gangs_path)

    def told(self, message: str) -> int:
        """Return of how many gangs this is said."""
        return sum(message in gang.get("status", {}).get("hold", {}).get("message", "") for gang in self.gangs)

    def wait_held(self, message: str, *pods: str, of: Manifest | None = None, within: float = PATIENCE) -> Any:
        """Wait until a Gang says so, and see that none of these pods is let in. of: what makes its pods."""
        uid = of["metadata"]["uid"] if of else None

        def held() -> Any | None:
            for gang in self.gangs:
                said = gang.get("status", {}).get("hold", {}).get("message", "")
                if message in said and uid in (None, gang["spec"].get("workload", {}).get("uid")):
                    return gang
            return None

        gang = eventually(held, what=lambda: f"{message}: {self.standing()}", within=within)
        assert all(self.pods[name]["spec"].get("schedulingGates") for name in pods)
        return gang

    def wait_running(self, *pods: str, other_than: Any = None) -> Any:
        """Wait until these pods run, in one gang and no others with them, each where it was planned; return the gang.

        other_than: an earlier gang, whose pods may have had the same names.
        """
        earlier = other_than["metadata"]["uid"] if other_than else ""

        def running() -> Any | None:
            found = self.pods
            if any(found.get(name, {}).get("status", {}).get("phase") != "Running" for name in pods):
                return None
            nodes = {name: found[name]["spec"]["nodeName"] for name in pods}
            for gang in self.gangs:
                plan = {one["pod"]: one["node"] for one in gang.get("status", {}).get("plan", ())}
                if plan == nodes and gang["metadata"]["uid"] != earlier:
                    return gang
            return None

        return eventually(running, what=lambda: f"{pods} run as planned: {self.standing()}")

    def standing(self) -> str:
        """Tell how gangs and pods stand, under a test that has waited for them in vain."""
        statuses = {gang["metadata"]["name"]: gang.get("status", {}) for gang in self.gangs}
        gangs = [(name, *(status.get(key, "") for key in ("phase", "hold"))) for name, status in statuses.items()]
        pods = [(name, pod["status"].get("phase"), pod["spec"].get("nodeName")) for name, pod in self.pods.items()]
        return f"gangs {gangs}, pods {pods}"

    def clear(self, *parents: Manifest) -> None:
        """Delete what makes pods, then all pods; nothing is charged any more."""
        self.delete(*parents)
        for pods in (f"{self.lab.namespace.pods}?gracePeriodSeconds=0", f"{self.lab.namespace.claims}"):
            eventually(lambda: self._emptied(pods), what=f"{pods} is empty")  # noqa: B023 - called at once
        eventually(lambda: all(self.lab.used(meter) == (0, 0) for meter in self.lab.meters), what="all is given back")

    def _emptied(self, pods: str) -> bool:
        """Whether nothing is left; a controller may have made something meanwhile."""
        left = self.lab.client.items(pods.partition("?")[0])
        if left:
            self.lab.client.delete(pods)
        return not left

    def refusal(self, path: str, body: Manifest) -> str:
        """Return what the API server says against a change."""
        try:
            self.lab.client.merge_patch(path, body)
        except ApiError as error:
            return str(error)
        return ""


@contextmanager
def of(
    control_plane: ControlPlane, muster: Muster, name: str, *, nodes: int, devices: int, quota: int = 0, **spec: Any
) -> Iterator[Herd]:
    """Set up a team in a namespace of its own, with nodes of so many devices each. quota: of all; 0 for plenty."""
    client = control_plane.client()
    namespace = Namespace(name=name, client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=f"{name}.test") as lab:
        for number in range(nodes):
            lab.node(f"node-{number}", plain(devices))
        lab.device_class()
        meter = lab.meter("gpus", count={})
        lab.found({meter: str(quota)} if quota else None, unmeteredClasses="Allow", **spec)
        namespace.create(workloads.claim_template("one", exactly(lab)))
        yield Herd(lab)
    client.delete(f"/api/v1/namespaces/{name}")
