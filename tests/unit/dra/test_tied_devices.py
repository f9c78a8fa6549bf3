"""Claims that tie devices by an attribute, as those of one PCIe root: what stays of use to them."""

from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId
from admission.dra import gang_planner
from admission.dra.allocator.results import Match
from admission.dra.equivalence import tied_devices
from admission.dra.freechoice import group_choice
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.requests.kinds_of_use import Tie, Ties
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import DRIVER, STEPS, a_claim, a_cluster, a_pod, a_request

ROOT = "resource.kubernetes.io/pcieRoot"
BESIDE = {"cpu": 1_000}
CARDS = (f"device.driver == '{DRIVER}'",)
PAIRS: Ties = (Tie(ROOT, CARDS, 2, 500),)
FOURS: Ties = (Tie(ROOT, CARDS, 4, 500),)


def on_roots(*roots: str, **device: Any) -> list[dict[str, Any]]:
    return [{"attributes": {ROOT: {"string": root}}, **device} for root in roots]


def taken(state: ClusterState, node: str, *gpus: int) -> ClusterState:
    uses = [DeviceUse(device=DeviceId(DRIVER, node, f"gpu-{gpu}")) for gpu in gpus]
    return cluster_state.with_devices(state, uses, Holder(claim="others/claim", gang=""))


def tied(name: str, count: int) -> PodDemand:
    rule = [{"matchAttribute": ROOT}]
    return a_pod(name, a_claim(f"claim-{name}", a_request("gpu", count), constraints=rule), requests={"cpu": "1"})


def single(name: str, count: int = 1) -> PodDemand:
    return a_pod(name, count, requests={"cpu": "1"})


def planned(
    state: ClusterState,
    *pods: PodDemand,
    kinds_of_use: Ties,
    choice: Choice = Choice.FIRST_FIT,
    mute: bool = True,
    selectors: Selectors | None = None,
) -> Plan:
    plan = gang_planner.plan(
        pods,
        state,
        selectors=selectors or Selectors(),
        steps=STEPS,
        beside=BESIDE,
        kinds_of_use=kinds_of_use,
        choice=choice,
        mute=mute,
    )
    assert isinstance(plan, Plan), plan
    return plan


def given(plan: Plan) -> list[str]:
    """Return the devices of all claims, as `node/device`."""
    return [f"{one.device.pool}/{one.device.device}" for holding in plan.holdings for one in holding.devices]


WASTED: dict[str, tuple[Ties, tuple[int, ...], int]] = {
    "what is over of each group": (PAIRS, (0, 0, 0, 1), 500 * 2),
    "a group with too few": (FOURS, (0, 0, 0, 1, 1, 1, 1), 500 * 3),
    "nothing where groups are full": (FOURS, (0, 0, 0, 0, 1, 1, 1, 1), 0),
    "nothing of devices in no group": (PAIRS, (-1, -1, 0, 0), 0),
}


@pytest.mark.parametrize(("ties", "groups", "wasted"), WASTED.values(), ids=WASTED)
def test_expected_waste(ties: Ties, groups: tuple[int, ...], wasted: int) -> None:
    assert tied_devices.waste(ties, (groups,)) == wasted


def test_several_kinds_of_claims_add_up() -> None:
    groups = (0, 0, 0, 1)

    assert tied_devices.waste(PAIRS + FOURS, (groups, groups)) == 500 * 2 + 500 * 4
    assert tied_devices.growth(PAIRS + FOURS, (groups, groups), [3]) == -500 * 2


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("choice", Choice)
def test_a_single_device_is_taken_where_a_root_is_begun(choice: Choice, mute: bool) -> None:
    """Both nodes have three free devices; on one of them a pair of each root would be left whole."""
    state = (
        a_cluster().node("a", gpus=on_roots("x", "x", "y", "y")).node("b", gpus=on_roots("x", "x", "y", "y")).cluster()
    )
    state = taken(taken(state, "a", 3), "b", 0)

    one = planned(state, single("p"), kinds_of_use=(), choice=choice, mute=mute)
    other = planned(state, single("p"), kinds_of_use=PAIRS, choice=choice, mute=mute)

    # First fit breaks a pair of node a, and on node b takes the single one; a free choice finds single ones on both.
    assert given(one) == (["a/gpu-0"])
    assert given(other) == (["b/gpu-1"] if choice is Choice.FIRST_FIT else ["a/gpu-2"])


def test_where_muster_picks_small_claims_go_to_roots_that_are_begun() -> None:
    state = taken(a_cluster().node("a", gpus=on_roots(*"xxxxyyyy")).cluster(), "a", 4)

    assert given(planned(state, single("p"), kinds_of_use=(), choice=Choice.FREE)) == ["a/gpu-0"]
    assert given(planned(state, single("p"), kinds_of_use=FOURS, choice=Choice.FREE)) == ["a/gpu-5"]
    pods = [single(f"p-{at}") for at in range(3)]
    assert sorted(given(planned(state, *pods, kinds_of_use=FOURS, choice=Choice.FREE))) == [
        "a/gpu-5",
        "a/gpu-6",
        "a/gpu-7",
    ]


