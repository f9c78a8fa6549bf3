"""A small cluster whose devices may be fenced, with a kube-scheduler that chooses for itself and pods outside Muster.

Everybody may act between any two writes of a controller that dies, and what it wrote last may arrive much later.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from admission import default_ports
from admission.api.kubernetes import device_taint_rules
from admission.api.kubernetes.claims import AllocatedDevice, Allocation, Claim
from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import DeviceId, RequestDevice, Slice
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.values.names import HOSTNAME, QUEUE, NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.errors import ConflictError, GoneError
from admission.lifecycle import transitions
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import CLASS, ClusterBuilder, a_cluster
from tests.property.faulty_clusters import Fault, Faults
from tests.unit.cycle.fences import KilledError

Late = Callable[[], Awaitable[Any]]
"""A write that was sent and did not arrive yet."""

WRITES = frozenset({"open_gate", "allocate", "deallocate", "close_gate"})


@dataclass(slots=True)
class Post:
    """A port to the cluster whose sender may die, or give up waiting, while a write is still under way."""

    cluster: in_memory.Cluster
    faults: Faults
    error: type[Exception]
    under_way: list[Late] = field(default_factory=list)
    deadly: str = ""
    """The write whose sender dies next, while it is under way."""
    meanwhile: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What others do before the n-th call from now on."""

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.cluster, name)

        async def called(*arguments: Any, **named: Any) -> Any:
            self._others_act()
            fault = Fault.DIES_BEFORE if name == self.deadly else self.faults.next()
            if fault in (Fault.DIES_BEFORE, Fault.REFUSED) and name in WRITES:
                self.under_way.append(lambda: call(*arguments, **named))
            if fault is Fault.DIES_BEFORE:
                raise KilledError
            if fault is Fault.REFUSED:
                raise self.error("refused, or so it seems")
            result = await call(*arguments, **named)
            if fault is Fault.DIES_AFTER:
                raise KilledError
            if fault is Fault.ANSWER_LOST:
                raise self.error("lost")
            return result

        return called

    def _others_act(self) -> None:
        act = self.meanwhile.pop(0, None)
        self.meanwhile = {at - 1: what for at, what in self.meanwhile.items()}
        if act is not None:
            act()

    async def deliver(self) -> None:
        """Let everything arrive that is still under way."""
        under_way, self.under_way[:] = list(self.under_way), []
        for late in under_way:
            try:
                await late()
            except (ConflictError, GoneError):
                continue


