"""A cluster whose autoscaler starts nodes for pending pods, and whose kube-scheduler gives them the devices there."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from admission.accounting.books import Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Holding
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import Taint
from admission.default_ports import NoFences
from admission.lifecycle import transitions
from admission.scheduling.capacity.node_needs import Bounds
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.fences import fence
from tests.unit.cycle.jobs import Jobs, Play

PODS = {"mode": "Pods", "timeout": "15m"}
WITHOUT_PAUSE = Bounds(pace=Bounds().pace * 0)


class Autoscaled(Jobs):
    """Nodes come when `add` is called; pods that are let in towards a shape are bound to nodes with its labels."""

    slow = False
    """Whether the Job controller makes pods again only when `replace_lost` is called for the second time."""
    _lacking: frozenset[str] = frozenset()
    """The Jobs that lacked pods when it was last called."""

    def pending(self) -> list[Pod]:
        """Return the pods for which an autoscaler would start nodes."""
        return [pod for pod in self._pods.values() if not (pod.gates or pod.node or pod.finished)]

    def towards(self) -> dict[str, dict[str, str]]:
        """Return where such pods may go, by name."""
        return {pod.meta.name: dict(pod.node_selector) for pod in self.pending()}

    def add(
        self, *nodes: str, shape: str = "x8", gpus: int = 8, labels: dict[str, str] | None = None, model: str = "a100"
    ) -> None:
        """Have nodes of a shape come, with the devices that they publish."""
        for name in nodes:
            made = a_cluster().node(name, gpus=gpus, labels=labels or {"type": shape}, model=model).snapshot()
            come = [replace(node, meta=replace(node.meta, created=self.now)) for node in made.nodes.values()]
            self.add_nodes(come, made.slices.values())

    def lose(self, name: str) -> None:
        """Have a node go, with the pods that were bound there; the Job controller makes these again."""
        self.without(node=name)
        self._end([pod for pod in self._pods.values() if pod.node == name])
        if not self.slow:
            self.replace_lost()

    def replace_lost(self) -> None:
        before, self._lacking = self._lacking, frozenset(name for name in self.made if self.lacks(name))
        for name in self._lacking & before if self.slow else self._lacking:
            self.replace(name)

    async def evict(self, pod: Pod, reason: str) -> None:
        """Delete a pod, which its Job counts as a failure."""
        await super().evict(pod, reason)
        owner = pod.meta.controller
        job = self._jobs.get(owner.uid) if owner is not None else None
        if job is not None:
            self._jobs[job.meta.uid] = replace(job, lost=job.lost + 1)

    def disrupt(self, name: str) -> None:
        """Have Karpenter begin to take a node away."""
        node = self._rest.nodes[NodeName(name)]
        going = replace(node, taints=(*node.taints, Taint(key="karpenter.sh/disrupted", value="", effect="NoSchedule")))
        self._rest = replace(self._rest, nodes={**self._rest.nodes, node.name: going})

    def bound(self) -> dict[str, str]:
        """Return the node of each pod that has one, by name."""
        return {pod.meta.name: str(pod.node) for pod in self._pods.values() if pod.node and not pod.finished}

    def schedule(self, book: Book) -> tuple[Pod, ...]:
        """Bind what is let in, on nodes that the books have and on those that have come."""
        done = super().schedule(book)
        for pod in self.pending():
            node = next((one for one in self._rest.nodes.values() if self._takes(one, pod)), None)
            if node is not None:
                self._bind(pod, node.name, book)
        return done

    def _takes(self, node: Node, pod: Pod) -> bool:
        labels = node.meta.labels
        return all(labels.get(key) == value for key, value in pod.node_selector.items()) and len(
            self._free(node.name)
        ) >= self._wanted(pod)

    def _wanted(self, pod: Pod) -> int:
        claims = [self._claims[f"{pod.meta.namespace}/{pod.claim_name(one)}"] for one in pod.claims]
        return sum(request.alternatives[0].count for claim in claims for request in claim.spec.requests)

    def _free(self, node: NodeName) -> list[DeviceId]:
        used = {one.device for claim in self._claims.values() if claim.allocation for one in claim.allocation.devices}
        devices = [
            DeviceId(one.driver, one.pool, device.name)
            for one in self._rest.slices.values()
            if one.node_name == node
            for device in one.devices
        ]
        return [device for device in devices if device not in used]

    def _bind(self, pod: Pod, node: NodeName, book: Book) -> None:
        free = self._free(node)
        placement = book.placements[book.owners[pod.meta.uid]]
        holdings: dict[Uid, Holding] = {}
        for one in pod.claims:
            claim = self._claims[f"{pod.meta.namespace}/{pod.claim_name(one)}"]
            count = claim.spec.requests[0].alternatives[0].count
            given, free = free[:count], free[count:]
            devices = tuple(RequestDevice(request=claim.spec.requests[0].name, device=device) for device in given)
            holdings[claim.meta.uid] = replace(placement.holdings[claim.meta.uid], devices=devices)
        known = transitions.index_devices(self._rest)
        self._allocate(pod, node, holdings, known)
        self._pods[pod.meta.uid] = replace(pod, node=node, phase="Running", ready=True, started=self.now)


class Asking(Play):
    """A leader without a fence, whose queue asks for nodes, and who looks in every cycle."""

    kind: type[Autoscaled] = Autoscaled

    def __init__(self, builder: ClusterBuilder, ledger: in_memory.Ledger | None = None, **jobs: dict[str, Any]) -> None:
        self.world = self.kind(builder)
        super().__init__(self.world, ledger)
        self._prepare()
        for name, job in jobs.items():
            self.world.submit(name, **{"queue": "q", "pods": 4, "gpus": 4, **job})

    def succeed(self) -> None:
        super().succeed()
        self._prepare()

    def _prepare(self) -> None:
        self.leader = replace(self.leader, ports=replace(self.leader.ports, fences=NoFences()))
        self.leader.settings.node_needs = WITHOUT_PAUSE


class Fenced(Autoscaled):
    """Its kube-scheduler gives devices behind the fence to nobody, and binds pods where their claims are allocated."""

    fenced = True

    def schedule(self, book: Book) -> tuple[Pod, ...]:
        if not self.fenced:
            return super().schedule(book)
        done: list[Pod] = []
        for pod in self.pending():
            claims = [self._claims[f"{pod.meta.namespace}/{pod.claim_name(one)}"] for one in pod.claims]
            allocations = [claim.allocation for claim in claims if claim.allocation is not None]
            if len(allocations) < len(claims):
                continue
            pools = {NodeName(one.device.pool) for found in allocations for one in found.devices}
            fitting = (name for name, node in self._rest.nodes.items() if pools <= {name} and self._suits(node, pod))
            node = next(fitting, None)
            if node is not None:
                self._allocate(pod, node, {}, {})
                self._pods[pod.meta.uid] = replace(pod, node=node, phase="Running", ready=True, started=self.now)
                done.append(self._pods[pod.meta.uid])
        return tuple(done)

    @staticmethod
    def _suits(node: Node, pod: Pod) -> bool:
        return all(node.meta.labels.get(key) == value for key, value in pod.node_selector.items())


class AskingBehindFence(Asking):
    """A leader who asks for nodes whose devices are behind a fence."""

    kind = Fenced
    world: Fenced

    def __init__(self, builder: ClusterBuilder, ledger: in_memory.Ledger | None = None, **jobs: dict[str, Any]) -> None:
        self.barriers = fence()
        super().__init__(builder, ledger, **jobs)

    def _prepare(self) -> None:
        super()._prepare()
        self.leader = replace(self.leader, ports=replace(self.leader.ports, fences=NoFences(self.barriers)))

    def put_up(self, since: datetime | None) -> None:
        """Put up the fence, or lift it."""
        self.barriers = fence(since) if since is not None else Barriers()
        self.world.fenced = since is not None
        self.leader = replace(self.leader, ports=replace(self.leader.ports, fences=NoFences(self.barriers)))
