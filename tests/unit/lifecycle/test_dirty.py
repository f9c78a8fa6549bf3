"""Which gangs are looked at again when something has changed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.meta import Meta
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.dra.metering import device_meters
from admission.lifecycle.dirty import DirtyGangs
from admission.lifecycle.transitions import ObservedAllocations
from tests.builders import a_cluster, pod_of, running, with_pods
from tests.unit.lifecycle.test_reconciliation import CLAIM, World, a_settled_world, never_booked

GANG = GangUid("job-train")
WORLD = a_settled_world()
METERS = device_meters.compile_meters(WORLD.snapshot.meters.values())


def refreshed(dirty: DirtyGangs, world: World) -> set[GangUid]:
    """Return the gangs that are dirty when this is seen."""
    dirty.refresh(world.book, ObservedAllocations.from_snapshot(world.snapshot, METERS), {})
    return {placement.gang_uid for placement in dirty.placements(world.book)}


def a_clean_state(world: World = WORLD) -> DirtyGangs:
    dirty = DirtyGangs()
    refreshed(dirty, world)
    dirty.mark_clean()
    return dirty


def with_slice(snapshot: Snapshot, name: str, **changes: object) -> Snapshot:
    found: Slice = snapshot.slices[name]
    return replace(snapshot, slices={**snapshot.slices, name: replace(found, **changes)})  # type: ignore[arg-type]


def other_slice(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, slices={**snapshot.slices, **a_cluster().node("b", gpus=1).snapshot().slices})


def other_pod(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, pods={**snapshot.pods, **a_cluster().pod("other").snapshot().pods})


def pod_changed(snapshot: Snapshot) -> Snapshot:
    return with_pods(snapshot, replace(running(pod_of(snapshot, "train-1"), "a"), phase="Succeeded"))


def claim_changed(snapshot: Snapshot) -> Snapshot:
    claim = snapshot.claims[CLAIM]
    return replace(snapshot, claims={**snapshot.claims, CLAIM: replace(claim, reserved_for=(Uid("x"),))})


def claim_gone(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, claims={key: claim for key, claim in snapshot.claims.items() if key != CLAIM})


def claim_of_nobody(snapshot: Snapshot) -> Snapshot:
    claim = replace(snapshot.claims[CLAIM], meta=Meta(name="other", namespace="team", uid=Uid("other")))
    return replace(snapshot, claims={**snapshot.claims, "team/other": claim})


CHANGES: dict[str, tuple[Callable[[Snapshot], Snapshot], bool]] = {
    "nothing": (lambda snapshot: snapshot, False),
    "one of its pods": (pod_changed, True),
    "a pod of nobody": (other_pod, False),
    "one of its claims": (claim_changed, True),
    "one of its claims that is gone": (claim_gone, True),
    "a claim of nobody": (claim_of_nobody, False),
    "a slice of its devices": (lambda snapshot: with_slice(snapshot, "a-slice", generation=2), True),
    "a slice of its devices that is gone": (lambda snapshot: replace(snapshot, slices={}), True),
    "a slice of other devices": (other_slice, False),
}


@pytest.mark.parametrize(("change", "is_dirty"), CHANGES.values(), ids=CHANGES)
def test_a_gang_is_examined_again_after_a_change_of_its_inputs(
    change: Callable[[Snapshot], Snapshot], *, is_dirty: bool
) -> None:
    found = refreshed(a_clean_state(), WORLD._replace(snapshot=change(WORLD.snapshot)))

    assert found == ({GANG} if is_dirty else set())


@pytest.mark.parametrize(
    ("charged_as", "change"),
    [(names.resources_claim, pod_changed), (names.extended_claim, claim_gone)],
    ids=["what it requests of its node", "the claim for its extended resources"],
)
def test_an_evicted_gang_is_examined_when_what_its_pod_has_changes(
    charged_as: Callable[[Uid], Uid], change: Callable[[Snapshot], Snapshot]
) -> None:
    """Its seats are closed, and it is charged until that is gone."""
    placement, pod = WORLD.book.placements[GANG], pod_of(WORLD.snapshot, "train-1").meta.uid
    held = {charged_as(pod): replace(next(iter(placement.holdings.values())), claim_uid=charged_as(pod))}
    evicted = replace(placement, seats={}, holdings=held)
    claim = replace(WORLD.snapshot.claims[CLAIM], reserved_for=(pod,))
    world = World(
        book=replace(WORLD.book, placements={GANG: evicted}, owners=dict.fromkeys(held, GANG)),
        snapshot=replace(WORLD.snapshot, claims={**WORLD.snapshot.claims, CLAIM: claim}),
    )

    assert refreshed(a_clean_state(world), world._replace(snapshot=change(world.snapshot))) == {GANG}


def test_a_gang_that_is_new_is_looked_at_once_and_again_only_where_something_followed() -> None:
    dirty = a_clean_state(never_booked(WORLD))

    assert refreshed(dirty, WORLD) == {GANG}
    dirty.mark_followed(GANG)
    dirty.mark_clean()
    assert refreshed(dirty, WORLD) == {GANG}
    dirty.mark_clean()
    assert refreshed(dirty, WORLD) == set()


def test_all_gangs_are_examined_again_for_other_meters() -> None:
    dirty = a_clean_state()
    other = device_meters.compile_meters(WORLD.snapshot.meters.values())

    dirty.refresh(WORLD.book, ObservedAllocations.from_snapshot(WORLD.snapshot, other), {})

    assert [placement.gang_uid for placement in dirty.placements(WORLD.book)] == [GANG]
