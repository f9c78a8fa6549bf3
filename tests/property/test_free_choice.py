"""The planner that chooses devices freely, against brute force: every node and every set of devices for every pod.

What devices satisfy a claim is judged by `dra.allocator.prescribed`, which other tests hold against a checker that
shares nothing with it; and every plan is judged by that checker here as well.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import pytest
from hypothesis import event, given, settings, strategies as st

from admission.api.kubernetes.claims import ALL, Claim, ClaimSpec, DeviceRequest, Request
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import NodeSelector, Taint
from admission.dra import gang_planner
from admission.dra.allocator import prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.prescribed import Misfit, Mismatch
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand, anything
from admission.dra.requests.kinds_of_use import KindsOfUse, Selection, Tie
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState, Left
from tests.conformance import corpus
from tests.property import checker
from tests.property.clusters import FEATURES
from tests.property.gangs import CLASSES, KEY, Gang, gangs
from tests.property.test_gangs import DEVICES, METERS, requested
from tests.unit.dra.test_gang_planner import Upto

STEPS = 20_000
LARGEST = 1_000
"""Scenes that brute force looks at before it gives up."""

PASSING = (Mismatch.IN_USE, Mismatch.COUNTERS, Mismatch.CAPACITY)
"""Flaws that say nothing against a device when nothing else is in use."""

KINDS_OF_USE: st.SearchStrategy[KindsOfUse] = st.sampled_from(
    [
        (),
        (Tie(KEY, (), 2, 256), Tie(KEY, (CLASSES["gpu"],), 3, 512)),
        (Selection((), 16), Selection((CLASSES["gpu"],), 24)),
    ]
)
"""What decides which plan is found."""

Chosen = tuple[RequestDevice, ...]


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_a_gang_is_feasible_by_free_choice_where_some_choice_is(release: Release, data: st.DataObject) -> None:
    event(judge(data.draw(gangs(release)), kinds_of_use=data.draw(KINDS_OF_USE)))


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_a_plan_by_free_choice_is_found_within_quota_where_there_is_one(release: Release, data: st.DataObject) -> None:
    event(judge(data.draw(gangs(release)), limited=True, kinds_of_use=data.draw(KINDS_OF_USE)))


def judge(gang: Gang, *, limited: bool = False, kinds_of_use: KindsOfUse = ()) -> str:
    """Compare the planner's answer with brute force; return what it was. limited: whether the gang has a quota."""
    choices = (Choice.FREE, Choice.FIRST_FIT)
    answer, first_fit = (_planned(gang, choice, limited=limited, kinds_of_use=kinds_of_use) for choice in choices)
    assert isinstance(answer, Plan) or not isinstance(first_fit, Plan)
    if isinstance(answer, Plan):
        paid = _replayed(answer, gang)
        if limited:
            assert answer.charge.get(DEVICES, 0) == paid <= gang.limit
        return "feasible, by chosen devices only" if isinstance(first_fit, NoPlan) else "feasible"
    found = _Force(gang, gang.limit if limited else None).exists()
    assert not found, answer
    assert answer.kind is not Kind.STEPS_ENDED or found is None
    return "too large" if found is None else answer.kind.value


def _planned(gang: Gang, choice: Choice, *, limited: bool, kinds_of_use: KindsOfUse) -> Plan | NoPlan:
    return gang_planner.plan(
        gang.pods,
        gang.cluster,
        meters=METERS if limited else device_meters.NONE,
        selectors=Selectors(gang.cluster.profile.cel),
        steps=STEPS,
        affordable=Upto(DEVICES, gang.limit) if limited else anything,
        choice=choice,
        beside={"cpu": 1000} if kinds_of_use else {},
        kinds_of_use=kinds_of_use,
    )


