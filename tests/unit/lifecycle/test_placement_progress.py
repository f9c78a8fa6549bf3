"""Why a gang that was granted cannot start as planned."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes.pods import Container, Stage
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.lifecycle import placement_progress
from admission.workloads import gangs
from tests.builders import NOON, let_in, pod_of, with_pods
from tests.unit.lifecycle.allocations import device, observed_in, with_allocation
from tests.unit.lifecycle.test_reconciliation import (
    CLAIM,
    World,
    booked_cluster,
    granted,
    reserved,
    without_claim,
)


def a_world() -> World:
    """A gang whose claims have their devices, and whose pods were let in and are not bound yet."""
    world = booked_cluster()
    bound = (pod_of(world.snapshot, f"train-{at}") for at in range(2))
    pods = [let_in(replace(pod, node=NodeName(""), phase="Pending")) for pod in bound]
    return world._replace(snapshot=with_pods(world.snapshot, *pods))


def trouble(snapshot: Snapshot, book: Book) -> str | None:
    (group,) = gangs.groups(snapshot, book.placements)
    return placement_progress.start_problem(group, book, observed_in(snapshot))


def changed_claim(snapshot: Snapshot, **changes: object) -> Snapshot:
    claim = replace(snapshot.claims[CLAIM], **changes)  # type: ignore[arg-type]
    return replace(snapshot, claims={**snapshot.claims, CLAIM: claim})


def deleted(snapshot: Snapshot) -> Snapshot:
    return changed_claim(snapshot, meta=replace(snapshot.claims[CLAIM].meta, deleted=NOON))


def lost(snapshot: Snapshot) -> Snapshot:
    return with_allocation(snapshot, CLAIM, device(9))


TROUBLES: dict[str, tuple[Callable[[Snapshot], Snapshot], str | None]] = {
    "nothing": (lambda snapshot: snapshot, None),
    "its node": (lambda snapshot: replace(snapshot, nodes={}), "node a, where pod team/train-0 was to go, is gone"),
    "a claim that is gone": (
        lambda snapshot: without_claim(snapshot, CLAIM),
        f"claim {CLAIM} of pod team/train-0 is gone",
    ),
    "a claim that was made anew": (
        lambda snapshot: changed_claim(snapshot, meta=replace(snapshot.claims[CLAIM].meta, uid=Uid("new"))),
        f"claim {CLAIM} of pod team/train-0 was made anew",
    ),
    "a claim that is being deleted": (deleted, f"claim {CLAIM} of pod team/train-0 is being deleted"),
    "a claim that is still to get its devices": (lambda snapshot: with_allocation(snapshot, CLAIM), None),
    "a device that is gone": (lost, f"device {device(9).device} of claim {CLAIM} is gone"),
    "a device that is gone from a claim in use": (
        lambda snapshot: changed_claim(lost(snapshot), reserved_for=(Uid("x"),)),
        None,
    ),
}


@pytest.mark.parametrize(("change", "told"), TROUBLES.values(), ids=TROUBLES)
def test_what_keeps_a_gang_from_starting_as_planned_is_named(
    change: Callable[[Snapshot], Snapshot], told: str | None
) -> None:
    world = a_world()

    assert trouble(change(world.snapshot), world.book) == told


def test_a_claim_that_the_gang_is_not_charged_for_is_told_by_its_uid_and_has_to_have_its_devices() -> None:
    world = a_world()
    entry = reserved(2)
    book = Book.replay([*granted(), replace(entry, holdings=entry.holdings[1:], postings=())])
    assert trouble(world.snapshot, book) is None

    uid = world.snapshot.claims[CLAIM].meta.uid
    assert trouble(without_claim(world.snapshot, CLAIM), book) == f"a claim (UID {uid}) of pod team/train-0 is gone"
    assert trouble(with_allocation(world.snapshot, CLAIM), book) == (
        f"claim {CLAIM} of pod team/train-0 has lost its devices"
    )


def test_pods_that_are_bound_are_in_nobodys_way() -> None:
    world = booked_cluster()

    assert trouble(without_claim(world.snapshot, CLAIM), world.book) is None


def unallocated(snapshot: Snapshot) -> Snapshot:
    for key in snapshot.claims:
        snapshot = with_allocation(snapshot, key)
    return snapshot


def keys(snapshot: Snapshot, book: Book, *, allocates: bool = False) -> list[str]:
    (group,) = gangs.groups(snapshot, book.placements)
    found = placement_progress.allocation_keys(group, observed_in(snapshot), allocates=allocates)
    return [found.get(pod.meta.uid, "") for pod in group.pods]


def test_pods_with_equal_claims_may_be_given_devices_in_any_order_and_others_not() -> None:
    world = a_world()
    snapshot = unallocated(world.snapshot)

    first, second = keys(snapshot, world.book)
    assert first == second != ""

    spec = snapshot.claims[CLAIM].spec
    more = replace(spec, requests=(*spec.requests, replace(spec.requests[0], name="more")))
    first, second = keys(changed_claim(snapshot, spec=more), world.book)
    assert first != second


def test_pods_whose_claims_have_devices_or_get_them_from_muster_may_be_let_in_in_any_order() -> None:
    world = a_world()

    assert keys(world.snapshot, world.book) == ["", ""]
    assert keys(unallocated(world.snapshot), world.book, allocates=True) == ["", ""]


def test_pods_for_which_kube_scheduler_makes_a_claim_are_equal_if_their_containers_are() -> None:
    world = a_world()
    (gang,) = world.book.placements.values()
    seats = [replace(seat, claims=(names.extended_claim(seat.pod_uid),)) for seat in gang.seats.values()]
    book = Book.replay([*granted(), replace(reserved(2), seats=tuple(seats))])

    def requesting(*counts: int) -> list[str]:
        containers = [(Container(stage=Stage.MAIN, requests=(("example.com/gpu", count),)),) for count in counts]
        pods = [replace(pod_of(world.snapshot, f"train-{at}"), containers=one) for at, one in enumerate(containers)]
        return keys(with_pods(world.snapshot, *pods), book, allocates=True)

    first, second = requesting(1, 1)
    assert first == second != ""
    first, second = requesting(1, 2)
    assert first != second