def test_where_muster_picks_a_claim_that_is_tied_gets_the_root_that_others_can_use_the_least() -> None:
    state = taken(a_cluster().node("a", gpus=on_roots(*"xxxxyyyy")).cluster(), "a", 4)
    ties = (*PAIRS, *FOURS)

    assert given(planned(state, tied("p", 2), kinds_of_use=(), choice=Choice.FREE)) == ["a/gpu-0", "a/gpu-1"]
    assert given(planned(state, tied("p", 2), kinds_of_use=ties, choice=Choice.FREE)) == ["a/gpu-5", "a/gpu-6"]
    assert given(planned(state, tied("p", 4), kinds_of_use=ties, choice=Choice.FREE)) == [
        f"a/gpu-{at}" for at in range(4)
    ]


def test_devices_of_several_claims_stay_apart() -> None:
    state = a_cluster().node("a", gpus=on_roots(*"xxxxyyyy")).cluster()
    pods = [single("a"), tied("b", 2), single("c", 3), tied("d", 2)]

    found = given(planned(state, *pods, kinds_of_use=(*PAIRS, *FOURS), choice=Choice.FREE))

    assert len({*found}) == len(found) == 8


def test_tied_devices_share_their_value_after_the_choice() -> None:
    state = taken(a_cluster().node("a", gpus=on_roots(*"xyxyxyxy")).cluster(), "a", 0)

    plan = planned(state, single("a"), tied("b", 3), tied("c", 3), kinds_of_use=FOURS, choice=Choice.FREE)

    roots = [sorted(int(one.device.device[-1]) % 2 for one in holding.devices) for holding in plan.holdings]
    assert sorted(roots, key=len) == [[1], [0, 0, 0], [1, 1, 1]] or sorted(roots, key=len) == [
        [1],
        [1, 1, 1],
        [0, 0, 0],
    ]


def test_attributes_of_other_devices_and_shared_devices_make_no_groups() -> None:
    shared = {"allowMultipleAllocations": True}
    cluster = a_cluster().node("a", gpus=on_roots("x", "x", "y", "y", **shared)).node("b", gpus=4)
    state = taken(taken(cluster.cluster(), "b", 3), "a", 3)

    for ties in ((), PAIRS, (Tie(ROOT, ("device.driver == 'other'",), 2, 500),)):
        assert given(planned(state, single("p"), kinds_of_use=ties)) == ["a/gpu-0"]


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("choice", Choice)
def test_a_root_is_whole_for_others_where_a_gang_may_have_some_of_its_devices(choice: Choice, mute: bool) -> None:
    def numbered(roots: str) -> list[dict[str, Any]]:
        return [{"attributes": {ROOT: {"string": root}, "index": {"int": at}}} for at, root in enumerate(roots)]

    whole = a_cluster().node("a", gpus=numbered("xxxx")).node("b", gpus=numbered("xxxxyyyy")).cluster()
    state, selectors = taken(whole, "b", 3, 7), Selectors()
    narrow = a_request("gpu", 1, f"device.attributes['{DRIVER}'].index < 2")
    pod = a_pod("p", narrow, requests={"cpu": "1"})

    def found(state: ClusterState) -> list[str]:
        return given(planned(state, pod, kinds_of_use=FOURS, choice=choice, mute=mute, selectors=selectors))

    assert found(state) == ["b/gpu-0"]
    # One that the pod cannot have is taken, so no root is whole.
    assert found(taken(state, "a", 3)) == ["a/gpu-0"]


def test_nodes_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = a_cluster()
    for at in range(20):
        builder.node(f"n{at:02}", gpus=on_roots(*"xxxxyyyy"))
    state, selectors, calls = builder.cluster(), Selectors(), list[int]()
    original = group_choice.chosen

    def chosen(ties: Ties, *rest: Any) -> Match:
        calls.append(len(ties))
        return original(ties, *rest)

    monkeypatch.setattr(group_choice, "chosen", chosen)

    for _ in range(2):
        # Pods of two kinds, both of which fit on one node.
        planned(state, single("a"), tied("b", 2), kinds_of_use=FOURS, choice=Choice.FREE, selectors=selectors)

    assert len(calls) == 3, "once for the nodes, and for the devices of either plan"


@pytest.mark.parametrize(("count", "first"), [(8, 33), (9, 0)])
def test_many_claims_on_a_node_with_many_devices_have_those_that_were_found(count: int, first: int) -> None:
    """The work has a bound: so many claims times 63 free devices."""
    state = taken(a_cluster().node("a", gpus=on_roots(*"x" * 32, *"y" * 32)).cluster(), "a", 32)

    plan = planned(state, single("p"), kinds_of_use=FOURS, choice=Choice.FREE)
    assert given(plan) == ["a/gpu-33"]
    plan = planned(state, a_pod("p", *[1] * count, requests={"cpu": "1"}), kinds_of_use=FOURS, choice=Choice.FREE)
    assert sorted(given(plan)) == sorted(f"a/gpu-{at}" for at in range(first, first + count))


def test_without_what_pods_request_beside_devices_nothing_changes() -> None:
    """The setting that keeps the order of before."""
    state = taken(a_cluster().node("a", gpus=on_roots(*"xxxxyyyy")).cluster(), "a", 4)

    plan = gang_planner.plan(
        [single("p")], state, selectors=Selectors(), steps=STEPS, kinds_of_use=FOURS, choice=Choice.FREE, mute=True
    )

    assert isinstance(plan, Plan)
    assert given(plan) == ["a/gpu-0"]
