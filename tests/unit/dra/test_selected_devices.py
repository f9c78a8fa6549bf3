"""Devices that others name in their selectors: pods that could use any leave them alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from admission.dra import gang_planner
from admission.dra.equivalence import selected_devices
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.requests.kinds_of_use import KindsOfUse, Selection
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, a_cluster, a_pod, a_request

CARDS = f"device.driver == '{DRIVER}'"
BESIDE = {"cpu": 1_000}


def model(name: str) -> str:
    return f"device.attributes['{DRIVER}'].model == '{name}'"


def texts(name: str) -> tuple[str, ...]:
    return CARDS, model(name)


NAMED: KindsOfUse = (Selection((CARDS,), 8), Selection(texts("t4"), 16))
"""Half of all devices are asked for by any name, and as many T4 as there are."""


def gpus(name: str, count: int = 2, **device: Any) -> list[dict[str, Any]]:
    return [{"attributes": {"model": {"string": name}}, **device} for _ in range(count)]


def nodes(*models: str, cpus: Sequence[int] = (), **device: Any) -> ClusterBuilder:
    """Return a node of each model, in this order."""
    cluster = a_cluster()
    for at, name in enumerate(models):
        cpu = str(cpus[at]) if cpus else "64"
        cluster = cluster.node(f"n{at}-{name}", gpus=gpus(name, **device), allocatable={"cpu": cpu})
    return cluster


def pod(*names: str, cpu: str = "1") -> PodDemand:
    return a_pod("p", a_request("gpu", 1, *map(model, names)), requests={"cpu": cpu})


def node_of(
    cluster: ClusterBuilder,
    one: PodDemand,
    *,
    kinds_of_use: KindsOfUse = NAMED,
    beside: dict[str, int] = BESIDE,
    choice: Choice = Choice.FIRST_FIT,
    mute: bool = True,
) -> str:
    plan = gang_planner.plan(
        [one],
        cluster.cluster(),
        selectors=Selectors(),
        steps=STEPS,
        beside=beside,
        kinds_of_use=kinds_of_use,
        choice=choice,
        mute=mute,
    )
    assert isinstance(plan, Plan), plan
    return plan.pods[0].node


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("choice", Choice)
def test_a_pod_that_could_use_any_leaves_alone_what_others_name(choice: Choice, mute: bool) -> None:
    cluster = nodes("t4", "g2")

    assert node_of(cluster, pod(), choice=choice, mute=mute) == "n1-g2"
    assert node_of(cluster, pod("t4"), choice=choice, mute=mute) == "n0-t4"
    assert node_of(cluster, pod(), kinds_of_use=(), choice=choice, mute=mute) == "n0-t4"


@pytest.mark.parametrize("choice", Choice)
def test_with_fewest_free_first_what_others_name_does_not_count(choice: Choice) -> None:
    assert node_of(nodes("t4", "g2"), pod(), beside={}, choice=choice) == "n0-t4"


@pytest.mark.parametrize(("cpu", "node"), [("2", "n1-g2"), ("4", "n0-t4")], ids=["half a device", "all of one"])
def test_what_others_lose_weighs_as_much_as_what_is_stranded(cpu: str, node: str) -> None:
    """A device of T4 taken is half of one that others lose; on the other node CPUs for so much are short."""
    named = (Selection((CARDS,), 8), Selection(texts("t4"), 16))

    assert node_of(nodes("t4", "g2", cpus=(64, 3 if cpu == "2" else 4)), pod(cpu=cpu), kinds_of_use=named) == node


@pytest.mark.parametrize("choice", Choice)
def test_shares_of_devices_count_by_what_they_take(choice: Choice) -> None:
    cluster = nodes("t4", "g2", allowMultipleAllocations=True, capacity={"part": {"value": "1000"}})
    share = a_request("r", 1, capacity={"requests": {"part": "250"}})

    assert node_of(cluster, a_pod("p", share, requests={"cpu": "1"}), choice=choice) == "n1-g2"


LOST: dict[str, tuple[int, int, int]] = {
    "nothing where devices are asked for no more than others": (0, 1000, 0),
    "a quarter of a device": (2, 1000, 250),
    "a quarter of each of two": (2, 2000, 500),
    "all that is taken": (8, 1000, 1000),
}


@pytest.mark.parametrize(("excess", "taken", "lost"), LOST.values(), ids=LOST)
def test_of_devices_that_a_pod_takes_others_lose(excess: int, taken: int, lost: int) -> None:
    assert selected_devices.growth(excess, taken) == lost


@pytest.mark.parametrize("choice", Choice)
def test_devices_that_the_pod_cannot_use_do_not_count(choice: Choice) -> None:
    """Network cards of a node are in demand, and a pod for a GPU takes none of them."""
    card = {"attributes": {"model": {"string": "nic"}}}
    cluster = a_cluster()
    for at, more in enumerate(([card], [])):
        cluster = cluster.node(f"n{at}", gpus=[*gpus("g2"), *more], allocatable={"cpu": "64"})
    wanted = (Selection(texts("g2"), 16), Selection(texts("nic"), 16))

    assert node_of(cluster, pod("g2"), kinds_of_use=wanted, choice=choice) == "n0"


@pytest.mark.parametrize("choice", Choice)
def test_a_device_of_another_kind_beside_it_makes_no_model_more_wanted(choice: Choice) -> None:
    """Each pod asks for a GPU of any model and a network card, for which all ask; T4 stays for those who name it."""
    nic = {"attributes": {"model": {"string": "nic"}}}
    cluster = a_cluster()
    for node, name in (("a", "t4"), ("b", "g2")):
        cluster = cluster.node(node, gpus=[*gpus(name), nic], allocatable={"cpu": "64"})
    is_gpu = f"device.attributes['{DRIVER}'].model != 'nic'"
    kinds = (Selection((CARDS, is_gpu), 8), Selection(texts("t4"), 16), Selection(texts("nic"), 16))
    both = a_pod("p", a_request("gpu", 1, is_gpu), a_request("nic", 1, model("nic")), requests={"cpu": "1"})

    assert node_of(cluster, both, kinds_of_use=kinds, choice=choice) == "b"
