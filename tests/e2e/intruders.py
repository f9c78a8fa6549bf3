"""A team in whose namespace alice and bob may do what ordinary people may, for tests of who gets round Muster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.controlplane.running import CommandFailed
from tests.e2e.labs import Lab, plain
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PEOPLE = ("alice", "bob")
KEPT: dict[str, Any] = {"restartPolicy": "Never", "schedulerName": "nobody"}
"""Of a pod that no scheduler takes, so that nothing changes it beside the test."""


@contextmanager
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace, **spec: Any) -> Iterator[Lab]:
    """A team with a node of four GPUs, a template `gpu` for one of them, and a quota of two. spec: of its queue."""
    driver = f"{namespace.name}.test"
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver) as lab:
        lab.device_class()
        gpus = lab.meter("gpus", count={})
        lab.node("n", plain(4))
        lab.found({gpus: "2"}, **spec)
        namespace.create(template(lab, "gpu"))
        let_in(control_plane, namespace, [{"kind": "User", "name": name} for name in PEOPLE])
        yield lab


def template(lab: Lab, name: str, *, count: int = 1) -> Any:
    return workloads.claim_template(name, workloads.device_request(device_class=lab.driver, count=count))


def let_in(control_plane: ControlPlane, namespace: Namespace, subjects: list[dict[str, str]]) -> None:
    """Give people what the ClusterRole `admin` gives in a namespace, and wait until they have it."""
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    named = [one if one["kind"] == "ServiceAccount" else group | one for one in subjects]
    role = group | {"kind": "ClusterRole", "name": "admin"}
    body = {"metadata": {"generateName": "people-"}, "roleRef": role, "subjects": named}
    control_plane.client().create(f"{RBAC}/namespaces/{namespace.name}/rolebindings", body)
    for one in subjects:
        if one["kind"] == "User":
            client = control_plane.client(one["name"])
            eventually(partial(may, client, namespace, "patch", "pods"), what=f"{one['name']} is let in")


def may(client: Client, namespace: Namespace, verb: str, resource: str) -> bool:
    attributes = {"namespace": namespace.name, "verb": verb, "resource": resource}
    review = {"spec": {"resourceAttributes": attributes}}
    answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    allowed: bool = answer["status"]["allowed"]
    return allowed


def seen_by(lab: Lab, name: str) -> Namespace:
    """Return the namespace through somebody's eyes."""
    return lab.namespace.seen_by(lab.control_plane.client(name))


def refused(act: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """Return in which words something is refused."""
    with pytest.raises((ApiError, CommandFailed)) as caught:
        act(*arguments, **more)
    return str(caught.value)


def patched_as(lab: Lab, pod: str, patch: str, *, user: str, kind: str = "merge") -> str:
    """Patch a pod as somebody who may do everything, under another name."""
    who = ("--as", user, "--as-group", "system:masters")
    return lab.control_plane.kubectl("patch", "pod", pod, "-n", lab.namespace.name, f"--type={kind}", "-p", patch, *who)


def another_queue(lab: Lab) -> str:
    """Add a queue that is like the team's, but no default, and return its name once both of Muster's parts know it."""
    spec = lab.client.get(f"{GROUP}/queues/{lab.team.queue}")["spec"] | {"default": False, "stopPolicy": "None"}
    name = f"{lab.team.queue}-other"
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    lab.client.apply(f"{GROUP}/queues/{name}", body)
    eventually(lambda: lab.client.get(f"{GROUP}/queues/{name}").get("status"), what="the other queue is known")
    pod = workloads.pod("dry", labels={names.QUEUE: name})
    eventually(lambda: is_taken(lab.namespace, pod), what="the webhook knows the other queue")
    return name


def is_taken(namespace: Namespace, manifest: Any) -> bool:
    """Whether the API server, and whoever it asks, would take an object now."""
    collection = {"Pod": namespace.pods, "ResourceClaim": namespace.claims}[manifest["kind"]]
    try:
        namespace.client.create(f"{collection}?dryRun=All", manifest)
    except ApiError:
        return False
    return True


def wait_refused(namespace: Namespace, pod: Any, reason: str) -> str:
    """Wait until a pod would be refused for a reason, as once the webhook has seen what was written; return why."""

    def why() -> str:
        try:
            namespace.client.create(f"{namespace.pods}?dryRun=All", pod)
        except ApiError as error:
            return str(error) if reason in str(error) else ""
        return ""

    return eventually(why, what=f"pod {pod['metadata']['name']} is refused for {reason}")


def is_gated(pod: Any) -> bool:
    return workloads.GATE in [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def gangs(lab: Lab, namespace: Namespace | None = None) -> list[Any]:
    """Return the Gangs of a namespace; without one, of the team's."""
    name = (namespace or lab.namespace).name
    return lab.client.items(f"{GROUP}/namespaces/{name}/gangs")


def hold_of(lab: Lab, name: str, namespace: Namespace | None = None) -> Any:
    """Return why the gang of a lone pod, or one by its own name, waits; empty while nothing is said."""
    found = [
        gang
        for gang in gangs(lab, namespace)
        if name in (gang["metadata"]["name"], gang["spec"].get("workload", {}).get("name"))
    ]
    return found[0].get("status", {}).get("hold", {}) if found else {}


def wait_hold(lab: Lab, name: str, reason: str, namespace: Namespace | None = None) -> Any:
    return eventually(
        lambda: hold if (hold := hold_of(lab, name, namespace)).get("reason") == reason else None,
        what=lambda: f"{name} is held with {reason}; it has {hold_of(lab, name, namespace)}",
    )
