"""`muster simulate` keeps gangs together as the controller does, and says where."""

from typing import Any

from admission.api.muster.gangs import DomainReport, DomainRequest, TopologyReport
from admission.api.values.reasons import DenyReason, HoldReason
from tests.unit.simulation.simulated import RACK, Objects, fates, in_rack, job, nodes_of, of, simulate, teams

HARDWARE = [*in_rack("r1", "a", 2), *in_rack("r1", "b", 2), *in_rack("r2", "c", 2)]


def together(name: str, *, pods: int, key: str = "topology", label: str = RACK, **more: Any) -> Objects:
    template, made = job(name, pods=pods, gpus=2, **more)
    made["spec"]["template"]["metadata"] = {"annotations": {f"muster.dev/{key}": label}}
    return [template, made]


def test_a_gang_is_admitted_in_one_rack() -> None:
    gang = of(simulate(teams(), HARDWARE, together("train", pods=2)), "train")

    assert nodes_of(gang) == ["a", "b"]
    assert gang.topology == TopologyReport(gang=DomainReport(request=DomainRequest(required=RACK), domains=("r1",)))


def test_a_gang_waits_until_a_rack_is_free() -> None:
    waiting = together("waits", pods=2)
    objects = (teams(), HARDWARE, together("first", pods=2), waiting)

    now, later = simulate(*objects), simulate(*objects, until_empty=True)

    assert fates(now) == {"first": "Admitted", "waits": HoldReason.DEVICES_BUSY}
    assert of(now, "waits").message.startswith(
        f"no domain of {RACK} takes the whole gang now; r1 could, and has places"
    )
    assert of(now, "waits").topology == TopologyReport(gang=DomainReport(request=DomainRequest(required=RACK)))
    assert nodes_of(of(later, "waits")) == ["a", "b"]


def test_a_gang_that_no_rack_takes_is_held_or_spread_as_it_asks() -> None:
    required = of(simulate(teams(), HARDWARE, together("train", pods=3)), "train")
    preferred = of(simulate(teams(), HARDWARE, together("train", pods=3, key="topology-preferred")), "train")

    assert required.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "takes all 3 pods together; r1 comes nearest, with places for 2" in required.message
    assert nodes_of(preferred) == ["a", "b", "c"]
    assert preferred.topology == TopologyReport(
        gang=DomainReport(request=DomainRequest(preferred=RACK), domains=("r1", "r2"))
    )


def test_a_topology_that_is_no_label_key_is_denied() -> None:
    gang = of(simulate(teams(), HARDWARE, together("train", pods=2, label="one rack")), "train")

    assert gang.reason == DenyReason.MALFORMED_REQUEST
    assert "'one rack' is not a label's key" in gang.message


def test_a_gang_object_of_the_input_is_kept_in_every_simulated_cycle() -> None:
    spec = {"queue": "team", "size": 2, "topology": {"required": RACK}}
    written = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": spec,
    }
    template, made = job("one", gpus=2)
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"muster.dev/gang": "g", "muster.dev/queue": "team"}},
            "spec": {**made["spec"]["template"]["spec"]},
        }
        for name in ("p-0", "p-1")
    ]

    gang = of(simulate(teams(), HARDWARE, together("first", pods=2), [template, written, *pods], until_empty=True), "g")

    assert gang.order == 2
    assert gang.topology is not None
    assert gang.topology.gang == DomainReport(request=DomainRequest(required=RACK), domains=("r1",))
    assert nodes_of(gang) == ["a", "b"]
