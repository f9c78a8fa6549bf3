"""Following changes of allocated devices gives what a look at all of them does."""

from typing import NamedTuple

from hypothesis import given, strategies

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.quota.tree import Tree
from admission.status.device_allocations import DeviceAllocations
from tests.unit.status.test_device_allocations import TREE, a_claim, a_placement, a_pod, a_slice, a_snapshot


class State(NamedTuple):
    """What one cycle sees."""

    snapshot: Snapshot
    placements: dict[GangUid, Placement]
    tree: Tree


# Objects are made once, so that what is the same in two states is the same object, as in the cache.
CLAIMS = [
    a_claim(*users, name=name, given=given)
    for name in ("c", "d")
    for users in ((), ("p",), ("p", "q"))
    for given in ((), ("gpu-0",), ("gpu-0", "gpu-1"))
]
PODS = [a_pod(name, node) for name in ("p", "q") for node in ("", "node-a", "node-b")]
SLICES = [a_slice(), a_slice(generation=2, attributes={"uuid": {"string": "new"}}), a_slice("node-b")]
OBJECTS: list[Claim | Pod | Slice] = [*CLAIMS, *PODS, *SLICES]
PLACEMENTS = [
    a_placement(holds=holds, queue=queue, pod=pod)
    for holds in ("uid-c", "extended")
    for queue in ("vision", "speech")
    for pod in ("p", "q")
]
TREES = [TREE, Tree.build(TREE.queues.values()), Tree()]

STATES = strategies.builds(
    State,
    strategies.lists(strategies.sampled_from(OBJECTS), max_size=8).map(lambda of: a_snapshot(*of)),
    strategies.sampled_from([None, *PLACEMENTS]).map(lambda one: {one.gang_uid: one} if one is not None else {}),
    strategies.sampled_from(TREES),
)


@given(strategies.lists(STATES, max_size=6))
def test_updates_one_by_one_give_what_a_look_at_the_last_state_gives(states: list[State]) -> None:
    allocations = DeviceAllocations()

    found = [allocations.update(*state) for state in states]

    assert found == [DeviceAllocations().update(*state) for state in states]