class Village(in_memory.Cluster):
    """A cluster in which kube-scheduler takes the first free devices of a node, unless they are fenced."""

    def __init__(self, builder: ClusterBuilder, ledger: in_memory.Ledger) -> None:
        super().__init__(builder.snapshot())
        self.ledger = ledger
        self.fences = default_ports.NoFences()
        self._whole: Mapping[str, Slice] = {}
        """The slices as they were before a device left one of them."""
        self.robbed: set[str] = set()
        """Claims that somebody has taken devices from."""

    # Fences.

    @property
    def fenced(self) -> bool:
        return CLASS in self.fences.barriers.rules

    def set_fence(self, now: datetime, *, wanted: bool) -> None:
        """Change the setting `fence`."""
        barriers = self.fences.barriers
        self.fences.barriers = (
            replace(barriers, fence=(CLASS,), policy=barriers.policy or now)
            if wanted
            else Barriers(rules=barriers.rules)
        )

    def keep_fence(self, now: datetime) -> None:
        """Let the fence stand or fall as the leader wants it."""
        barriers, wanted = self.fences.barriers, CLASS in self.fences.wanted
        if wanted is not self.fenced:
            self.fences.barriers = replace(barriers, rules={CLASS: now} if wanted else {})
            name = device_taint_rules.fence_name(CLASS)
            rule = TaintRule(meta=Meta(name=name), taint=device_taint_rules.FENCE, driver=CLASS)
            self._rest = replace(self._rest, taint_rules={name: rule} if wanted else {})

    # Muster.

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        """Open a gate; of a pod that has a row, and behind a fence only of a gang that has all its devices."""
        if pod.meta.uid not in self._pods:
            raise GoneError("gone")
        if not self._pods[pod.meta.uid].gated:
            return  # a late write changes nothing: the gang may have ended meanwhile, and its row with it
        book = self.ledger.book
        if self.fenced and self.fences.barriers.fence and pod.meta.uid in book.owners:
            seats = book.placements[book.owners[pod.meta.uid]].seats
            mates = [self._pods[uid] for uid in seats if uid in self._pods]
            lacking = [c.meta.key for mate in mates for c in self.claims_of(mate) if c.allocation is None]
            assert not set(lacking) - self.robbed, f"the gate of {pod.meta.key} opens while {lacking} have no devices"
        await super().open_gate(pod, node)
        assert pod.meta.uid in book.owners, f"the gate of {pod.meta.key} has opened without a row"

    # People.

    def submit(self, name: str, queue: str, *, pods: int, gpus: int) -> None:
        self._add(a_cluster().job(name, queue=queue, pods=pods, gpus=gpus))

    def submit_sharing(self, name: str, queue: str, *, pods: int, gpus: int) -> None:
        """Create a Job whose pods have one claim together, which nobody deletes with them."""
        made = a_cluster().job(name, queue=queue, pods=pods, gpus=gpus).snapshot()
        shared = next(iter(made.claims.values()))
        self._write(replace(shared, meta=replace(shared.meta, owners=())))
        uses = (PodClaim(name="gpus", claim=shared.meta.name),)
        self._pods |= {uid: replace(pod, claims=uses, generated_claims={}) for uid, pod in made.pods.items()}
        self._jobs |= made.jobs

    def submit_outside(self, name: str, *, gpus: int) -> None:
        """Create a pod that Muster does not know."""
        self._add(a_cluster().pod(name, gpus=gpus))
        (pod,) = (one for one in self._pods.values() if one.meta.name == name)
        labels = {key: value for key, value in pod.meta.labels.items() if key != QUEUE}
        self._pods[pod.meta.uid] = replace(pod, gates=(), meta=replace(pod.meta, labels=labels))

    def _add(self, builder: ClusterBuilder) -> None:
        more = builder.snapshot()
        self._pods |= more.pods
        self._jobs |= more.jobs
        for claim in more.claims.values():
            self._write(claim)

    def delete(self, pods: Iterable[Pod]) -> None:
        """Delete pods, and with them the claims that were made for them."""
        self._release_claims([self._pods.pop(pod.meta.uid) for pod in pods if pod.meta.uid in self._pods])

    def rob(self, claims: Iterable[Claim]) -> None:
        """Take devices of claims away, as somebody does who may write their status."""
        for claim in claims:
            self.robbed.add(claim.meta.key)
            self._write(replace(claim, allocation=None, reserved_for=()))

    def touch(self, claims: Iterable[Claim]) -> None:
        """Change nothing of claims that matters."""
        for claim in claims:
            self._write(claim)

    def lose(self, which: int) -> None:
        """Have a device leave its slice, unless one has."""
        slices = self._rest.slices
        devices = [(key, one) for key, piece in sorted(slices.items()) for one in piece.devices]
        key, lost = devices[which % len(devices)]
        if not self._whole:
            self._whole = slices
            left = tuple(one for one in slices[key].devices if one != lost)
            self._rest = replace(self._rest, slices={**slices, key: replace(slices[key], devices=left)})

    def find_again(self) -> None:
        """Have the device come back that has left its slice, if one has."""
        if self._whole:
            self._rest, self._whole = replace(self._rest, slices=self._whole), {}

    def _write(self, claim: Claim) -> None:
        """Write a claim as others do: in another version."""
        self._version += 1
        self._claims[claim.meta.key] = replace(claim, meta=replace(claim.meta, resource_version=str(self._version)))

    # kube-scheduler.

    def bind(self, pods: Iterable[Pod]) -> None:
        """Give pods that may run their devices and a node, if there are any for them."""
        for pod in pods:
            self._bind(self._pods[pod.meta.uid])

    def _bind(self, pod: Pod) -> None:
        pinned = pod.node_selector.get(HOSTNAME)
        for node in [NodeName(pinned)] if pinned else self._rest.nodes:
            given = self._given(pod, node)
            if given is not None:
                for claim in given:
                    self._write(replace(claim, reserved_for=(*claim.reserved_for, pod.meta.uid)))
                self._pods[pod.meta.uid] = replace(pod, node=node, phase="Running", ready=True)
                return

    def _given(self, pod: Pod, node: NodeName) -> list[Claim] | None:
        """Return the pod's claims as they would be on a node; None where it cannot run there."""
        given: list[Claim] = []
        free = self._free(node)
        claims = self.claims_of(pod)
        if node not in self._rest.nodes or len(claims) < len(pod.claims):
            return None
        for claim in claims:
            if claim.allocation is not None:
                if any(one.device.pool != node for one in claim.allocation.devices):
                    return None
                given.append(claim)
                continue
            count = sum(option.count for request in claim.spec.requests for option in request.alternatives)
            if self.fenced or len(free) < count:
                return None
            given.append(replace(claim, allocation=_allocation(free[:count], node)))
            del free[:count]
        return given

    def _free(self, node: NodeName) -> list[DeviceId]:
        devices = transitions.index_devices(self._rest)
        return sorted(device for device in devices if device.pool == node and device not in self.taken())

    # What is seen.

    def taken(self) -> Counter[DeviceId]:
        """Return how often each device is allocated."""
        return Counter(
            one.device for claim in self._claims.values() if claim.allocation for one in claim.allocation.devices
        )

    def claims_of(self, pod: Pod) -> list[Claim]:
        keys = (f"{pod.meta.namespace}/{pod.claim_name(claim)}" for claim in pod.claims)
        return [self._claims[key] for key in keys if key in self._claims]

    def allocated(self) -> list[Claim]:
        return [self._claims[key] for key in sorted(self._claims) if self._claims[key].allocation is not None]

    def unreserved(self) -> list[Claim]:
        return [claim for claim in self.allocated() if not claim.reserved_for]

    def unallocated(self) -> list[Claim]:
        return [self._claims[key] for key in sorted(self._claims) if self._claims[key].allocation is None]

    def everybody(self) -> list[Pod]:
        return sorted(self._pods.values(), key=lambda pod: pod.meta.key)

    def pending(self) -> list[Pod]:
        """Return the pods that kube-scheduler has still to bind."""
        return [pod for pod in self.everybody() if not (pod.gates or pod.node or pod.finished)]

    def running(self) -> list[Pod]:
        return [pod for pod in self.everybody() if pod.phase == "Running"]


def _allocation(devices: Iterable[DeviceId], node: NodeName) -> Allocation:
    here = Requirement(key="metadata.name", operator="In", values=(node,))
    return Allocation(
        devices=tuple(AllocatedDevice(given=RequestDevice(request="gpus", device=device)) for device in devices),
        node_selector=NodeSelector(terms=(NodeTerm(fields=(here,)),)),
    )
