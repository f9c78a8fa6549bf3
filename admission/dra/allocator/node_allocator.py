"""The allocation of one pod on one node, as kube-scheduler's allocator would answer, with its outcomes kept apart.

`gang_planner` searches over pods and nodes with the same parts. This module serves single pods: for explanations, for
allocations that Muster writes itself, and for comparison with the answers of Kubernetes' own code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values.names import NodeName
from admission.dra.allocator import allocation
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.results import Budget, DeadEnd, Failure, Match, Pick
from admission.dra.allocator.search import search
from admission.dra.equivalence import device_signature, node_usage
from admission.dra.equivalence.device_signature import Answer, DeviceSignature, DeviceSignatures, Layout
from admission.dra.equivalence.node_contents import Units, troubles
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.inventory.pools import NodeInventory
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import requests as requests_requests
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.requests import Fatal, Option, ParsedClaim, RequestRefusal
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class Allocated:
    """The status.allocation of each claim, with its devices in the order in which kube-scheduler writes them."""

    claims: tuple[AllocationResult, ...]

    @property
    def devices(self) -> tuple[tuple[RequestDevice, ...], ...]:
        """Return the devices of each claim."""
        return tuple(tuple(given.request_device for given in result.given) for result in self.claims)

    @property
    def uses(self) -> tuple[tuple[DeviceUse, ...], ...]:
        """Return what every claim makes unavailable to others."""
        return tuple(tuple(use for given in result.given if (use := given.use) is not None) for result in self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """This node does not take the pod; another one may. matching and free: devices of the node that match the request.

    conditions: why devices that are free were not taken. device: one of those. incomplete: pools of the node whose
    devices are not used since slices are missing. invalid: pools that contradict themselves; kube-scheduler then
    reports an error of the node.
    """

    claim: str
    request: str
    device_class: str
    needed: int
    matching: int
    free: int
    tainted: int
    conditions: tuple[Failure, ...] = ()
    device: DeviceId | None = None
    incomplete: str = ""
    invalid: str = ""

    @property
    def message(self) -> str:
        """Return the request that fails, and why, for people."""
        where = f"request {self.request} of claim {self.claim} needs {self.needed} of class {self.device_class}"
        broken = "; ".join(filter(None, (self.invalid, self.incomplete)))
        if not self.matching:
            tainted = f"{self.tainted} match, all tainted" if self.tainted else "no device matches"
            return f"{where}: {tainted}" + (f"; {broken}" if broken else "")
        example = f" ({self.device} for one)" if self.device is not None else ""
        reasons = " and ".join(why.value for why in self.conditions)
        return f"{where}: {self.matching} match, {self.free} free" + (f", and {reasons}{example}" if reasons else "")


Outcome = Allocated | NotHere | RequestRefusal


def allocate(
    claims: Sequence[Claim],
    node: NodeName,
    cluster: ClusterState,
    *,
    selectors: Selectors,
    steps: int,
    certain: bool = False,
) -> Outcome:
    """Allocate all unallocated claims of one pod on one node, all or nothing. Raises StepsEndedError.

    certain: return only devices that rest on no known defect of kube-scheduler.
    """
    return allocate_with(
        AllocatedOverlay(cluster), claims, node, cluster, selectors=selectors, steps=steps, certain=certain
    )


def allocate_with(
    usage: AllocatedOverlay,
    claims: Sequence[Claim],
    node: NodeName,
    cluster: ClusterState,
    *,
    selectors: Selectors,
    steps: int,
    certain: bool = False,
) -> Outcome:
    """Allocate as `allocate` does, beside these devices in use instead of those of the cluster state."""
    parsed_claims = compile_claims(claims, cluster)
    if isinstance(parsed_claims, Fatal):
        return parsed_claims
    need = device_signature.Need(
        requests_requests.parsed_requests(parsed_claims),
        requests_requests.attributes(parsed_claims),
        profile=cluster.profile,
    )
    known = device_signature.build(need, selectors)
    view = NodeView(cluster, node, known, usage)
    units = Units(known)
    contents = node_usage.contents_of(view.layout, units, view.usage, cluster)
    found = search(parsed_claims, contents, units, cluster.profile, Budget(steps), certain=certain)
    return outcome(found, claims, parsed_claims, view)


def compile_claims(claims: Sequence[Claim], cluster: ClusterState) -> tuple[ParsedClaim, ...] | Fatal:
    """Return a pod's claims, parsed."""
    parsed_claims: list[ParsedClaim] = []
    for claim in claims:
        found = requests_requests.parse(claim.spec, cluster.classes, f"claim {claim.meta.name}", cluster.profile)
        if isinstance(found, Fatal):
            return found
        parsed_claims.append(found)
    return tuple(parsed_claims)


