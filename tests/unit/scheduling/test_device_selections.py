"""How much is asked for by each set of selectors beside what it may have."""

from fractions import Fraction
from typing import Any

import pytest

from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import Slice
from admission.dra.inventory.selectors import Selectors, Texts
from admission.dra.requests import kinds_of_use
from admission.scheduling.cache.device_selections import DeviceSelections

GPUS: Texts = ("device.driver == 'gpu'",)
NICS: Texts = ("device.driver == 'nic'",)
T4: Texts = (*GPUS, "device.attributes['gpu'].model == 't4'")
G2: Texts = (*GPUS, "device.attributes['gpu'].model == 'g2'")
NONE: Texts = (*GPUS, "device.attributes['gpu'].model == 'b300'")


def a_slice(node: str, *models: str, driver: str = "gpu", **device: Any) -> Slice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    shown = [
        {"name": f"d-{at}", "attributes": {"model": {"string": model}}, **device} for at, model in enumerate(models)
    ]
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": shown}
    return devices.decode_slice({"metadata": {"name": f"{node}-{driver}"}, "spec": spec})


def weights(asked: dict[Texts, int], *slices: Slice, kept: DeviceSelections | None = None) -> dict[Texts, int]:
    found = (kept or DeviceSelections()).weights(
        {texts: Fraction(count) for texts, count in asked.items()}, {one.meta.name: one for one in slices}, Selectors()
    )
    assert found == tuple(sorted(found))
    return dict(found)


CLUSTER = a_slice("a", "t4"), a_slice("b", "g2", "g2", "g2")


def test_a_model_weighs_by_how_often_it_is_named_for_each_device() -> None:
    """Half of what is asked for names a quarter of the devices: twice as many for each as there are."""
    assert weights({GPUS: 4, T4: 4}, *CLUSTER) == {GPUS: 8, T4: 32}
    assert weights({GPUS: 40, T4: 40}, *CLUSTER) == {GPUS: 8, T4: 32}, "what is asked for in all does not matter"


NO_DIFFERENCE: dict[str, dict[Texts, int]] = {
    "where nobody asks for devices": {},
    "where all ask for the same": {T4: 3},
    "where those who name a model name one that is not there": {GPUS: 3, NONE: 1},
}


@pytest.mark.parametrize("asked", NO_DIFFERENCE.values(), ids=NO_DIFFERENCE)
def test_selectors_make_no_difference(asked: dict[Texts, int]) -> None:
    assert weights(asked, *CLUSTER) == {}


def test_devices_of_other_drivers_are_another_matter() -> None:
    """However many network cards there are, and are asked for."""
    cards = a_slice("a", *["x"] * 9, driver="nic")

    assert weights({GPUS: 4, T4: 4, NICS: 5}, *CLUSTER, cards) == {GPUS: 8, T4: 32, NICS: 16}


def test_partitions_count_for_no_set_of_selectors() -> None:
    drawn = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    parts = a_slice("c", *["t4"] * 7, consumesCounters=drawn)

    assert weights({GPUS: 4, T4: 4}, *CLUSTER, parts) == {GPUS: 8, T4: 32}


def test_sets_of_selectors_are_looked_at_that_ask_for_the_most() -> None:
    asked = {GPUS: 1_000, **{(*T4, f"{at} == {at}"): 10 * at for at in range(1, 30)}}

    assert [*weights(asked, *CLUSTER)] == sorted(sorted(asked, key=asked.__getitem__)[-kinds_of_use.MOST_SELECTIONS :])
