"""What follows the slices of a cluster by what differs equals what is made of all of them."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import DeviceId, Slice
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.dra.inventory import slice_tables
from admission.dra.inventory.selectors import Selectors
from admission.dra.inventory.slice_tables import SliceTables
from admission.dra.metering import device_meters, meter_health
from admission.lifecycle import transitions
from admission.lifecycle.transitions import Devices
from admission.scheduling.cache.device_companions import DeviceCompanions
from tests.unit.dra.clusters import a_cluster, a_meter, a_source
from tests.unit.scheduling.test_device_companions import a_claim, a_pod, a_snapshot

DRIVER, NODES, POOLS = "gpu.example.com", ("a", "b", "c"), ("p", "q", "r")
MANY = 24
"""So many slices, and few changes of them, that a change is followed and not taken for another cluster."""
STEPS = 12
SEEDS = st.integers(0, 2**32)

SIZE = "device.attributes['gpu.example.com'].size"
METERS = device_meters.compile_meters([a_meter("price", a_source("expression", {"cel": SIZE}))])
CLASSES = a_cluster().snapshot().classes


def _slice(draw: Random, name: str) -> Slice:
    """Return a slice of a node, of the nodes with a label, or of all; its pool may have others, on other nodes too."""
    counters: dict[str, Any] = {"sharedCounters": [{"name": "set", "counters": {"memory": {"value": "8"}}}]}
    consumes = {"consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "4"}}}]}
    sized: dict[str, Any] = {"attributes": {"size": {"int": draw.choice((1, 2, -1))}}} if draw.random() < 0.8 else {}
    given_ = [{"name": f"gpu-{at}", **sized, **(consumes if draw.random() < 0.1 else {})} for at in range(2)]
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}
    place: dict[str, Any] = {"nodeName": draw.choice(NODES)}
    if draw.random() < 0.1:
        place = draw.choice([{"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [term]}}])
    pool = {"name": draw.choice(POOLS), "generation": draw.randint(1, 2), "resourceSliceCount": 1}
    spec: dict[str, Any] = {"driver": DRIVER, "pool": pool, **place, "devices": given_}
    spec |= counters if draw.random() < 0.1 else {}
    return devices.decode_slice({"metadata": {"name": name, "uid": name}, "spec": spec})


def _histories(seed: int) -> Iterator[dict[str, Slice]]:
    draw = Random(seed)  # noqa: S311 - a seed for choices
    now = {name: _slice(draw, name) for name in map(str, range(MANY))}
    for _ in range(STEPS):
        yield now
        for name in draw.sample(range(MANY + 2), draw.randint(0, 3)):
            now = {key: one for key, one in now.items() if key != str(name)} if draw.random() < 0.3 else {**now}
            if draw.random() < 0.8:
                now[str(name)] = _slice(draw, str(name))


def _shown(tables: SliceTables) -> dict[str, Any]:
    fields = ("by_key", "on_node", "members", "drawing", "takes_of_nodes")
    return {"elsewhere": tables.elsewhere.slices, **{name: getattr(tables, name) for name in fields}}


@given(SEEDS)
@settings(deadline=None)
def test_tables_of_slices_that_follow_others_equal_tables_made_anew(seed: int) -> None:
    before: SliceTables | None = None
    node = a_cluster().node("a", labels={"zone": "x"}).snapshot().nodes[NodeName("a")]
    for slices in _histories(seed):
        before, anew = slice_tables.build(slices, before), slice_tables.build(slices)

        assert _shown(before) == _shown(anew)
        assert before.elsewhere.candidates(node) == anew.elsewhere.candidates(node)


def test_what_is_not_changed_of_slices_is_not_looked_up_again() -> None:
    made = _slice(Random(0), "0")  # noqa: S311 - a seed for choices
    slices = {name: replace(made, node_name=NodeName(name), pool=name) for name in map(str, range(MANY))}
    before = slice_tables.build(slices)
    after = slice_tables.build({**slices, "0": replace(slices["0"], generation=9)}, before)

    assert after.on_node[NodeName("0")] != before.on_node[NodeName("0")]
    assert all(after.on_node[NodeName(name)] is before.on_node[NodeName(name)] for name in [*slices][1:])


@given(SEEDS)
@settings(deadline=None)
def test_devices_that_follow_those_of_an_earlier_snapshot_are_all_devices(seed: int) -> None:
    before: Devices | None = None
    for slices in _histories(seed):
        before = Devices(snapshot := Snapshot(slices=slices), before)

        assert {one: before[one] for one in before} == transitions.index_devices(snapshot)


def test_of_pools_that_are_gone_nothing_is_kept() -> None:
    made, before = _slice(Random(0), "0"), Devices(Snapshot())  # noqa: S311 - a seed for choices
    for name in map(str, range(9)):
        before = Devices(Snapshot(slices={name: replace(made, pool=name)}), before)
        assert DeviceId(DRIVER, name, "gpu-0") in before
        assert DeviceId(DRIVER, f"{name}-gone", "gpu-0") not in before

    assert len(Devices(Snapshot(slices={"new": made}), before).indexed) == 0


@given(SEEDS, st.sampled_from((4, 1_000)))
@settings(deadline=None)
def test_the_health_of_meters_follows_slices_as_if_all_were_evaluated_again(seed: int, most: int) -> None:
    health, selectors = meter_health.NOTHING, Selectors()
    for slices in _histories(seed):
        found, anew = [
            meter_health.check(METERS, slices, CLASSES, selectors=selectors, before=before, most=bound)
            for before, bound in ((health, most), (meter_health.NOTHING, 1_000))
        ]
        health = found
        assert health.left or (found.seen, found.failures) == (anew.seen, anew.failures)


@given(SEEDS)
@settings(deadline=None)
def test_partitions_are_those_of_the_slices_that_there_are(seed: int) -> None:
    kept, snapshot = DeviceCompanions(), a_snapshot(a_pod("p", claim="one", cpu="4"), a_claim("one", {}))
    for slices in _histories(seed):
        now, anew = replace(snapshot, slices=slices), DeviceCompanions()
        assert kept.update(now, Selectors()) == anew.update(now, Selectors())
        assert kept._partitions == anew._partitions
