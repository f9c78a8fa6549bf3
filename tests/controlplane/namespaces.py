"""One namespace as a test sees it: its pods and claims, through the eyes of one user."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.controlplane.clients import ApiError, Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import PATIENCE, eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Paths and the few questions that most tests ask."""

    name: str
    client: Client

    def seen_by(self, client: Client) -> "Namespace":
        """Return the same namespace through another user's eyes."""
        return replace(self, client=client)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.name}/pods"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.name}/jobs"

    @property
    def claims(self) -> str:
        return f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaims"

    @property
    def templates(self) -> str:
        return f"/apis/resource.k8s.io/v1/namespaces/{self.name}/resourceclaimtemplates"

    def create(self, *manifests: Manifest) -> None:
        collections = {"Pod": self.pods, "ResourceClaim": self.claims, "ResourceClaimTemplate": self.templates}
        for manifest in manifests:
            self.client.create(collections[manifest["kind"]], manifest)

    def pod(self, name: str) -> Any:
        return self.client.get(f"{self.pods}/{name}")

    def claim(self, name: str) -> Any:
        return self.client.get(f"{self.claims}/{name}")

    def claim_of(self, pod: str) -> Any:
        """Wait until the pod's one claim was made from its template, and return it."""

        def made() -> Any | None:
            statuses = self.pod(pod).get("status", {}).get("resourceClaimStatuses", [])
            return self.claim(statuses[0]["resourceClaimName"]) if statuses else None

        return eventually(made, what=f"the claim of pod {pod}")

    def bound(self, pod: str, *, within: float = PATIENCE) -> Any:
        """Wait until the pod is bound to a node, and return it."""

        def on_a_node() -> Any | None:
            seen = self.pod(pod)
            return seen if seen["spec"].get("nodeName") else None

        return eventually(on_a_node, what=lambda: f"pod {pod} is bound: {self.standing(pod)}", within=within)

    def standing(self, pod: str) -> str:
        """Tell how a pod stands, under a test that has waited for it in vain."""
        seen = self.client.find(f"{self.pods}/{pod}")
        if seen is None:
            return "it is not there"
        gates = [gate["name"] for gate in seen["spec"].get("schedulingGates", [])]
        return f"gates {gates}, node {seen['spec'].get('nodeName')}, status {seen.get('status')}"

    def node_of(self, pod: str) -> str | None:
        return self.pod(pod)["spec"].get("nodeName") or None

    def refusal(self, pod: str) -> str:
        """Return why kube-scheduler could not bind the pod when it last tried, or nothing; a gated pod is not tried.

        A try before its watch has brought any node says nothing of the pod; it tries again when nodes come.
        """
        conditions = self.pod(pod).get("status", {}).get("conditions", [])
        refused = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] != "True"]
        said = next((one.get("message", "") for one in refused if one.get("reason") != "SchedulingGated"), "")
        return "" if said.startswith("no nodes available") else said

    def wait_refused(self, pod: str, saying: str = "") -> str:
        """Wait until kube-scheduler could not bind the pod and says this of it, and return all that it says.

        Fail as soon as the pod is bound. Its watches of different kinds are not in step: what it says first may be that
        a node is not ready or a claim has just changed, and then it tries again.
        """

        def why() -> str:
            node = self.node_of(pod)
            assert node is None, f"pod {pod} is bound to {node}, and was to be refused"
            said = self.refusal(pod)
            return said if saying in said else ""

        return eventually(why, what=lambda: f"kube-scheduler says {saying!r} of pod {pod}: {self.standing(pod)}")

    def empty(self) -> None:
        """Delete all Jobs, pods and claims until none is left, so that nothing holds a device any more.

        Again and again: other controllers make pods anew, and a deletion may meet one that is just being written.
        """
        makers = f"{self.jobs}?propagationPolicy=Background"

        def is_empty() -> bool:
            with suppress(ApiError):
                for collection in (makers, f"{self.pods}?gracePeriodSeconds=0", self.claims, self.templates):
                    self.client.delete(collection)
            return not [*self.client.items(self.pods), *self.client.items(self.claims)]

        eventually(is_empty, what=f"namespace {self.name} is empty")
