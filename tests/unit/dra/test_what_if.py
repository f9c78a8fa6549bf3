"""Cluster states as they will be: who has gone gives back, and who has come takes."""

from dataclasses import replace

from admission.api.kubernetes.devices import DeviceId
from admission.api.scheduling.scheduling_rules import NO_RULES, AffinityTerm, HostPort, SchedulingRules
from admission.api.values.names import NodeName, Uid
from admission.dra.requests.device_use import DeviceUse
from admission.dra.state.what_if import Arrival, Interval, WhatIfSeries
from admission.filters.placed_pods import PlacedPod
from tests.unit.dra.clusters import DRIVER, a_cluster

DEVICES = [DeviceId(DRIVER, "a", f"gpu-{at}") for at in range(3)]
A = NodeName("a")


def test_an_arriving_gang_takes_whole_devices_and_shares_of_devices() -> None:
    now = a_cluster().node("a", gpus=3).cluster()
    comer = Arrival(
        gang="comer", uses=(DeviceUse(DEVICES[0]), DeviceUse(DEVICES[1], shared=True), DeviceUse(DEVICES[2]))
    )

    then = WhatIfSeries("s").cluster(now, arrived=[comer])

    assert {device: holder.gang for device, holder in then.taken.items()} == dict.fromkeys(DEVICES[::2], "comer")
    assert {device: [one.holder.gang for one in shares] for device, shares in then.shares.items()} == {
        DEVICES[1]: ["comer"]
    }


def test_shares_of_a_removed_gang_are_left_to_staying_and_arriving_gangs() -> None:
    simulation, now = WhatIfSeries("s"), a_cluster().node("a", gpus=1).cluster()
    both = [Arrival(gang=name, uses=(DeviceUse(DEVICES[0], shared=True),)) for name in ("goes", "stays", "comes")]
    now = WhatIfSeries("first").cluster(now, arrived=both[:2])

    then = simulation.cluster(now, removed=[Interval(gang="goes")], arrived=both[2:])
    alone = simulation.cluster(now, removed=[Interval(gang="goes"), Interval(gang="stays")])

    assert [one.holder.gang for one in then.shares[DEVICES[0]]] == ["stays", "comes"]
    assert alone.shares == {}


def test_a_removed_gang_frees_its_devices_and_staying_gangs_keep_theirs_before_arrivals() -> None:
    now = a_cluster().node("a", gpus=3).taken("a", 0, gang="goes").taken("a", 1, gang="stays").cluster()
    comer = Arrival(gang="comes", uses=(DeviceUse(DEVICES[0]), DeviceUse(DEVICES[1])))

    then = WhatIfSeries("s").cluster(now, removed=[Interval(gang="goes")], arrived=[comer])

    assert {device: holder.gang for device, holder in then.taken.items()} == {DEVICES[0]: "comes", DEVICES[1]: "stays"}
    assert DEVICES[2] not in then.taken
    assert len(then.taken) == 2


def test_room_is_given_back_and_taken_and_bounded_by_what_is_kept() -> None:
    cpu, simulation = {"cpu": 1000}, WhatIfSeries("s")
    now = a_cluster().node("a", allocatable={"cpu": "4"}).cluster()
    gone, comer = Interval(gang="goes", requests=((A, cpu),)), Arrival(gang="comes", requests=((A, cpu), (A, cpu)))
    keeper = Arrival(gang="kept", requests=((A, cpu),), room={A: {"cpu": 500}})
    unlimited = Arrival(gang="free", room={A: None})

    def left(**parts: object) -> int:
        found = simulation.cluster(now, **parts).left[A]  # type: ignore[arg-type]
        assert found is not None
        return found["cpu"]

    assert left(removed=[gone]) == 5000
    assert left(removed=[gone], arrived=[comer]) == 3000
    assert left(arrived=[comer]) == 2000
    assert left(kept=[keeper, unlimited]) == 500
    assert left() == 4000


def test_pods_of_arriving_gangs_are_there_and_those_of_kept_ones_only_keep_others_off() -> None:
    now = a_cluster().node("a").cluster()
    term = AffinityTerm(topology_key="rack", selector=None, namespaces=frozenset({"team"}))
    rules = SchedulingRules(ports=(HostPort(port=80),), anti_affinity=(term,))
    shy = PlacedPod(namespace="team", labels={"app": "x"}, rules=rules)
    plain = replace(shy, rules=NO_RULES)
    gang = Arrival(gang="g", pods=((A, Uid("shy"), shy), (A, Uid("plain"), plain)))

    come, kept = WhatIfSeries("s").cluster(now, arrived=[gang]), WhatIfSeries("t").cluster(now, kept=[gang])

    assert come.placed.anti_affinity_terms == kept.placed.anti_affinity_terms == {term: {A: 1}}
    assert come.placed.left.on(A) == {"shy": shy, "plain": plain}
    assert [(pod.rules, pod.labels) for pod in kept.placed.left.on(A).values()] == [(rules, {})]
    assert now.placed.left.on(A) == {}
