"""The order of nodes by the devices that a pod strands: those for which a node has too little CPU or memory left."""

from collections.abc import Mapping
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId
from admission.dra import gang_planner
from admission.dra.allocator import stranded_devices
from admission.dra.allocator.results import Budget
from admission.dra.allocator.stranded_devices import Consumption, Fits, Unranked
from admission.dra.equivalence.node_contents import NodeContents
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.requests.kinds_of_use import Tie
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request

BESIDE = {"cpu": 8_000}
"""Eight cores beside each device."""

SHARED = {"allowMultipleAllocations": True, "capacity": {"part": {"value": "1000"}}}


def node_of(
    cluster: ClusterBuilder,
    *pods: PodDemand,
    beside: Mapping[str, int] = BESIDE,
    mute: bool = False,
    choice: Choice = Choice.FIRST_FIT,
) -> str:
    """Return the node of the last pod; each is granted before the next one is planned, as a gang of its own."""
    state, node = cluster.cluster(), ""
    for pod in pods:
        plan = gang_planner.plan(
            [pod], state, selectors=Selectors(), steps=STEPS, beside=beside, mute=mute, choice=choice
        )
        assert isinstance(plan, Plan), plan
        (place,) = plan.pods
        node, meta = place.node, pod.pod.meta
        state = cluster_state.granted(state, plan, {meta.uid: pod.pod}, meta.name)
    return node


def part(name: str, amount: int, cpu: str = "1") -> PodDemand:
    return a_pod(name, a_request("r", 1, capacity={"requests": {"part": str(amount)}}), requests={"cpu": cpu})


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize("mute", [False, True])
def test_a_pod_goes_where_it_strands_no_device(mute: bool, choice: Choice) -> None:
    """On the fuller node a pod of 12 cores leaves a device with 4 cores, where others want 8."""
    cluster = a_cluster().node("a", gpus=2, allocatable={"cpu": "16"}).node("b", gpus=4, allocatable={"cpu": "64"})
    pod = a_pod("p", 1, requests={"cpu": "12"})

    assert node_of(cluster, pod, mute=mute, choice=choice) == "b"
    assert node_of(cluster, pod, beside={}, mute=mute, choice=choice) == "a"


@pytest.mark.parametrize("mute", [False, True])
def test_of_nodes_with_equal_devices_the_one_whose_devices_are_stranded_already_is_filled_first(mute: bool) -> None:
    cluster = a_cluster().node("a", gpus=4, allocatable={"cpu": "64"}).node("b", gpus=4, allocatable={"cpu": "20"})

    assert node_of(cluster, a_pod("p", 1, requests={"cpu": "2"}), mute=mute) == "b"


def test_the_fullest_node_comes_first_where_nothing_is_stranded() -> None:
    cluster = a_cluster().node("a", gpus=4, allocatable={"cpu": "64"}).node("b", gpus=2, allocatable={"cpu": "64"})

    assert node_of(cluster, a_pod("p", 1, requests={"cpu": "8"})) == "b"


def test_a_share_goes_to_a_device_that_is_shared_already() -> None:
    """Though the other node has fewer devices."""
    cluster = a_cluster().node("a", gpus=[SHARED] * 2).node("b", gpus=[SHARED])

    assert node_of(cluster, part("p-0", 600), part("p-1", 600), part("p-2", 400)) == "b"
    assert node_of(cluster, part("p-0", 600), part("p-1", 700), part("p-2", 300)) == "a"


CONSUMED: dict[str, tuple[Consumption, int | None, int | None, int]] = {
    "nothing where resources have no limit": (Consumption(3000, 1000, 1, 0, 3), None, None, 0),
    "nothing where enough is left for the rest": (Consumption(3000, 1000, 1, 0, 3), 3000, 2000, 0),
    "the rest of a node without anything left": (Consumption(3000, 1000, 1, 0, 3), 3000, 0, 2000),
    "less than before where a stranded device is taken": (Consumption(3000, 1000, 1, 0, 3), 1000, 800, -800),
}


@pytest.mark.parametrize(("consumption", "before", "after", "growth"), CONSUMED.values(), ids=CONSUMED)
def test_what_is_stranded_grows_by(
    consumption: Consumption, before: int | None, after: int | None, growth: int
) -> None:
    assert stranded_devices.growth(consumption, before, after) == growth


SERVED: dict[str, tuple[dict[str, int] | None, dict[str, int], int | None]] = {
    "a node without limits": (None, {}, None),
    "the scarcest resource": ({"cpu": 16_000, "memory": 100}, {}, 1000),
    "with a pod": ({"cpu": 16_000, "memory": 1000}, {"cpu": 12_000}, 500),
    "a node that has none of it": ({"memory": 1000}, {}, 0),
}