def _replayed(plan: Plan, gang: Gang) -> int:
    """Judge every claim of a plan beside those before it, by our judge and by another; return what the gang costs."""
    demands = {demand.pod.meta.uid: demand for demand in gang.pods}
    assert sorted(demands) == sorted(planned.uid for planned in plan.pods)
    scene, selectors = _start(gang), Selectors(gang.cluster.profile.cel)
    for planned in plan.pods:
        demand = demands[planned.uid]
        assert scene.lets(demand, planned.node)
        fresh = scene.fresh(demand)
        assert [claim.uid for claim in planned.claims] == [claim.meta.uid for claim in fresh]
        scene = scene.with_pod(demand, planned.node)
        for claim, given_ in zip(fresh, planned.claims, strict=True):
            assert _objections(claim, given_.devices, planned.node, scene.cluster, gang) == []
            result = prescribed.prescribed_allocation(
                claim, given_.devices, planned.node, scene.cluster, selectors=selectors
            )
            assert isinstance(result, AllocationResult), result
            assert tuple(one.request_device for one in result.given) == given_.devices
            assert tuple(one.use for one in result.given if one.use) == plan.uses[claim.meta.uid]
            scene = scene.with_claim(claim, result)
    return scene.paid


def _objections(
    claim: Claim, given_: Sequence[RequestDevice], node: NodeName, cluster: ClusterState, gang: Gang
) -> list[str]:
    """Return what the checker has against devices for a claim; what it wants of administrators does not count."""
    objects = gang.objects
    shares = [(_named(device), shared) for device, found in cluster.shares.items() for shared in found]
    record = {
        "features": dict.fromkeys(FEATURES, True) | {"ListTypeAttributes": False},
        "node": next(one for one in objects["nodes"] if one["metadata"]["name"] == node),
        "classes": objects["classes"],
        "slices": objects["slices"],
        "claims": [one for one in objects["claims"] if one["metadata"]["name"] == claim.meta.name],
        "allocated": [_named(device) for device in cluster.taken],
        "sharedDevices": [named for named, _ in shares],
        "consumedCapacity": [
            {**_named(device), "capacity": {"memory": str(sum((one.share or {}).get("memory", 0) for one in found))}}
            for device, found in cluster.shares.items()
        ],
    }
    said = checker.objections(record, [[{"request": one.request, **_named(one.device)} for one in given_]])
    free = any(option.admin_access for request in claim.spec.requests for option in request.alternatives)
    return [sentence for sentence in said if not (free and ("counters of" in sentence or "would be used" in sentence))]


def _named(device: DeviceId) -> dict[str, str]:
    return {"driver": device.driver, "pool": device.pool, "device": device.device}


