"""The gang planner against brute force: a gang is feasible if some order and some choice of nodes places all its pods.

Pod by pod, by the allocator and with its promise, which other tests judge. What is judged here is what the planner
leaves out: equal nodes, equal devices, orders that cannot differ, and points from which it believes that nothing comes.
And that nothing of a plan is lost between its grant, its booking and the allocations that follow.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, given, settings, strategies as st

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import MAX_RESULTS, Allocation, Claim
from admission.api.kubernetes.nodes import Resources
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.selectors import NodeSelector
from admission.dra import gang_planner
from admission.dra.allocator import allocation, node_allocator
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.allocator.results import StepsEndedError
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Plan, PodDemand, anything
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState, Left
from tests.builders import NOON
from tests.conformance import corpus
from tests.property.gangs import CLASSES, SLOT, Gang, gangs
from tests.unit.dra.clusters import a_meter, a_source
from tests.unit.dra.test_gang_planner import Upto

STEPS = 20_000
DEVICES = MeterName("devices")
RATES = [{"name": "cpu", "per": "1500m", "factor": 2}, {"name": SLOT}]
METERS = device_meters.compile_meters([a_meter(DEVICES, a_source("count", None, *CLASSES), resources=RATES)])


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None)
def test_a_gang_is_feasible_by_first_fit_where_some_order_and_nodes_are(release: Release, data: st.DataObject) -> None:
    event(judge(data.draw(gangs(release))))


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None)
def test_a_plan_by_first_fit_is_found_within_quota_where_there_is_one(release: Release, data: st.DataObject) -> None:
    event(judge(data.draw(gangs(release)), limited=True))


def judge(gang: Gang, *, limited: bool = False) -> str:
    """Compare the planner's answer with brute force; return what it was. limited: whether the gang has a quota."""
    limit = gang.limit if limited else None
    try:
        expected = any(_scenes(gang, limit))
    except StepsEndedError:
        return "too large"
    selectors = Selectors(gang.cluster.profile.cel)
    answer = gang_planner.plan(
        gang.pods,
        gang.cluster,
        meters=METERS if limited else device_meters.NONE,
        selectors=selectors,
        steps=STEPS,
        affordable=Upto(DEVICES, gang.limit) if limited else anything,
    )
    if isinstance(answer, NoPlan):
        assert answer.kind is not Kind.STEPS_ENDED
        assert not expected, answer
        gang_planner.diagnose(answer, gang.pods, gang.cluster, selectors=selectors, steps=STEPS)
        return answer.kind.value
    assert expected
    scene = replay(answer, gang)
    if limited:
        assert answer.charge.get(DEVICES, 0) == scene.paid <= gang.limit
    return "feasible"