@pytest.mark.parametrize(("left", "wants", "served"), SERVED.values(), ids=SERVED)
def test_resources_suffice_for(left: dict[str, int] | None, wants: dict[str, int], served: int | None) -> None:
    assert stranded_devices.served(left, {"cpu": 8_000, "memory": 100}, wants) == served


def halves(**cpus: str) -> ClusterBuilder:
    """Return nodes with a card each, which is given out in halves."""
    drawn: dict[str, Any] = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "4"}}}]}
    cluster = a_cluster()
    for name, cpu in cpus.items():
        cluster = cluster.node(name, allocatable={"cpu": cpu}).slice(name, [drawn, drawn], count=2, nodeName=name)
        cluster.slices.append(_counters(name))
    return cluster


@pytest.mark.parametrize("choice", Choice)
def test_half_of_a_card_is_stranded_where_a_partition_leaves_too_few_cpus_for_it(choice: Choice) -> None:
    pod = a_pod("p", 1, requests={"cpu": "6"})

    assert node_of(halves(a="8", b="64"), pod, choice=choice) == "b"
    assert node_of(halves(a="8", b="64"), pod, choice=choice, beside={}) == "a"


@pytest.mark.parametrize("choice", Choice)
def test_a_partition_goes_to_a_card_of_which_one_is_in_use(choice: Choice) -> None:
    first = a_pod("p-0", 1, requests={"cpu": "30"})

    assert node_of(halves(a="8", b="64"), first, a_pod("p-1", 1, requests={"cpu": "1"}), choice=choice) == "b"


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("used", ["a", "b"])
def test_a_card_of_which_a_half_is_in_use_is_not_taken_for_an_untouched_smaller_one(
    used: str, mute: bool, choice: Choice
) -> None:
    """Both have as much left, and only what their counters had says which is untouched."""
    untouched = "b" if used == "a" else "a"
    cluster = a_cluster()
    for name, total, parts in sorted([(used, 8, 2), (untouched, 4, 1)]):
        drawn = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "4"}}}]}
        cluster = cluster.node(name, allocatable={"cpu": "64"}).slice(name, [drawn] * parts, count=2, nodeName=name)
        cluster.slices.append(_counters(name, total=total))

    pod = a_pod("p", 1, requests={"cpu": "2"})

    assert node_of(cluster.taken(used, 1), pod, mute=mute, choice=choice) == used


def mixed(*sets: str) -> ClusterBuilder:
    """Return a node of four devices, and one of a card that is given out whole or in halves, by these counters."""
    whole, half = ({"counters": {"memory": {"value": amount}}} for amount in ("8", "4"))
    drawn = [{"consumesCounters": [{"counterSet": name, **one} for name in sets]} for one in (whole, half, half)]
    cluster = a_cluster().node("plain", gpus=4, allocatable={"cpu": "64"}).node("card", allocatable={"cpu": "64"})
    cluster = cluster.slice("card", drawn, count=2, nodeName="card")
    cluster.slices.append(_counters("card", *sets))
    return cluster


@pytest.mark.parametrize("sets", [("card",), ("card", "link")], ids=["of one set", "of several"])
@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("choice", Choice)
def test_a_card_in_partitions_is_begun_after_devices_that_have_none(
    choice: Choice, mute: bool, sets: tuple[str, ...]
) -> None:
    """Also where it is not known what of a card a pod takes, and though its node has fewer devices."""
    pods = [a_pod(f"p-{at}", 1, requests={"cpu": "2"}) for at in range(5)]

    assert node_of(mixed(*sets), *pods[:4], choice=choice, mute=mute) == "plain"
    assert node_of(mixed(*sets), *pods, choice=choice, mute=mute) == "card"


def _counters(name: str, *sets: str, total: int = 8) -> dict[str, Any]:
    memory = {"memory": {"value": str(total)}}
    counters = {"sharedCounters": [{"name": one, "counters": memory} for one in sets or ("card",)]}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    meta = {"name": f"{name}-counters", "uid": f"{name}-counters"}
    return {"metadata": meta, "spec": {"driver": "gpu.example.com", "nodeName": name, "pool": pool, **counters}}


def pairs(count: int, *sizes: int) -> list[PodDemand]:
    """Return pods for as many devices of one NUMA node as these sizes say in turn."""
    rule = [{"requests": ["gpu"], "matchAttribute": f"{DRIVER}/numa"}]
    claims = [a_claim(f"c-{at}", a_request("gpu", sizes[at % len(sizes)]), constraints=rule) for at in range(count)]
    return [a_pod(f"p-{at}", claim, requests={"cpu": "1"}) for at, claim in enumerate(claims)]


MISFITS = {"of one size": (17, (2,)), "of two sizes": (17, (2, 3)), "fewer than nodes": (6, (4,))}


