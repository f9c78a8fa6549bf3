"""A queue's preferences among kinds of devices on a real control plane, where kube-scheduler picks the devices."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

MODELS = ("a100", "h100")
LAB = f"{GROUP}/queues/lab"


# A node with A100s alone, one with H100s alone, and one with both, whose devices nobody may be left to choose.
hardware = fixtures.hardware(
    [
        fleet.device_class(),
        *fleet.gpu_node("a", gpus=4, product="a100"),
        *fleet.gpu_node("h", gpus=4, product="h100"),
        fleet.node("both"),
        fleet.resource_slice("both", [fleet.gpu("both", at, product=MODELS[at % 2]) for at in range(4)]),
    ]
)
muster = fixtures.muster(scope="function")


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with two GPUs of each kind; two more A100s may be borrowed."""
    client = control_plane.client()
    for model in MODELS:
        source = {"deviceClasses": [fleet.DEVICE_CLASS], "selector": selector(model), "count": {}}
        meter = {
            "apiVersion": names.API_VERSION,
            "kind": "Meter",
            "metadata": {"name": model},
            "spec": {"sources": [source]},
        }
        client.apply(f"{GROUP}/meters/{model}", meter)
    everything = [{"meter": "claims", "nominal": "100"}, {"meter": "gpus", "nominal": "100"}]
    lab = {"metadata": {"name": "lab"}, "spec": {"quotas": [{"meter": "a100", "nominal": "2"}]}}
    client.apply(LAB, {"apiVersion": names.API_VERSION, "kind": "Queue", **lab})
    team = found_team(
        control_plane,
        namespace,
        gpus=0,
        parent="lab",
        quotas=[*everything, *({"meter": model, "nominal": "2"} for model in MODELS)],
        preferences={"kinds": [*map(kind, MODELS)], "whenCanBorrow": "TryNext"},
    )
    yield team
    team.disband()
    client.delete(LAB)
    for model in MODELS:
        client.delete(f"{GROUP}/meters/{model}")


def test_a_gang_starts_on_the_next_kind_or_borrows_of_the_first_as_its_queue_says(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    team.submit("first", pods=2)
    team.wait_running("first", 2)
    assert (nodes(team, "first"), charges(team, "first")) == ({"a"}, {"a100": "2"})

    team.submit("second", pods=2)
    team.wait_running("second", 2)
    assert (nodes(team, "second"), charges(team, "second")) == ({"h"}, {"h100": "2"})
    eventually(lambda: team.used("h100") == (0, 2), what="what kube-scheduler gave is settled")
    team.submit("large", pods=3)
    message = team.wait_held("large", "QuotaExceeded")["message"]
    assert "kind a100: " in message
    assert "; kind h100: " in message
    assert "; kind h100: " in muster.command("why", f"{team.namespace.name}/large")
    control_plane.client().delete(f"{team.jobs}/large?propagationPolicy=Background")

    team.finish("second")
    eventually(lambda: team.used("h100") == (0, 0), what="the second one is done")
    queue = f"{GROUP}/queues/{team.queue}"
    control_plane.client().merge_patch(queue, {"spec": {"preferences": {"whenCanBorrow": "Borrow"}}})
    team.submit("third", pods=2)
    team.wait_running("third", 2)
    assert (nodes(team, "third"), charges(team, "third")) == ({"a"}, {"a100": "2"})
    eventually(lambda: team.used("a100") == (0, 4), what="it has borrowed")
    assert muster.wrong_books() is None


def selector(model: str) -> str:
    return f"device.attributes['{fleet.DRIVER}'].productName == '{fleet.PRODUCTS[model].name}'"


def kind(model: str) -> dict[str, Any]:
    return {"name": model, "deviceClasses": [fleet.DEVICE_CLASS], "selector": selector(model)}


def nodes(team: Team, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in team.pods(name)}


def charges(team: Team, name: str) -> dict[str, str]:
    """What the gang is charged of the kinds, as soon as its status says so."""
    found = eventually(lambda: team.status(name).get("charges"), what=f"{name} is charged")
    return {meter: amount for meter, amount in found.items() if meter in MODELS}
