"""How many more gangs of one shape would find devices and quota now, and what stands free in pieces for them.

The dashboard reads no pods: of running gangs it knows the nodes and claims that their status names. So CPU, memory and
rules between pods do not count here, nor what waits; `muster capacity` counts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from admission.api.capacity.gang_shapes import GangShape
from admission.api.kubernetes import claims, pods
from admission.api.kubernetes.claims import DeviceRequest
from admission.api.muster.gangs import PlannedClaim, PlannedPod
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.muster.observed import ObservedGang, ObservedObjects
from admission.api.muster.queues import StopPolicy
from admission.api.muster.status_reports import MeterUse
from admission.api.snapshot import Snapshot
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.dra.metering import device_meters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Colocation, PodDemand, Topology
from admission.dra.state import cluster_state
from admission.dra.state.what_if import Belongings
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree
from admission.scheduling import fragments
from admission.scheduling.fragments import Fragments, FreeDevices, Movable, Move, Wanted

STEPS = 10_000
"""Of each plan."""

NO_PLACE = "there is no place for another one"

MOST_MOVED = 20
"""The most running gangs whose move is tried."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A gang of pods with so many devices of a class each."""

    pods: int
    devices: int
    device_class: str

    @property
    def title(self) -> str:
        return f"{self.pods}x{self.devices}:{self.device_class}"


def shape(pods: int | None, devices: int | None, device_class: str) -> Shape | None:
    """Return the shape of these numbers; None if it has no pods or devices, or more than are counted."""
    if not device_class or not 0 < (pods or 0) <= fragments.MOST_PODS or not 0 < (devices or 0) <= claims.MAX_RESULTS:
        return None
    return Shape(pods or 0, devices or 0, device_class)


def simple(gang: GangShape) -> Shape | None:
    """Return a shape from the books as one of pods with devices of one class; None if it says more than that."""
    if len(gang.pods) != 1 or len(gang.pods[0].claims) != 1:
        return None
    (spec,) = gang.pods[0].claims
    (request, *more) = spec.requests or (None,)
    if request is None or more or spec.constraints or len(request.alternatives) != 1:
        return None
    (only,) = request.alternatives
    is_plain = only == DeviceRequest(name=only.name, device_class=only.device_class, count=only.count)
    return shape(gang.size, only.count, only.device_class) if is_plain else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCapacity:
    """The answer for one shape. starts: gangs; is_bound: whether all that were tried do. stopped: by what, if not.

    moves: of gangs in any namespace.
    """

    starts: int
    is_bound: bool
    stopped: str
    free: Sequence[FreeDevices]
    moves: Sequence[Move]


def find(observed: ObservedObjects, shape: Shape | None, queue: QueueName) -> GangCapacity:
    """Return how many gangs of a shape would start; without a shape, what stands free.

    queue: the one that they enter; empty to leave quota out. It takes seconds in a large cluster.
    """
    running = [gang for gang in observed.gangs.values() if gang.report.plan]
    snapshot = _snapshot(observed, running)
    wanted = {shape.title: _wanted(shape)} if shape is not None else {}
    found = Fragments(
        cluster_state.build(snapshot, [_placement(snapshot, gang) for gang in running]),
        observed.slices.values(),
        wanted,
        _movable(snapshot, running),
        steps=STEPS,
        most_moved=MOST_MOVED,
    )
    if shape is None:
        return GangCapacity(starts=0, is_bound=False, stopped="", free=found.free(), moves=())
    if shape.device_class not in observed.classes:
        missing = f"there is no device class {shape.device_class}"
        return GangCapacity(starts=0, is_bound=False, stopped=missing, free=found.free(), moves=())
    starts, stopped = _within_quota(observed, queue, found, shape.title) if queue else _places(found, shape.title)
    return GangCapacity(
        starts=starts,
        is_bound=not stopped,
        stopped=stopped,
        free=found.free(),
        moves=found.moves(),
    )


def _places(found: Fragments, kind: str) -> tuple[int, str]:
    """Return how many gangs find a place, and why no more do; "" if all that were tried do."""
    starts, is_bound = found.starts(kind)
    return starts, "" if is_bound else NO_PLACE


def _within_quota(observed: ObservedObjects, queue: QueueName, found: Fragments, kind: str) -> tuple[int, str]:
    """Return how many gangs find a place for which a queue has quota, and why no more do; "" if all tried do."""
    own = observed.queues.get(queue)
    if own is None:
        return 0, f"there is no queue {queue}"
    tree = Tree.build(one.queue for one in observed.queues.values())
    if not tree.active(queue):
        return 0, f"queue {queue} is not active"
    starts, last = _charged(observed, tree, queue, found, kind)
    short = ""
    if last is not None and last.kind is Kind.OVER_QUOTA:
        numbers = last.details
        short = f"has {numbers['left']} {numbers['meter']} left, and a gang needs {numbers['needed']}"
    if any(tree.queues[name].stop_policy is not StopPolicy.NONE for name in tree.path(queue)):
        # Whoever lets it go on would meet the lack of quota next.
        return 0, f"queue {queue} is stopped" + (f", and {short}" if short and not starts else "")
    if last is None:
        return starts, ""
    no_place = NO_PLACE if last.kind is Kind.INFEASIBLE else last.message
    return starts, f"queue {queue} {short}" if short else no_place


