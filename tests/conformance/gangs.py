"""Recorded gangs: whether the planner says of each what a complete search said, by first fit or by choosing freely.

`pin`: devices are kube-scheduler's to choose, first fit. `allocate`: they are Muster's; then gangs are feasible too
that were recorded to fit with devices chosen at will. A plan is accepted only if it can be carried out pod after pod:
the allocator must give the very devices that it names, or an independent checker must have nothing against them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.gangs import PlannedPod
from admission.api.values.names import Uid
from admission.dra import gang_planner
from admission.dra.allocator import node_allocator, prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.conformance import corpus
from tests.conformance.corpus import Record
from tests.property import checker

STEPS = 20_000

PLACEMENTS: Mapping[str, Choice] = {"pin": Choice.FIRST_FIT, "allocate": Choice.FREE}

HELD = (Kind.INFEASIBLE, Kind.BUSY)
"""Held with NoFeasiblePlacement or DevicesBusy."""


def difference(record: Record, release: Release, choice: Choice) -> str | None:
    """Return how the planner's answer differs from the recorded one; None where they agree."""
    pods, cluster = corpus.gang(record), corpus.cluster(record, release)
    selectors = Selectors(cluster.profile.cel)
    answer = gang_planner.plan(pods, cluster, selectors=selectors, steps=STEPS, choice=choice)
    if not is_feasible(record, choice):
        if isinstance(answer, Plan):
            return f"expected no plan ({record['expect']['reason']})\n       got {_told(answer)}"
        found = gang_planner.diagnose(answer, pods, cluster, selectors=selectors, steps=STEPS, choice=choice)
        expected = _held(record)
        return None if found.kind in expected else f"expected {expected}\n       got {found.kind}: {found.message}"
    if isinstance(answer, NoPlan):
        return f"expected a plan ({record['expect']['reason']})\n       got {answer.kind}: {answer.message}"
    problem = flaw_of(answer, pods, cluster, choice, record)
    return None if problem is None else f"expected a plan\n       got {_told(answer)}: {problem}"


def is_feasible(record: Record, choice: Choice) -> bool:
    """Return whether a plan was recorded to exist."""
    expect = record["expect"]
    if choice is Choice.FREE and "feasibleWithFreeDeviceChoice" in expect:
        return bool(expect["feasible"] or expect["feasibleWithFreeDeviceChoice"])
    return bool(expect["feasible"])


def _held(record: Record) -> Sequence[Kind]:
    """Return how an infeasible gang may be held: only where something is in use it can be waited for."""
    in_use = record["allocated"] or record["sharedDevices"] or record["consumedCapacity"]
    return HELD if in_use else (Kind.INFEASIBLE,)


def flaw_of(plan: Plan, pods: Sequence[PodDemand], cluster: ClusterState, choice: Choice, record: Record) -> str | None:
    """Carry a plan out, pod after pod in its order; return what is wrong with it."""
    demands = {demand.pod.meta.uid: demand for demand in pods}
    if sorted(demands) != sorted(planned.uid for planned in plan.pods):
        return "it does not place every pod once"
    allocated: set[Uid] = set()
    for planned in plan.pods:
        fresh = [claim for claim in demands[planned.uid].claims if claim.meta.uid not in allocated]
        if [claim.uid for claim in planned.claims] != [claim.meta.uid for claim in fresh]:
            return f"the claims of pod {planned.pod} are others"
        match choice:
            case Choice.FIRST_FIT:
                after = _first_fit(planned, fresh, cluster)
            case Choice.FREE:
                after = _accepted(planned, fresh, cluster, record)
            case _:
                assert_never(choice)
        if isinstance(after, str):
            return after
        cluster = after
        allocated.update(claim.meta.uid for claim in fresh)
    return None


def _first_fit(planned: PlannedPod, fresh: Sequence[Claim], cluster: ClusterState) -> ClusterState | str:
    """Return the world after a pod, if kube-scheduler gives it the planned devices."""
    selectors = Selectors(cluster.profile.cel)
    found = node_allocator.allocate(fresh, planned.node, cluster, selectors=selectors, steps=STEPS)
    if not isinstance(found, Allocated):
        return f"pod {planned.pod} gets nothing on node {planned.node}"
    if found.devices != tuple(claim.devices for claim in planned.claims):
        return f"pod {planned.pod} gets {found.devices}"
    for claim, uses in zip(planned.claims, found.uses, strict=True):
        cluster = cluster_state.with_devices(cluster, uses, Holder(claim=claim.claim))
    return cluster


def _accepted(planned: PlannedPod, fresh: Sequence[Claim], cluster: ClusterState, record: Record) -> ClusterState | str:
    """Return the world after a pod, if the checker accepts its devices, and they make an allocation."""
    selectors = Selectors(cluster.profile.cel)
    for claim, given in zip(fresh, planned.claims, strict=True):
        chosen = [{"request": one.request, **_named(one.device)} for one in given.devices]
        if said := checker.objections(_asked(record, claim, planned, cluster), [chosen]):
            return f"claim {claim.meta.name} of pod {planned.pod}: {said}"
        result = prescribed.prescribed_allocation(claim, given.devices, planned.node, cluster, selectors=selectors)
        if not isinstance(result, AllocationResult):
            return f"pod {planned.pod}: {result}"
        uses = (one.use for one in result.given if one.use is not None)
        cluster = cluster_state.with_devices(cluster, uses, Holder(claim=claim.meta.key))
    return cluster


def _asked(record: Record, claim: Claim, planned: PlannedPod, cluster: ClusterState) -> Record:
    """Return one claim on one node as a question about an allocation, beside what is in use by now."""
    return {
        "features": record["features"],
        "classes": record["classes"],
        "slices": record["slices"],
        "node": next(node for node in record["nodes"] if node["metadata"]["name"] == planned.node),
        "claims": [_written(claim, record)],
        "allocated": [_named(device) for device in cluster.taken],
        "sharedDevices": [_named(device) for device, shares in cluster.shares.items() for _ in shares],
        "consumedCapacity": [
            {**_named(device), "capacity": _sum([dict(one.share) for one in shares if one.share is not None])}
            for device, shares in cluster.shares.items()
        ],
    }


def _written(claim: Claim, record: Record) -> dict[str, Any]:
    """Return the claim as the record has it: claims of different pods may have one name."""
    owner, _, name = claim.meta.uid.partition("/")
    owned = {pod["name"]: pod["claims"] for pod in record["pods"]} | {"shared": record["sharedClaims"]}
    return next(one for one in owned[owner] if not isinstance(one, str) and one["metadata"]["name"] == name)


def _sum(shares: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    names = {name for share in shares for name in share}
    return {name: str(sum(share.get(name, 0) for share in shares)) for name in sorted(names)}


def _named(device: DeviceId) -> dict[str, str]:
    return {"driver": device.driver, "pool": device.pool, "device": device.device}


def _told(plan: Plan) -> str:
    return ", ".join(f"{planned.pod} on {planned.node}" for planned in plan.pods)