def _start(gang: Gang) -> "Scene":
    return Scene(cluster=gang.cluster, left={name: node.allocatable for name, node in gang.cluster.nodes.items()})


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where brute force has come to. usable: where allocated claims may be used. left: resources. paid: see METERS."""

    cluster: ClusterState
    left: Left
    usable: Mapping[Uid, NodeSelector | None] = field(default_factory=dict)
    paid: int = 0

    @property
    def key(self) -> object:
        shares = sorted((device, sorted(map(repr, found))) for device, found in self.cluster.shares.items())
        return (
            frozenset(self.cluster.taken),
            repr(shares),
            repr(self.left),
            repr(sorted(self.usable.items())),
            self.paid,
        )

    def lets(self, demand: PodDemand, node: NodeName) -> bool:
        """Return whether nothing but devices keeps a pod off a node."""
        labels, room = self.cluster.nodes[node].meta.labels, self.left[node]
        selectors = [self.usable[claim.meta.uid] for claim in demand.claims if claim.meta.uid in self.usable]
        return (
            all(labels.get(key) == value for key, value in demand.pod.node_selector.items())
            and (room is None or all(amount <= room.get(name, 0) for name, amount in demand.pod.requests.items()))
            and all(selector is None or selector.matches(node, labels) for selector in selectors)
        )

    def fresh(self, demand: PodDemand) -> list[Claim]:
        return [claim for claim in demand.claims if claim.meta.uid not in self.usable]

    def with_pod(self, demand: PodDemand, node: NodeName) -> "Scene":
        wanted, room = demand.pod.requests, self.left[node]
        if room is not None:
            room = {name: amount - wanted.get(name, 0) for name, amount in room.items()}
        return replace(self, left={**self.left, node: room}, paid=self.paid + requested(wanted))

    def with_claim(self, claim: Claim, result: AllocationResult) -> "Scene":
        uses = [one.use for one in result.given if one.use is not None]
        return replace(
            self,
            cluster=cluster_state.with_devices(self.cluster, uses, Holder(claim=claim.meta.key)),
            usable={**self.usable, claim.meta.uid: result.node_selector},
            paid=self.paid + sum(not one.option.admin for one in result.given),
        )


class _TooLargeError(Exception):
    pass


class _Force:
    """Tries everything. limit: what may be paid at most."""

    def __init__(self, gang: Gang, limit: int | None) -> None:
        self._gang = gang
        self._limit = limit
        self._selectors = Selectors(gang.cluster.profile.cel)
        self._seen: set[object] = set()
        self._matching: dict[object, list[DeviceId]] = {}
        self._looks = 0

    def exists(self) -> bool | None:
        """Return whether some nodes and devices do for the gang; None where there is too much to try."""
        try:
            return self._goes_on(_start(self._gang), self._gang.pods)
        except _TooLargeError:
            return None

    def _goes_on(self, scene: Scene, rest: Sequence[PodDemand]) -> bool:
        if not rest:
            return True
        key = (scene.key, tuple(demand.pod.meta.uid for demand in rest))
        if key in self._seen:
            return False
        self._seen.add(key)
        # Only who brings a shared claim can make a difference to which pod is the next.
        nexts = rest if any(n > 1 for n in Counter(c.meta.uid for d in rest for c in d.claims).values()) else rest[:1]
        return any(
            self._goes_on(after, [other for other in rest if other is not demand])
            for demand in nexts
            for node in scene.cluster.nodes
            if scene.lets(demand, node)
            for after in self._served(scene.with_pod(demand, node), scene.fresh(demand), node)
        )

    def _served(self, scene: Scene, claims: Sequence[Claim], node: NodeName) -> Iterator[Scene]:
        if self._limit is not None and scene.paid > self._limit:
            return
        if not claims:
            yield scene
            return
        for chosen in self._sets(claims[0], node):
            self._looks += 1
            if self._looks > LARGEST:
                raise _TooLargeError
            result = prescribed.prescribed_allocation(claims[0], chosen, node, scene.cluster, selectors=self._selectors)
            if isinstance(result, AllocationResult):
                yield from self._served(scene.with_claim(claims[0], result), claims[1:], node)

    def _sets(self, claim: Claim, node: NodeName) -> Iterator[Chosen]:
        ways = [list(self._of_request(request, node)) for request in claim.spec.requests]
        return (tuple(one for part in parts for one in part) for parts in product(*ways))

    def _of_request(self, request: Request, node: NodeName) -> Iterator[Chosen]:
        for option in request.alternatives:
            name = f"{request.name}/{option.name}" if request.first_available else request.name
            devices = self._matches(option, node)
            for found in combinations(devices, len(devices) if option.mode == ALL else option.count):
                yield tuple(RequestDevice(request=name, device=device) for device in found)

    def _matches(self, option: DeviceRequest, node: NodeName) -> list[DeviceId]:
        """Return the devices that do for an option where nothing is in use, and whose pod is let live."""
        key = (repr(option), node)
        if key not in self._matching:
            free = what_if.empty(self._gang.cluster)
            single = replace(option, name="r", count=1, mode="ExactCount")
            claim = Claim(
                meta=self._gang.pods[0].pod.meta,
                spec=ClaimSpec(requests=(Request(name="r", alternatives=(single,)),)),
            )
            self._matching[key] = [
                listed.id
                for pool in free.node_inventories[node].pools
                for listed in pool.listed_devices
                if not _evicts(option, listed.device.taints) and self._does(claim, listed.id, node, free)
            ]
        return self._matching[key]

    def _does(self, claim: Claim, device: DeviceId, node: NodeName, cluster: ClusterState) -> bool:
        one = RequestDevice(request="r", device=device)
        found = prescribed.prescribed_allocation(claim, [one], node, cluster, selectors=self._selectors)
        return not isinstance(found, Misfit) or found.problem in PASSING


def _evicts(option: DeviceRequest, taints: Sequence[Taint]) -> bool:
    """Return whether a taint has the pod deleted: no toleration names the effect."""
    named = any(toleration.effect == "NoExecute" for toleration in option.tolerations)
    return not named and any(taint.effect == "NoExecute" for taint in taints)