def _charged(
    observed: ObservedObjects, tree: Tree, queue: QueueName, found: Fragments, kind: str
) -> tuple[int, NoPlan | None]:
    """Return how many gangs start by places and quota, whether or not the queue lets any, and why no more do."""
    meters = device_meters.compile_meters(one.meter for one in observed.meters.values())
    usage = QueueUsage(tree, {name: _usage(one.report.meters) for name, one in observed.queues.items()})
    starts = 0
    for answer in found.plans(kind, meters, partial(usage.charge_fits, queue)):
        if isinstance(answer, NoPlan):
            return starts, answer
        usage.charge(queue, answer.charge)
        starts += 1
    return starts, None


def _usage(meters: Mapping[MeterName, MeterUse]) -> dict[MeterName, int]:
    return {name: use.reserved + use.used for name, use in meters.items()}


def _wanted(shape: Shape) -> Wanted:
    """Return what a gang of a shape asks for."""
    found: list[PodDemand] = []
    for at in range(shape.pods):
        request = {"name": "devices", "exactly": {"deviceClassName": shape.device_class, "count": shape.devices}}
        meta = {"name": f"capacity-{at}", "namespace": "default", "uid": f"capacity-{at}"}
        claim = claims.decode({"metadata": meta, "spec": {"devices": {"requests": [request]}}})
        found.append(PodDemand(pod=pods.decode({"metadata": meta, "spec": {"containers": []}}), claims=(claim,)))
    return Wanted(pods=found)


def _snapshot(observed: ObservedObjects, running: Sequence[ObservedGang]) -> Snapshot:
    """Return a snapshot in which gangs have the pods that their status names."""
    found = {_uid(place): pods.decode(_pod(place)) for gang in running for place in gang.report.plan}
    return Snapshot(
        nodes=observed.nodes,
        classes=observed.classes,
        slices=observed.slices,
        claims=observed.claims,
        pods=found,
    )


def _uid(place: PlannedPod) -> Uid:
    """Return what stands for the UID of a pod, which no status has."""
    return Uid(place.pod)


def _pod(place: PlannedPod) -> dict[str, object]:
    namespace, _, name = place.pod.rpartition("/")
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": _uid(place)},
        "spec": {"nodeName": place.node, "containers": []},
        "status": {"phase": "Running"},
    }


def _claim_uid(snapshot: Snapshot, claim: PlannedClaim) -> Uid:
    known = snapshot.claims.get(claim.claim)
    return known.meta.uid if known is not None else Uid(claim.claim)


def _placement(snapshot: Snapshot, gang: ObservedGang) -> Placement:
    report = gang.report
    seats = [
        Seat(
            pod_uid=_uid(one),
            pod=one.pod,
            node=one.node,
            claims=tuple(_claim_uid(snapshot, claim) for claim in one.claims),
        )
        for one in report.plan
    ]
    holdings = [
        Holding(claim_uid=_claim_uid(snapshot, claim), claim=claim.claim, devices=claim.devices, charge={})
        for one in report.plan
        for claim in one.claims
    ]
    return Placement(
        gang_uid=report.uid,
        gang=report.key,
        queue=report.queue,
        reserved_at=gang.admitted_since or gang.meta.created,
        seats={seat.pod_uid: seat for seat in seats},
        holdings={holding.claim_uid: holding for holding in holdings},
    )


def _movable(snapshot: Snapshot, running: Sequence[ObservedGang]) -> Iterator[Movable]:
    """Yield the gangs with devices that could be moved by themselves, as far as their status says it.

    Left out are gangs of which a claim is not known, or is used by others, too, and those whose subgroups have domains.
    """
    for gang in running:
        plan, topology = gang.report.plan, gang.report.topology
        named = [claim.claim for one in plan for claim in one.claims]
        known = [snapshot.claims[name] for name in named if name in snapshot.claims]
        is_shared = any(len(claim.reserved_for) > len(plan) for claim in known)
        if not known or len(known) < len(named) or is_shared or (topology is not None and topology.subgroups):
            continue
        domain = topology.gang.request if topology is not None and topology.gang is not None else None
        pod_uids = frozenset(map(_uid, plan))
        yield Movable(
            gang=gang.key,
            devices=sum(len(claim.devices) for one in plan for claim in one.claims),
            nodes=tuple(sorted({one.node for one in plan})),
            wanted=Wanted(
                pods=[_demand(one, snapshot) for one in plan],
                topology=Topology(gang=Colocation(required=domain.required, preferred=domain.preferred))
                if domain is not None
                else None,
            ),
            belongings=Belongings(
                claims=frozenset(named),
                uids=frozenset(claim.meta.uid for claim in known),
                pods=pod_uids,
                placed=pod_uids,
            ),
        )


def _demand(place: PlannedPod, snapshot: Snapshot) -> PodDemand:
    pod = replace(snapshot.pods[_uid(place)], node=NodeName(""), phase="Pending")
    own = (snapshot.claims[claim.claim] for claim in place.claims)
    return PodDemand(pod=pod, claims=tuple(replace(claim, allocation=None, reserved_for=()) for claim in own))
