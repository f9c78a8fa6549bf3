"""The removal of Muster's objects, in an order in which no webhook configuration outlives the webhook.

Controllers write the webhook configurations again and again, so they are stopped first, while the webhook answers. Then
the configurations are deleted, then fences, what autoscalers were asked for and told, finalizers and Muster's own
objects. Every step may be repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from admission.api.kubernetes import nodes
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.cli.uninstall.survey import Survey
from admission.errors import ClusterUnavailableError, FixError, GoneError
from admission.kube import crd_installer, fence_controller
from admission.kube.client import bounded_wait, paths
from admission.kube.client.connection import Connection, PatchKind
from admission.kube.webhook_config import pod_policy, registration
from admission.kube.writers.nodes import NodeWriter
from admission.kube.writers.provisioning_requests import ProvisioningRequestWriter
from admission.kube.writers.queue_finalizer import QueueFinalizerWriter
from admission.scheduling.capacity.scale_down import is_marked
from admission.settings import Settings

CONTROLLER = "muster-controller"
CONTROLLER_PODS = "app.kubernetes.io/name=muster,app.kubernetes.io/component=controller"
"""The chart's Deployment of controllers, and the label of its pods."""

END_SECONDS = 120.0
"""How long to wait until controllers have ended, or CRDs are gone."""

NODES_PER_PAGE = 500

CRDS = tuple(f"{plural}.{names.GROUP}" for plural in ("gangs", "queues", "meters", "claimpolicies", "nodeshapes"))


@dataclass(frozen=True, slots=True)
class Removal:
    """One removal. say: called with a line for each removed object."""

    connection: Connection
    settings: Settings
    say: Callable[[str], None]

    async def run(self, found: Survey, *, purge: bool) -> None:
        """Remove everything by which Muster affects other objects; with purge, also its CRDs and the signed heads.

        Raises FixError, with nothing removed, while a controller that is not the chart's leads.
        """
        await self._end_controllers()
        await self._nobody_leads()
        await registration.unregister(self.connection)
        self.say("removed the webhook configurations: no namespace is closed any more")
        await pod_policy.remove(self.connection)
        self.say("removed the policy on changes of pods: who may change pods may open gates")
        self.say("removed the policy that adds gates: pods of Jobs that are marked as complete come without one")
        for name in await fence_controller.lift(self.connection):
            self.say(f"removed {name}")
        await self._withdraw_requests()
        await self._release_nodes()
        await self._release(found.kept_queues)
        heads = self.settings.heads
        own = [self._own("secrets", self.settings.webhook.secret), self._lease]
        if purge:
            own += [self._own("secrets", heads.secret), self._own("configmaps", heads.config_map)]
        for path in own:
            await self._delete(path)
        if purge:
            await self._remove_crds()

    @property
    def _namespace(self) -> str:
        return self.settings.lease.namespace

    def _own(self, plural: str, name: str) -> str:
        return paths.join(paths.within("/api/v1", self._namespace, plural), name)

    @property
    def _lease(self) -> str:
        leases = paths.within("/apis/coordination.k8s.io/v1", self._namespace, "leases")
        return paths.join(leases, self.settings.lease.name)

    # Controllers.

    async def _end_controllers(self) -> None:
        """Scale the chart's controllers to none, and wait until their pods have ended."""
        deployments = paths.within("/apis/apps/v1", self._namespace, "deployments")
        scale = paths.join(deployments, CONTROLLER, "scale")
        try:
            await self.connection.patch(scale, {"spec": {"replicas": 0}}, PatchKind.MERGE)
        except GoneError:
            return  # it was not installed by the chart, or Helm has deleted it
        # A pod that is being deleted no longer counts as a replica, and may still write.
        pods = paths.within("/api/v1", self._namespace, "pods")

        async def left() -> object:
            return (await self.connection.get(pods, {"labelSelector": CONTROLLER_PODS})).get("items")

        await _wait_none(left, f"the pods of Deployment {self._namespace}/{CONTROLLER} have not ended")
        self.say(f"ended the controllers of Deployment {self._namespace}/{CONTROLLER}")

    async def _nobody_leads(self) -> None:
        """Raise FixError if the lease is held and renewed: a controller would write the configurations again."""
        before = await self._lease_record()
        if before is None:
            return
        spec = before["spec"]
        await asyncio.sleep(float(spec.get("leaseDurationSeconds") or 0))
        now = await self._lease_record()
        if now is not None and now["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise FixError(
                f"a controller leads still: {now['spec'].get('holderIdentity')} renews Lease"
                f" {self._namespace}/{self.settings.lease.name}; end it, and run this again (nothing is removed yet)"
            )

    async def _lease_record(self) -> Json | None:
        """Return the lease if it is held."""
        try:
            found = await self.connection.get(self._lease)
        except GoneError:
            return None
        return found if (found.get("spec") or {}).get("holderIdentity") else None

    # The objects that controllers leave behind.

    async def _release(self, queues: Sequence[Meta]) -> None:
        """Remove the finalizer from the queues, which no controller would do when they are deleted later."""
        writer = QueueFinalizerWriter(self.connection)
        for queue in queues:
            await writer.release(queue)
            self.say(f"removed the finalizer of Queue {queue.name}")

    async def _withdraw_requests(self) -> None:
        """Delete what Cluster Autoscaler was asked for: it would go on booking nodes for gangs that nobody lets in."""
        writer = ProvisioningRequestWriter(self.connection)
        for request in await writer.found():
            await writer.delete(request)
            self.say(f"removed ProvisioningRequest {request.meta.key}")
        for template in await writer.delete_unused(()):
            self.say(f"removed PodTemplate {template}")

    async def _release_nodes(self) -> None:
        """Remove from nodes what keeps autoscalers from taking them away, which no controller would do any more."""
        writer = NodeWriter(self.connection)
        async with aclosing(self.connection.pages("/api/v1/nodes", limit=NODES_PER_PAGE)) as pages:
            marked = [node async for page in pages for node in map(nodes.decode, page["items"]) if is_marked(node)]
        for node in marked:
            await writer.release(node)
            self.say(f"removed the annotations for autoscalers of Node {node.name}")

    async def _delete(self, path: str) -> None:
        try:
            await self.connection.delete(path)
        except GoneError:
            return
        plural, name = path.split("/")[-2:]
        self.say(f"removed {plural.removesuffix('s')} {name}")

    async def _remove_crds(self) -> None:
        for name in CRDS:
            await self._delete(paths.join(crd_installer.COLLECTION, name))

        async def left() -> object:
            return [name for name in CRDS if await self._exists(paths.join(crd_installer.COLLECTION, name))]

        await _wait_none(left, "not all CRDs are gone: an object of theirs has a finalizer of somebody else's")

    async def _exists(self, path: str) -> bool:
        try:
            await self.connection.get(path)
        except GoneError:
            return False
        return True


async def _wait_none(left: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until nothing is left. Raises ClusterUnavailableError after END_SECONDS, with what was waited for."""
    if await bounded_wait.poll(left, lambda found: not found, seconds=END_SECONDS):
        raise ClusterUnavailableError(f"after {END_SECONDS:.0f} s, {what}; run this again")