def replay(plan: Plan, gang: Gang) -> "Scene":
    """Place the pods in planned order: each must be given the very devices that the plan says."""
    demands = {demand.pod.meta.uid: demand for demand in gang.pods}
    assert sorted(demands) == sorted(planned.uid for planned in plan.pods)
    scene, selectors = _start(gang), Selectors(gang.cluster.profile.cel)
    for planned in plan.pods:
        placed = _placed(demands[planned.uid], planned.node, scene, selectors)
        assert placed is not None
        scene, fresh, found = placed
        assert [claim.uid for claim in planned.claims] == [claim.meta.uid for claim in fresh]
        assert tuple(claim.devices for claim in planned.claims) == found.devices
        assert [plan.uses[claim.uid] for claim in planned.claims] == list(found.uses)
    return scene


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where brute force has come to.

    usable: where allocated claims may be used. left: resources. paid: for devices, and for what pods request of nodes.
    """

    cluster: ClusterState
    left: Left
    usable: Mapping[Uid, NodeSelector | None] = field(default_factory=dict)
    paid: int = 0

    @property
    def key(self) -> object:
        """Return what everything that may follow depends on."""
        shares = sorted((device, sorted(map(repr, found))) for device, found in self.cluster.shares.items())
        return (
            frozenset(self.cluster.taken),
            repr(shares),
            repr(self.left),
            repr(sorted(self.usable.items())),
            self.paid,
        )


def _start(gang: Gang) -> Scene:
    return Scene(cluster=gang.cluster, left={name: node.allocatable for name, node in gang.cluster.nodes.items()})


def _scenes(gang: Gang, limit: int | None) -> Collection[Scene]:
    """Return what the cluster looks like after all pods, for every order and all nodes. Raises StepsEndedError."""
    selectors = Selectors(gang.cluster.profile.cel)
    reached: dict[object, tuple[Scene, tuple[PodDemand, ...]]] = {None: (_start(gang), gang.pods)}
    for _ in gang.pods:
        found: dict[object, tuple[Scene, tuple[PodDemand, ...]]] = {}
        for scene, rest in reached.values():
            for demand in rest:
                others = tuple(other for other in rest if other is not demand)
                for node in scene.cluster.nodes:
                    placed = _placed(demand, node, scene, selectors)
                    if placed is not None and (limit is None or placed[0].paid <= limit):
                        found[placed[0].key, tuple(other.pod.meta.uid for other in others)] = (placed[0], others)
        reached = found
    return [scene for scene, _ in reached.values()]


def _placed(
    demand: PodDemand, name: NodeName, scene: Scene, selectors: Selectors
) -> tuple[Scene, list[Claim], Allocated] | None:
    """Return what a pod makes of the cluster on a node, the claims allocated for it, and what they are given."""
    labels, room, wanted = scene.cluster.nodes[name].meta.labels, scene.left[name], demand.pod.requests
    if any(labels.get(key) != value for key, value in demand.pod.node_selector.items()):
        return None
    if room is not None and any(amount > room.get(resource, 0) for resource, amount in wanted.items()):
        return None
    chosen = [scene.usable[claim.meta.uid] for claim in demand.claims if claim.meta.uid in scene.usable]
    if not all(selector is None or selector.matches(name, labels) for selector in chosen):
        return None
    fresh = [claim for claim in demand.claims if claim.meta.uid not in scene.usable]
    found = node_allocator.allocate(fresh, name, scene.cluster, selectors=selectors, steps=STEPS, certain=True)
    if not isinstance(found, Allocated):
        return None
    cluster = cluster_state.with_devices(scene.cluster, [t for uses in found.uses for t in uses], Holder(claim="gang"))
    usable = {claim.meta.uid: one.node_selector for claim, one in zip(fresh, found.claims, strict=True)}
    if room is not None:
        room = {resource: amount - wanted.get(resource, 0) for resource, amount in room.items()}
    after = Scene(
        cluster=cluster,
        left={**scene.left, name: room},
        usable={**scene.usable, **usable},
        paid=scene.paid + requested(wanted) + sum(not one.option.admin for part in found.claims for one in part.given),
    )
    return after, fresh, found


def requested(wanted: Resources) -> int:
    """Return what a pod pays at `RATES`: a slot 1, and three cores 4; of the sum a part counts as a whole."""
    return -(-(wanted.get(SLOT, 0) * 3_000 + wanted.get("cpu", 0) * 4) // 3_000)


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None)
def test_a_plan_uses_the_same_devices_when_granted_booked_and_allocated(release: Release, data: st.DataObject) -> None:
    event(judge_books(data.draw(gangs(release))))


def judge_books(gang: Gang) -> str:
    """Compare what is in use after a grant with what the ledger's placement says, claim after claim allocated."""
    selectors = Selectors(gang.cluster.profile.cel)
    plan = gang_planner.plan(gang.pods, gang.cluster, selectors=selectors, steps=STEPS)
    if not isinstance(plan, Plan):
        return "no plan"
    pods_ = {demand.pod.meta.uid: demand.pod for demand in gang.pods}
    wanted = {demand.pod.meta.uid: demand.claims for demand in gang.pods}
    granted = cluster_state.granted(gang.cluster, plan, pods_, "g/gang")
    booked = _booked(plan, wanted)
    known = {claim.meta.key: claim for claims_ in wanted.values() for claim in claims_}
    before = cluster = gang.cluster
    for place in [None, *plan.pods]:
        fresh = [c for c in wanted[place.uid] if known[c.meta.key].allocation is None] if place is not None else []
        if place is not None:
            found = node_allocator.allocate(fresh, place.node, cluster, selectors=selectors, steps=STEPS)
            assert isinstance(found, Allocated)
            for claim, one, uses in zip(fresh, found.claims, found.uses, strict=True):
                known[claim.meta.key] = replace(claim, allocation=_allocation(claim, one))
                cluster = cluster_state.with_devices(cluster, uses, Holder(claim=claim.meta.key))
        snapshot = replace(gang.snapshot, claims={**gang.snapshot.claims, **known}, pods=pods_)
        before = cluster_state.build(snapshot, [booked], profile=gang.cluster.profile, before=before)
        assert in_use(before) == in_use(granted)
        assert before.left == granted.left
        assert before.conflicted == ()
    assert in_use(before) == in_use(cluster)
    return "planned"


def in_use(cluster: ClusterState) -> object:
    shares = {
        device: sorted(repr(sorted((shared.share or {}).items())) for shared in found)
        for device, found in cluster.shares.items()
    }
    return set(cluster.taken), shares


def _booked(plan: Plan, wanted: Mapping[Uid, Sequence[Claim]]) -> Placement:
    return Placement(
        gang_uid=GangUid("gang"),
        gang="g/gang",
        queue=QueueName("queue"),
        seats={
            place.uid: Seat(
                pod_uid=place.uid, pod=place.pod, node=place.node, claims=tuple(c.meta.uid for c in wanted[place.uid])
            )
            for place in plan.pods
        },
        holdings={
            claim.uid: Holding(claim_uid=claim.uid, claim=claim.claim, devices=claim.devices, charge={})
            for place in plan.pods
            for claim in place.claims
        },
        reserved_at=NOON,
    )


def _allocation(claim: Claim, result: allocation.AllocationResult) -> Allocation | None:
    """Read the allocation as kube-scheduler would write it."""
    status = {"allocation": result.json([f"{claim.meta.uid}-{at}" for at in range(MAX_RESULTS)])}
    return claims.decode({"metadata": {"name": claim.meta.name}, "spec": {}, "status": status}).allocation