@pytest.mark.parametrize(("count", "sizes"), MISFITS.values(), ids=MISFITS)
@pytest.mark.parametrize("choice", Choice)
def test_that_a_gang_does_not_fit_takes_no_more_steps_in_this_order(
    choice: Choice, count: int, sizes: tuple[int, ...]
) -> None:
    """The nodes have different CPUs, of which each has enough for what its devices can serve."""
    cluster = a_cluster()
    for at in range(8):
        gpus = [{"attributes": {"numa": {"int": numa}}} for numa in (0, 0, 0, 1, 1, 2, 3)]
        cluster.node(f"n-{at}", gpus=gpus, allocatable={"cpu": str(16 + at * 8), "pods": "100"})
    steps: list[int] = []
    pair = Tie(f"{DRIVER}/numa", (f"device.driver == '{DRIVER}'",), 2, 512)
    for beside, ties in (({}, ()), (BESIDE, ()), (BESIDE, (pair,))):
        answer = gang_planner.plan(
            pairs(count, *sizes),
            cluster.cluster(),
            selectors=Selectors(),
            steps=STEPS,
            choice=choice,
            mute=True,
            beside=beside,
            kinds_of_use=ties,
        )
        assert isinstance(answer, NoPlan)
        assert answer.kind is Kind.INFEASIBLE
        steps.append(answer.steps)

    assert max(steps[1:]) <= steps[0], steps


class Slow(Fits):
    """Takes 40 steps for each free device of a node."""

    ranks_by_free = True

    def _searched(self, claims: object, node_sig: NodeSignature, budget: Budget) -> Unranked:  # noqa: ARG002 - of the base
        budget.spend(40 * node_sig.free)
        return Unranked.PARTITIONS


def test_a_search_that_only_puts_nodes_in_order_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stranded_devices, "RANK_STEPS", 90)
    nodes = [NodeSignature((), NodeContents(), free) for free in (2, 1, 3, 2)]

    found = [Slow({}).use((), node) for node in nodes]

    assert found == [Unranked.PARTITIONS, Unranked.PARTITIONS, Unranked.UNKNOWN, Unranked.PARTITIONS]


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize("bound", [-10, 8, 25, 40, 60])
def test_the_order_does_not_depend_on_which_nodes_were_seen_before(
    bound: int, choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair is found at once on every node, and no longer once its first device is taken, node after node.

    Whoever saw that searched the nodes one by one, and a new leader all at once.
    """
    monkeypatch.setattr(stranded_devices, "RANK_STEPS", bound)
    cluster = a_cluster()
    for at in range(4):
        numas = (0, 0, *range(1, 6 - at), 9, 9)
        gpus = [{"attributes": {"numa": {"int": numa}}} for numa in numas]
        cluster.node(f"n-{at}", gpus=gpus, allocatable={"cpu": "96", "pods": "100"})
    state, kept, differ = cluster.cluster(), Selectors(), list[str]()

    for at in range(5):
        for pod in pairs(1, 2):
            plans = [
                gang_planner.plan(
                    [pod], state, selectors=selectors, steps=STEPS, choice=choice, mute=True, beside=BESIDE
                )
                for selectors in (kept, Selectors())
            ]
            nodes = [plan.pods[0].node for plan in plans if isinstance(plan, Plan)]
            assert len(nodes) == 2
            differ += [f"{at}: {nodes}"] if len({*nodes}) > 1 else []
        taken = DeviceUse(device=DeviceId(DRIVER, f"n-{at}", "gpu-0"))
        state = cluster_state.with_devices(state, [taken], Holder(claim="others/claim", gang="")) if at < 4 else state

    assert not differ


@pytest.mark.parametrize("choice", Choice)
def test_a_gang_has_its_plan_where_no_steps_are_left_to_put_nodes_in_order(
    choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded_devices, "RANK_STEPS", -100)
    cluster = a_cluster().node("a", gpus=2, allocatable={"cpu": "16"}).node("b", gpus=4, allocatable={"cpu": "64"})

    plan = gang_planner.plan(
        [a_pod("p-0", 3)], cluster.cluster(), selectors=Selectors(), steps=STEPS, choice=choice, beside=BESIDE
    )

    assert isinstance(plan, Plan)


def test_where_muster_picks_it_gives_the_shared_device_with_the_least_left() -> None:
    builder = a_cluster().node("a", gpus=[SHARED] * 2, allocatable={"cpu": "64"})
    state, selectors, given = builder.cluster(), Selectors(), list[str]()
    for number, amount in enumerate((300, 800, 150)):
        pod = part(f"p{number}", amount)
        plan = gang_planner.plan([pod], state, selectors=selectors, steps=STEPS, beside=BESIDE, choice=Choice.FREE)
        assert isinstance(plan, Plan)
        (holding,) = plan.holdings
        given.append(holding.devices[0].device.device)
        state = cluster_state.granted(state, plan, {pod.pod.meta.uid: pod.pod}, pod.pod.meta.name)

    assert given == ["gpu-0", "gpu-1", "gpu-1"]
