"""What the tests of Muster on a real control plane submit: queues, meters, and Jobs in a namespace of a team."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import PATIENCE, eventually

GROUP = "/apis/muster.dev/v1alpha1"

TOLD = ("phase", "hold", "placement", "placementReason", "evicted", "evictions", "position")
"""What of a Gang's status tells how it stands."""


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace whose pods enter one queue by default, and what happens in it."""

    control_plane: ControlPlane
    namespace: Namespace
    queue: str

    @property
    def jobs(self) -> str:
        return self.namespace.jobs

    def submit(
        self,
        name: str,
        *,
        pods: int,
        gpus: int = 1,
        annotations: Mapping[str, str] | None = None,
        backoff_limit: int = 6,
        grace: int = 0,
    ) -> None:
        """Create a Job of so many pods with so many GPUs each, and the template of their claims.

        grace: seconds that its pods take to end when they are deleted; 0 for none, whatever they may take.
        """
        client = self.control_plane.client()
        template = f"gpus-{gpus}"
        if client.find(f"{self.namespace.templates}/{template}") is None:
            self.namespace.create(workloads.claim_template(template, workloads.device_request(count=gpus)))
        manifest = job(name, pods=pods, template=template, annotations=annotations or {})
        manifest["spec"]["backoffLimit"] = backoff_limit
        if grace:
            pod = manifest["spec"]["template"]
            pod["metadata"]["annotations"][workloads.LINGER] = "true"
            pod["spec"]["terminationGracePeriodSeconds"] = grace
        client.create(self.jobs, manifest)

    def pods(self, name: str) -> list[Any]:
        """The Job's pods that are not being deleted."""
        client = self.control_plane.client()
        found = client.items(f"{self.namespace.pods}?labelSelector=job-name%3D{name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def phases(self, name: str) -> list[str]:
        return sorted(pod["status"]["phase"] for pod in self.pods(name))

    def gated(self, name: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(name) if pod["spec"].get("schedulingGates")]

    def gang(self, name: str) -> Any | None:
        """The Gang of the Job, or None while it is not there."""
        client = self.control_plane.client()
        found = client.items(f"{GROUP}/namespaces/{self.namespace.name}/gangs")
        mine = [gang for gang in found if gang["spec"].get("workload", {}).get("name") == name]
        return mine[0] if mine else None

    def key(self, name: str) -> str:
        """What messages call the gang of the Job, once it is there."""
        gang = eventually(lambda: self.gang(name), what=f"{name} has a Gang")
        return f"{self.namespace.name}/{gang['metadata']['name']}"

    def status(self, name: str) -> Any:
        """The status of the gang; empty while nothing is said."""
        return (self.gang(name) or {}).get("status", {})

    def placed(self, name: str) -> tuple[str, str]:
        """How the gang was placed and why, as soon as its status says so."""

        def said() -> tuple[str, str] | None:
            status = self.status(name)
            return (status["placement"], status.get("placementReason", "")) if "placement" in status else None

        return eventually(said, what=f"{name} says how it was placed")

    def hold(self, name: str) -> Any:
        """Why the gang waits; empty while nothing is said."""
        return self.status(name).get("hold", {})

    def wait_running(self, name: str, pods: int, *, within: float = PATIENCE) -> None:
        eventually(
            lambda: self.phases(name) == ["Running"] * pods,
            what=lambda: f"{name} runs whole: {self.standing(name)}",
            within=within,
        )

    def wait_held(self, name: str, reason: str, saying: str = "", *, within: float = PATIENCE) -> Any:
        """Wait for a reason and words of it, and return the hold.

        saying: where what is told first may be something else, as long as Muster has not seen all that a test wrote.
        """

        def held() -> Any | None:
            found = self.hold(name)
            return found if found.get("reason") == reason and saying in found.get("message", "") else None

        what = f"{name} is held with {reason} {saying}".rstrip()
        hold = eventually(held, what=lambda: f"{what}: {self.standing(name)}", within=within)
        assert all(pod["spec"].get("schedulingGates") for pod in self.pods(name))
        return hold

    def standing(self, name: str) -> str:
        """Tell how a Job's gang and its pods stand, under a test that has waited for them in vain."""
        status, pods = self.status(name), []
        gang = {key: status[key] for key in TOLD if key in status}
        for pod in self.pods(name):
            gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
            told = [one.get("message", "") for one in pod["status"].get("conditions", []) if one["status"] != "True"]
            pods.append((pod["metadata"]["name"], pod["status"].get("phase"), pod["spec"].get("nodeName"), gates, told))
        return f"gang {gang}, pods {pods}"

    def finish(self, name: str) -> None:
        for pod in self.pods(name):
            annotation = {"metadata": {"annotations": {workloads.FINISH: "true"}}}
            self.control_plane.client().merge_patch(f"{self.namespace.pods}/{pod['metadata']['name']}", annotation)

    def disband(self) -> None:
        """Delete its queue."""
        self.control_plane.client().delete(f"{GROUP}/queues/{self.queue}")

    def used(self, meter: str) -> tuple[int, int]:
        """Reserved and used of the queue, as its status shows them."""
        status = self.control_plane.client().get(f"{GROUP}/queues/{self.queue}").get("status", {})
        uses = {use["meter"]: use for use in status.get("meters", [])}
        use = uses.get(meter, {})
        return int(use.get("reserved", "0")), int(use.get("used", "0"))


def found_team(
    control_plane: ControlPlane,
    namespace: Namespace,
    *,
    gpus: int,
    claims: int = 100,
    classes: Sequence[str] = (fleet.DEVICE_CLASS,),
    **spec: Any,
) -> Team:
    """Make the meters, and a queue of its own for the namespace, whose pods wait at their gates unless it says else.

    classes: those that meters count, which the webhook knows then, where the API server has them.
    """
    client = control_plane.client()
    for name, measure in (("claims", "claims"), ("gpus", "count")):
        sources = [{"deviceClasses": [fleet.DEVICE_CLASS], measure: {}}]
        client.apply(f"{GROUP}/meters/{name}", _object("Meter", name, {"unit": name, "sources": sources}))
    quotas = [{"meter": "claims", "nominal": str(claims)}, {"meter": "gpus", "nominal": str(gpus)}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    body = {"namespaceSelector": selector, "default": True, "quotas": quotas, "holdAt": "Pod", **spec}
    queue = f"queue-{namespace.name}"
    client.apply(f"{GROUP}/queues/{queue}", _object("Queue", queue, body))
    team = Team(control_plane, namespace, queue)
    _wait_registered(team)
    for name in classes:
        if client.find(f"{fleet.COLLECTIONS['DeviceClass']}/{name}") is not None:
            eventually(partial(_is_counted, namespace, name), what=f"the webhook knows the meter of class {name}")
    return team


def _is_counted(namespace: Namespace, device_class: str) -> bool:
    """Whether the webhook knows a class and its meter, which it watches apart from the queue."""
    template = workloads.claim_template("dry-run", workloads.device_request(device_class=device_class))
    try:
        namespace.client.create(f"{namespace.templates}?dryRun=All", template)
    except ApiError as error:
        return "UnmeteredClass" not in error.message
    return True


@contextmanager
def founded(control_plane: ControlPlane, namespace: Namespace, *, gpus: int, **spec: Any) -> Iterator[Team]:
    """Found a team, whose queue is deleted afterwards."""
    team = found_team(control_plane, namespace, gpus=gpus, **spec)
    try:
        yield team
    finally:
        team.disband()


@contextmanager
def of_eight(control_plane: ControlPlane, namespace: Namespace) -> Iterator[Team]:
    """Found a team of eight GPUs, three of which its gang `train` uses."""
    with founded(control_plane, namespace, gpus=8) as team:
        team.submit("train", pods=3)
        team.wait_running("train", 3)
        eventually(lambda: team.used("gpus") == (0, 3), what="the gang is settled")
        yield team


def job(name: str, *, pods: int, template: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """An ordinary batch/v1 Job, as a team would submit it."""
    pod = workloads.pod("-", template=template, restartPolicy="Never")
    del pod["spec"]["schedulingGates"]
    metadata = {"annotations": dict(annotations)}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "template": {"metadata": metadata, "spec": pod["spec"]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _wait_registered(team: Team) -> None:
    """Wait until the API server asks both webhooks about the namespace: one gates a dry run, the other refuses one."""
    client = team.control_plane.client()
    collection = f"{team.namespace.pods}?dryRun=All"

    def is_gated() -> bool:
        try:
            answer = client.create(collection, workloads.pod("dry-run"))
        except ApiError:  # one of the two webhooks is registered a moment before the other
            return False
        return bool(answer["spec"].get("schedulingGates"))

    def is_refused() -> bool:
        try:
            client.create(collection, workloads.pod("dry-run", nodeName="any"))
        except ApiError:
            return True
        return False

    eventually(lambda: is_gated() and is_refused(), what=f"pods of {team.namespace.name} are gated and validated")


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
