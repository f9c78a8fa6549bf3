"""Who holds which device, kept from one view of the cluster to the next."""

from collections.abc import Mapping
from random import Random
from typing import TypeVar

import pytest

from admission.api.muster.observed import ObservedObjects
from admission.dashboard.devices.inventory import DeviceHolders, Holder
from tests import dashboard_clusters

V = TypeVar("V")


def a_view(random: Random) -> ObservedObjects:
    """Eight gangs with places, some of which have their devices, on devices that others may have as well."""
    cluster = dashboard_clusters.Cluster()
    for at in range(8):
        pods = [
            ("node", random.sample([f"gpu-{n}" for n in range(6)], random.randint(1, 2)))
            for _ in range(random.randint(0, 2))
        ]
        cluster.gang(f"team/gang-{at}", "q", "Running", places=pods, allocated=random.random() < 0.5)
    return cluster.observe()


def mixed(random: Random, before: Mapping[str, V], after: Mapping[str, V]) -> dict[str, V]:
    """Some objects are as they were, some are gone, and some are others or new."""
    kept = {key: one for key, one in before.items() if random.random() < 0.7}
    return kept | {key: one for key, one in after.items() if random.random() < 0.5}


@pytest.mark.parametrize("seed", range(40))
def test_device_holders_updated_by_changes_equal_holders_from_scratch(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - not for secrets
    claims, gangs = dict(a_view(random).claims), dict(a_view(random).gangs)
    custody = DeviceHolders().updated(claims, gangs)
    for _ in range(5):
        before, known = custody, {device: [*holders] for device, holders in custody.holders.items()}
        view = a_view(random)
        claims, gangs = mixed(random, claims, view.claims), mixed(random, gangs, view.gangs)

        custody = custody.updated(claims, gangs)

        assert custody.holders == DeviceHolders().updated(claims, gangs).holders
        assert before.holders == known, "a scene never changes"


def test_an_allocated_claim_holds_its_devices_and_a_granted_claim_its_planned_devices() -> None:
    cluster = dashboard_clusters.Cluster()
    cluster.gang("team/runs", "q", "Running", places=[("node", ["gpu-0"])])
    cluster.gang("team/starts", "q", "Reserved", places=[("node", ["gpu-1"])], allocated=False)
    cluster.claim(
        "team/other", [{"request": "gpu", "driver": dashboard_clusters.DRIVER, "pool": "node", "device": "gpu-2"}]
    )
    view = cluster.observe()

    holders = DeviceHolders().updated(view.claims, view.gangs).holders

    assert {device.device: list(found) for device, found in holders.items()} == {
        "gpu-0": [Holder(claim="team/runs-0", gang="team/runs")],
        "gpu-1": [Holder(claim="team/starts-0", gang="team/starts", planned=True)],
        "gpu-2": [Holder(claim="team/other")],
    }
