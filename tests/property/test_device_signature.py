"""What boards remember from world to world is what they would see anew, whatever has changed in between."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from admission.api.kubernetes.devices import DeviceId
from admission.api.snapshot import Snapshot
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.allocator.pod_allocator import Allocator, Question
from admission.dra.equivalence import device_signature, node_signature
from admission.dra.inventory import selectors as inventory_selectors
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import DRIVER, a_claim, a_cluster, a_request

STEPS = 5_000
HOLDER = Holder(claim="team/other")
NODES = ("a", "b", "c")
SETS = [{"name": "card", "counters": {"slices": {"value": "4"}}}]
DRAWING: dict[str, Any] = {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "2"}}}]}
SHARED: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
ASKS = {
    "two": [a_request("r", 2)],
    "all": [a_request("r", allocationMode="All")],
    "memory": [a_request("r", capacity={"requests": {"memory": "4Gi"}})],
    "admin": [a_request("r", adminAccess=True)],
}


def cluster() -> Snapshot:
    """Plain devices on a, partitions on b, a shared one on c, and one that a and b can both reach."""
    builder = a_cluster()
    for name in NODES:
        builder.node(name, labels={"rack": "1" if name < "c" else "2"})
    builder.slice("a", 3, nodeName="a").slice("b", [DRAWING] * 3, count=2, nodeName="b")
    builder.slice("b-sets", [], pool="b", count=2, nodeName="b", sharedCounters=SETS)
    builder.slice("c", [SHARED, SHARED], nodeName="c")
    rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    return builder.slice("rack", 1, nodeSelector={"nodeSelectorTerms": [rack]}).snapshot()


DEVICES = [DeviceId(DRIVER, pool, f"gpu-{at}") for pool in ("a", "b", "c", "rack") for at in range(2)]


@dataclass(frozen=True)
class Move:
    """A change of the cluster: a device taken or shared, a slice that loses a device or comes back, a node gone."""

    kind: str
    at: int

    def __call__(self, snapshot_state: ClusterState, snapshot: Snapshot) -> tuple[ClusterState, Snapshot]:
        return MOVES[self.kind](snapshot_state, snapshot, self.at)


def follow(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    return cluster_state.with_devices(snapshot_state, [DeviceUse(DEVICES[at % len(DEVICES)])], HOLDER), snapshot


def share(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    return cluster_state.with_devices(
        snapshot_state,
        [DeviceUse(DeviceId(DRIVER, "c", f"gpu-{at % 2}"), shared=True, share={"memory": 2**32})],
        HOLDER,
    ), snapshot


def renewed(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    """Everything that was only taken is free again, as after a cycle in which nothing of it came true."""
    return cluster_state.build(snapshot, (), before=snapshot_state), snapshot


def shrunk(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    name = sorted(snapshot.slices)[at % len(snapshot.slices)]
    before = snapshot.slices[name]
    version = str(int(before.meta.resource_version or "0") + 1)
    after = replace(before, devices=before.devices[1:], meta=replace(before.meta, resource_version=version))
    changed = replace(snapshot, slices={**snapshot.slices, name: after})
    return cluster_state.build(changed, (), before=snapshot_state), changed


def without_node(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    kept = {name: node for name, node in snapshot.nodes.items() if name != NODES[at % 3] or len(snapshot.nodes) == 1}
    changed = replace(snapshot, nodes=kept)
    return cluster_state.build(changed, (), before=snapshot_state), changed


def whole(snapshot_state: ClusterState, snapshot: Snapshot, at: int) -> tuple[ClusterState, Snapshot]:
    return cluster_state.build(cluster(), (), before=snapshot_state), cluster()


MOVES: dict[str, Callable[[ClusterState, Snapshot, int], tuple[ClusterState, Snapshot]]] = {
    "take": follow,
    "share": share,
    "renewed": renewed,
    "shrunk": shrunk,
    "without node": without_node,
    "whole": whole,
}
moves = st.lists(st.builds(Move, kind=st.sampled_from(sorted(MOVES)), at=st.integers(0, 7)), max_size=8)


@given(steps=moves, parsed=st.sampled_from(sorted(ASKS)), looks=st.integers(1, 3))
@settings(max_examples=150)
def test_remembered_device_groups_equal_those_from_scratch(steps: list[Move], parsed: str, looks: int) -> None:
    snapshot = cluster()
    snapshot_state = cluster_state.build(snapshot, ())
    known = Selectors(snapshot_state.profile.cel)
    for number, step in enumerate(steps):
        snapshot_state, snapshot = step(snapshot_state, snapshot)
        if number % looks == 0:
            assert answers(snapshot_state, known, parsed) == answers(
                snapshot_state, Selectors(snapshot_state.profile.cel), parsed
            )
            known.keep(snapshot_state.node_inventories)
    assert answers(snapshot_state, known, parsed) == answers(
        replace(snapshot_state), Selectors(snapshot_state.profile.cel), parsed
    )


def answers(snapshot_state: ClusterState, selectors: Selectors, parsed: str) -> object:
    """Return which nodes take the pod, and what it gets on each."""
    allocator = Allocator(snapshot_state, selectors=selectors, steps=STEPS)
    question = asked(allocator, parsed)
    found = allocator.nodes(question)
    given_ = {
        name: answer.devices if isinstance(answer := allocator.allocate(question, name), Allocated) else type(answer)
        for name in snapshot_state.nodes
    }
    assert {name for name, answer in given_.items() if isinstance(answer, tuple)} == found.nodes
    return given_


def asked(allocator: Allocator, parsed: str) -> Question:
    question = allocator.parsed([a_claim("c", *ASKS[parsed])])
    assert isinstance(question, Question)
    return question


@given(taken=st.lists(st.sampled_from(DEVICES), max_size=4), more=st.lists(st.sampled_from(DEVICES), max_size=3))
def test_a_forked_allocator_changes_its_origin_only_by_its_commit(taken: list[DeviceId], more: list[DeviceId]) -> None:
    snapshot_state = cluster_state.build(cluster(), ())
    selectors = Selectors(snapshot_state.profile.cel)
    allocator = Allocator(snapshot_state, selectors=selectors, steps=STEPS)
    allocator.assume(map(DeviceUse, taken))
    before = allocator.nodes(asked(allocator, "two"))
    fork = allocator.fork()
    fork.assume(map(DeviceUse, more))
    expected = Allocator(
        cluster_state.with_devices(snapshot_state, map(DeviceUse, [*taken, *more]), HOLDER),
        selectors=Selectors(snapshot_state.profile.cel),
        steps=STEPS,
    )

    assert fork.nodes(asked(fork, "two")) == expected.nodes(asked(expected, "two"))
    assert allocator.nodes(asked(allocator, "two")) == before
    fork.commit()
    assert allocator.nodes(asked(allocator, "two")) == expected.nodes(asked(expected, "two"))


def test_the_remembered_device_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job may bring a selector of its own, and every state of a node a new face."""
    monkeypatch.setattr(inventory_selectors, "MOST_COLUMNS", 8)
    monkeypatch.setattr(inventory_selectors, "MOST_PROGRAMS", 8)
    monkeypatch.setattr(node_signature, "MOST_SIGNATURES", 4)
    monkeypatch.setattr(device_signature, "MOST_SORTS", 1)
    snapshot_state = cluster_state.build(cluster(), ())
    selectors = Selectors(snapshot_state.profile.cel)
    for at in range(200):
        moved = cluster_state.with_devices(snapshot_state, [DeviceUse(DEVICES[at % len(DEVICES)])], HOLDER)
        allocator = Allocator(moved, selectors=selectors, steps=STEPS)
        question = allocator.parsed([a_claim("c", a_request("r", 1, f"size(device.driver) != {at + 100}"))])
        assert isinstance(question, Question)
        assert allocator.nodes(question).nodes
        assert answers(moved, selectors, "memory") == answers(moved, Selectors(snapshot_state.profile.cel), "memory")
        selectors.keep(snapshot_state.node_inventories)

    # 64 needs are remembered, and what they ask about; the class's selector is in each of them.
    assert len(selectors.signatures) == device_signature.MOST_REMEMBERED
    sizes = sizes_of(selectors)
    assert max(sizes) <= 2 * device_signature.MOST_REMEMBERED + 8


def sizes_of(selectors: Selectors) -> list[int]:
    """Return how many texts are remembered, and for each slice how many columns."""
    return [len(selectors._programs), *(len(seen.columns) for seen in selectors._seen.values())]
