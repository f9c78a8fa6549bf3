"""Which gangs a plan, or the proof that there is none, holds for: those that differ in names alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import PlacementMode
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import Toleration
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering.device_meters import compile_meters
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.checks import demand
from admission.workloads import gangs
from tests.builders import a_cluster
from tests.unit.dra.clusters import a_meter


def two(**job: Any) -> Snapshot:
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8)
    return builder.job("x", queue="q", pods=2).job("y", **{"queue": "q", "pods": 2, **job}).snapshot()


def demands(snapshot: Snapshot) -> list[tuple[PodDemand, ...]]:
    found = sorted(gangs.groups(snapshot, {}), key=lambda group: group.key)
    return [demand.demands(group, snapshot) for group in found]


def built(pods: tuple[PodDemand, ...], cluster: ClusterState | None = None, **how: Any) -> GangEquivalence | None:
    mode = how.get("mode", PlacementMode.AUTO)
    return equivalence.build(pods, mode, cluster or cluster_state.build(two(), ()), how.get("topology"))


def key(pods: tuple[PodDemand, ...], **how: Any) -> object:
    found = built(pods, **how)
    assert found is not None
    return found.key


def test_gangs_that_differ_in_names_alone_are_equivalent() -> None:
    one, other = demands(two())

    assert key(one) == key(other)


@pytest.mark.parametrize("job", [{"pods": 3}, {"gpus": 2}, {"cpu": "2"}], ids=str)
def test_gangs_of_other_pods_or_claims_are_not_equivalent(job: dict[str, Any]) -> None:
    one, other = demands(two(**job))

    assert key(one) != key(other)


CHANGES: dict[str, Callable[[Pod], Pod]] = {
    "a label of the node": lambda pod: replace(pod, node_selector={"zone": "a"}),
    "a toleration": lambda pod: replace(pod, tolerations=(Toleration(key="k", operator="Exists"),)),
    "the namespace": lambda pod: replace(pod, meta=replace(pod.meta, namespace="other")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_pod_that_may_go_elsewhere_makes_gangs_differ(change: Callable[[Pod], Pod]) -> None:
    one, (first, *others) = demands(two())

    assert key(one) != key((replace(first, pod=change(first.pod)), *others))


def test_gangs_that_ask_for_another_placement_are_not_equivalent() -> None:
    one, other = demands(two())

    assert key(one) != key(other, mode=PlacementMode.PIN)


def test_a_gang_that_shares_a_claim_is_not_equivalent_to_a_gang_with_a_claim_per_pod() -> None:
    one, (first, second) = demands(two())

    assert key(one) != key((first, replace(second, claims=first.claims)))


UNFRESH: dict[str, Callable[[Claim], Claim]] = {
    "without a UID": lambda claim: replace(claim, meta=replace(claim.meta, uid=Uid(""))),
    "reserved": lambda claim: replace(claim, reserved_for=("p",)),
}


@pytest.mark.parametrize("change", UNFRESH.values(), ids=UNFRESH)
def test_a_gang_with_a_claim_of_its_own_history_is_equivalent_to_none(change: Callable[[Claim], Claim]) -> None:
    (first, *others), _ = demands(two())

    assert built((replace(first, claims=tuple(map(change, first.claims))), *others)) is None


@pytest.mark.parametrize("known", ["pinned", "users"])
def test_a_gang_whose_claim_is_planned_or_used_is_equivalent_to_none(known: str) -> None:
    pods, _ = demands(two())
    uid = pods[0].claims[0].meta.uid
    state = cluster_state.build(two(), ())
    fields: dict[str, Any] = {known: {uid: frozenset({NodeName("a")})}}
    changed = replace(state, **fields)

    assert built(pods, state) is not None
    assert built(pods, changed) is None


def test_a_cached_plan_is_returned_with_the_names_of_the_equivalent_gang() -> None:
    one, other = demands(two())
    first, second = built(one), built(other)

    assert first is not None
    assert second is not None
    assert [pod.pod.meta.name for pod in first.pods] == ["x-0", "x-1"]
    assert [pod.pod.meta.name for pod in second.pods] == ["y-0", "y-1"]


def test_the_plan_of_pods_without_claims_is_returned_with_what_each_pod_takes_of_its_node() -> None:
    builder = a_cluster().node("a").queue("q").job("x", queue="q", pods=2, gpus=0).job("y", queue="q", pods=2, gpus=0)
    one, other = demands(builder.snapshot())
    first, second = built(one), built(other)
    assert first is not None
    assert second is not None
    rates = [a_meter("cores", resources=[{"name": "cpu"}])]
    state = cluster_state.build(builder.snapshot(), ())

    plan = gang_planner.plan(
        first.question, state, meters=compile_meters(rates), selectors=Selectors(state.profile.cel), steps=100
    )

    assert isinstance(plan, Plan)
    assert first.key == second.key
    for gang, name in ((first, "x"), (second, "y")):
        own = gang.plan(plan)
        assert [(held.claim_uid, held.claim) for held in own.holdings] == [
            (f"pod-{name}-{at}/device-plugin", f"team/{name}-{at}") for at in range(2)
        ]
        assert [(planned.uid, planned.node) for planned in own.pods] == [(f"pod-{name}-{at}", "a") for at in range(2)]
        assert own.charge == {"cores": 2}
