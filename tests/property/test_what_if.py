"""Worlds that follow each other know where they differ, and imagined ones are what copies would be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from admission.api.kubernetes.devices import DeviceId
from admission.api.values.names import NodeName
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.state import cluster_state
from admission.dra.state.change_log import ChangeLog
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from admission.dra.state.what_if import Arrival, Interval, WhatIfSeries
from tests.unit.dra.clusters import DRIVER, a_cluster

NODES = ("a", "b", "c")
GPUS = 2
CPUS = 20_000


def empty() -> ClusterState:
    builder = a_cluster()
    for name in NODES:
        builder.node(name, gpus=GPUS, allocatable={"cpu": "20"})
    builder.slice("fabric", 2, allNodes=True)
    return builder.cluster()


DEVICES = [DeviceId(DRIVER, pool, f"gpu-{at}") for pool in (*NODES, "fabric") for at in range(GPUS)]


@dataclass
class Gangs:
    """Who runs, and who is to come. knows: whether it is told which devices those who run have."""

    knows: bool
    ward: VirtualCluster = field(default_factory=lambda: VirtualCluster(empty()))
    running: dict[str, tuple[Interval, RunningGang]] = field(default_factory=dict)

    def start(self, name: str, devices: Sequence[DeviceId], node: str, cpu: int) -> None:
        free = tuple(device for device in devices if device not in self.ward.cluster.taken)
        requests = ((NodeName(node), {"cpu": cpu}),)
        holder = Holder(claim=f"team/{name}", gang=name)
        running_gang = RunningGang(uses=((holder, tuple(map(DeviceUse, free))),), requests=requests)
        interval = Interval(gang=name, requests=requests, devices=free if self.knows else None)
        self.ward.move(arrived=[running_gang])
        self.running[name] = interval, running_gang

    def end(self, name: str) -> None:
        self.ward.move(departed=[self.running.pop(name)[1]])


def in_use(cluster: ClusterState) -> dict[DeviceId, str]:
    return {device: cluster.taken[device].gang for device in DEVICES if device in cluster.taken}


def left(cluster: ClusterState) -> dict[str, int]:
    return {node: (cluster.left[NodeName(node)] or {})["cpu"] for node in NODES}


def is_what_if(
    now: ClusterState, removed: Sequence[Interval], arrived: Sequence[Arrival], kept: Sequence[Arrival]
) -> tuple[object, object]:
    """Return what is in use, and left, as somebody finds who copies everything."""
    names = {interval.gang for interval in removed}
    used = {device: gang for device, gang in in_use(now).items() if gang not in names}
    for arrival in (*arrived, *kept):
        for use in arrival.uses:
            used.setdefault(use.device, arrival.gang)
    cpus = left(now)
    moved = [(one.requests, 1) for one in removed] + [(one.requests, -1) for one in arrived]
    for requests, sign in moved:
        for node, asked in requests:
            cpus[node] += sign * asked["cpu"]
    for arrival in kept:
        for node, room in arrival.room.items():
            cpus[node] = min(cpus[node], (room or {})["cpu"])
    return used, cpus


some_devices = st.lists(st.sampled_from(DEVICES), max_size=3, unique=True)


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    node, cpu = NodeName(draw(st.sampled_from(NODES))), draw(st.integers(0, 3))
    room: Mapping[NodeName, Mapping[str, int]] = {node: {"cpu": draw(st.integers(0, CPUS))}}
    uses = tuple(map(DeviceUse, draw(some_devices)))
    return Arrival(gang=draw(st.sampled_from(["v", "w"])), uses=uses, requests=((node, {"cpu": cpu}),), room=room)


@given(st.data(), st.booleans())
def test_a_simulated_cluster_state_equals_a_copy_and_knows_its_changed_nodes(
    data: st.DataObject,
    knows: bool,
) -> None:
    gangs, outlook = Gangs(knows=knows), WhatIfSeries("test")
    coming = data.draw(st.lists(arrivals(), max_size=3))
    before: tuple[ClusterState, object, object] | None = None
    for at in range(data.draw(st.integers(1, 6))):
        for name in data.draw(st.lists(st.sampled_from([*gangs.running] or ["-"]), max_size=1)):
            if name in gangs.running:
                gangs.end(name)
        gangs.start(f"g{at}", data.draw(some_devices), data.draw(st.sampled_from(NODES)), data.draw(st.integers(0, 3)))
        intervals = [interval for interval, _ in gangs.running.values()]
        removed = data.draw(st.lists(st.sampled_from(intervals), unique=True))
        arrived = data.draw(st.lists(st.sampled_from(coming), unique=True)) if coming else []
        kept = [arrival for arrival in coming if arrival not in arrived]
        now = gangs.ward.cluster

        cluster = outlook.cluster(now, removed=removed, arrived=arrived, kept=kept)

        used, cpus = is_what_if(now, removed, arrived, kept)
        assert (in_use(cluster), left(cluster)) == (used, cpus)
        assert {device: holder.gang for device, holder in cluster.taken.items()} == used
        assert len(cluster.taken) == len(in_use(cluster))
        if before is not None:
            told = cluster_state.changed(before[0], cluster)
            assert told is not None
            assert {node for node in NODES if _of(node, used, cpus) != _of(node, *before[1:])} <= told
        before = cluster, used, cpus


def _of(node: str, used: object, cpus: object) -> object:
    """Return what is so of one node: its own devices, those that every node sees, and its room."""
    assert isinstance(used, dict)
    assert isinstance(cpus, dict)
    return [device in used for device in DEVICES if device.pool in {node, "fabric"}], cpus[node]


class Tree:
    """Worlds that go out from each other in any way, as sets of what is different in them."""

    def __init__(self) -> None:
        self.known = [(ChangeLog(), 0, frozenset[str]())]

    def grow(self, at: int, nodes: frozenset[str]) -> None:
        journal, place, state = self.known[at % len(self.known)]
        journal = journal if journal.steps == place else journal.branch(place)
        journal.add(map(NodeName, nodes))
        self.known.append((journal, journal.steps, state ^ nodes))


@given(st.lists(st.tuples(st.integers(0, 9), st.frozensets(st.sampled_from("abcde"), max_size=3)), max_size=12))
def test_a_change_log_never_leaves_out_a_changed_node(steps: list[tuple[int, frozenset[str]]]) -> None:
    tree = Tree()
    for at, nodes in steps:
        tree.grow(at, nodes)

    for one, place, before in tree.known:
        for other, later, after in tree.known:
            if one is other:
                assert before ^ after <= {*other.since(min(place, later))}
            elif other.knows(one, place):
                assert before ^ after <= {*other.since(place)}


def test_a_change_log_lists_the_nodes_changed_since_any_earlier_state() -> None:
    journal = ChangeLog()
    for nodes in ("ab", "b", "c"):
        journal.add(map(NodeName, nodes))
    branch = journal.branch(1)
    branch.add([NodeName("d")])

    assert [{*journal.since(place)} for place in range(4)] == [{"a", "b", "c"}, {"b", "c"}, {"c"}, set()]
    assert {*branch.since(1)} == {"d"}
    assert (branch.knows(journal, 1), branch.knows(journal, 2), journal.knows(branch, 1)) == (True, False, False)