class NodeView:
    """One node as one pod's claims see it. shown: the places in its layout that a search was given, by default all."""

    def __init__(
        self,
        cluster: ClusterState,
        node: NodeName,
        known: DeviceSignatures,
        usage: AllocatedOverlay,
        shown: Sequence[int] | None = None,
    ) -> None:
        self.node = node
        self.cluster = cluster
        self.device_signatures = known
        self.usage = usage
        self.node_inventory = cluster.node_inventories.get(node, NodeInventory())
        self.layout: Layout = known.layout(self.node_inventory)
        self.listed_devices, self.numbers = self.layout.listed_devices, self.layout.numbers
        self.shown: Sequence[int] = range(len(self.listed_devices)) if shown is None else shown


def outcome(
    found: Match | DeadEnd | RequestRefusal,
    claims: Sequence[Claim],
    parsed_claims: Sequence[ParsedClaim],
    view: NodeView,
) -> Outcome:
    """Return the result of a search on a node, with the names of devices and requests."""
    if isinstance(found, Match):
        return Allocated(tuple(_result(*one, view) for one in zip(claims, parsed_claims, found.picks, strict=True)))
    return _not_here(found, claims, parsed_claims, view) if isinstance(found, DeadEnd) else found


def _result(claim: Claim, parsed_claim: ParsedClaim, picks: Sequence[Pick], view: NodeView) -> AllocationResult:
    given = [
        _given(parsed_claim.requests[pick.request].options[pick.option], view.shown[pick.at], view) for pick in picks
    ]
    return allocation.build(claim, parsed_claim, given, view.node, view.cluster.classes, view.cluster.profile)


def _given(option: Option, at: int, view: NodeView) -> allocation.AllocatedRequest:
    listed, signature = view.listed_devices[at], _signature(at, view)
    return allocation.AllocatedRequest(
        option,
        listed,
        shared=signature.shared,
        consumed=signature.consumed(view.device_signatures.parsed_requests[option.parsed]),
    )


def _not_here(
    dead_end: DeadEnd, claims: Sequence[Claim], parsed_claims: Sequence[ParsedClaim], view: NodeView
) -> NotHere:
    requests = parsed_claims[dead_end.claim].requests if parsed_claims else ()
    option = (
        requests[dead_end.request].options[0] if requests else Option("", requests_requests.ParsedRequest("", ()), 0)
    )
    parsed = view.device_signatures.parsed_requests[option.parsed] if requests else None
    answers = (
        [_signature(at, view).answers[parsed] for at in range(len(view.listed_devices))] if parsed is not None else []
    )
    matching = [at for at, answer in enumerate(answers) if answer is Answer.YES]
    trouble = troubles(view.node_inventory)[view.cluster.profile.known_bugs.foreign_counters]
    return NotHere(
        claim=claims[dead_end.claim].meta.name if claims else "",
        request=option.name,
        device_class=option.parsed.device_class,
        needed=option.count,
        matching=len(matching),
        free=sum(not view.usage.is_taken(view.listed_devices[at].id) for at in matching),
        tainted=answers.count(Answer.TAINTED),
        conditions=tuple(sorted(dead_end.reasons, key=lambda why: why.name)),
        device=view.listed_devices[view.shown[dead_end.at]].id if dead_end.at is not None else None,
        incomplete=trouble.incomplete,
        invalid=trouble.invalid,
    )


def _signature(at: int, view: NodeView) -> DeviceSignature:
    return view.device_signatures.known[view.numbers[at]]
