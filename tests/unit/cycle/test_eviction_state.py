"""What a leader remembers of gangs that were taken back, and for how long."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes.meta import Meta
from admission.api.muster.gangs import Evicted, Gang
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, NodeName
from admission.api.values.reasons import EvictionReason
from admission.cycle.state.evictions import FORGET_AFTER, EvictionState
from admission.cycle.state.inputs import CycleInputs
from admission.dra.metering import device_meters
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota.tree import Tree
from admission.workloads import gangs
from admission.workloads.gang_cache import GangCache
from admission.workloads.gangs import Group
from tests.builders import NOON, a_cluster, let_in, running

MINUTE = timedelta(minutes=1)
INSTANT = timedelta(microseconds=1)
SNAPSHOT = a_cluster().queue("q", gpus=4, requeue={"base": "10m"}).job("train", queue="q", pods=2).snapshot()
(GANG,) = gangs.groups(SNAPSHOT, {})
LINED = replace(GANG, identity=replace(GANG.identity, position_key="line"))
PLACEMENTS = Book().placements


def inputs(at: datetime = NOON, *groups: Group, snapshot: Snapshot = SNAPSHOT) -> CycleInputs:
    return CycleInputs(
        snapshot=snapshot,
        observed=ObservedAllocations.from_snapshot(snapshot, device_meters.NONE),
        tree=Tree.build(snapshot.queues.values()),
        meters=device_meters.NONE,
        now=at,
        clock=at,
        by_uid={group.uid: group for group in groups},
    )


def eviction(group: Group = GANG, **fields: Any) -> Eviction:
    return Eviction(**{"group": group, "pods": group.pods, "reason": "for a test", "timed_out": False, **fields})


def a_state(*evictions: Eviction) -> EvictionState:
    state = EvictionState(_gangs=GangCache())
    for one in evictions:
        state.note(inputs(), one)
    return state


def test_a_gang_that_could_have_run_on_is_ending_until_that_is_finished_and_stays_evicted() -> None:
    state = a_state()
    preempted = eviction(cause=EvictionReason.PREEMPTED, made_room_for="team/high")

    assert state.note(inputs(), preempted)
    assert not state.note(inputs(NOON + MINUTE), preempted), "it is the same eviction"
    assert state.unfinished == {GANG.uid}

    known = Evicted(reason=EvictionReason.PREEMPTED, message="for a test", at=NOON, made_room_for="team/high")
    assert state.finish(GANG.uid) == known
    assert state.finish(GANG.uid) is None
    assert state.evicted == {GANG.uid: known}
    assert not state.unfinished


def test_a_gang_that_could_not_start_backs_off_and_was_not_evicted() -> None:
    state = a_state()

    assert state.note(inputs(), eviction(timed_out=True, failure="the API server refuses it"))
    assert state.backoffs[GANG.uid].next_try == NOON + 10 * MINUTE
    assert state.backoffs[GANG.uid].failure == "the API server refuses it"
    assert state.backoffs[GANG.uid].cause is None
    assert not state.evicted
    assert not state.note(inputs(), eviction())


def test_a_gang_that_ran_too_long_backs_off_for_that() -> None:
    state = a_state(eviction(timed_out=True, cause=EvictionReason.RUNTIME_EXCEEDED))

    assert state.backoffs[GANG.uid].cause is EvictionReason.RUNTIME_EXCEEDED
    assert state.evicted[GANG.uid].reason is EvictionReason.RUNTIME_EXCEEDED


def test_nobody_backs_off_in_a_queue_that_is_gone() -> None:
    state = EvictionState(_gangs=GangCache())

    assert not state.note(inputs(snapshot=replace(SNAPSHOT, queues={})), eviction(timed_out=True))
    assert not state.backoffs


@pytest.mark.parametrize(("most", "backs_off"), [(0, [True, True, True]), (2, [False, False, True])])
def test_a_gang_that_cannot_be_placed_backs_off_after_so_many_times(*, most: int, backs_off: list[bool]) -> None:
    state = a_state()

    assert [state.note_requeue(inputs(), GANG, "it is busy", most=most) for _ in backs_off] == backs_off


@pytest.mark.parametrize("later", [timedelta(0), INSTANT])
def test_what_is_known_of_gangs_that_are_gone_is_forgotten_after_a_while(later: timedelta) -> None:
    preempted, late = (
        a_state(eviction(LINED, cause=EvictionReason.PREEMPTED)),
        a_state(eviction(LINED, timed_out=True)),
    )

    preempted.restore_backoffs(inputs(NOON + FORGET_AFTER + later), PLACEMENTS)
    late.restore_backoffs(inputs(NOON + 10 * MINUTE + FORGET_AFTER + later), PLACEMENTS)

    kept = not later
    assert (GANG.uid in preempted.evicted) is kept
    assert ("line" in preempted._gangs.positions) is kept
    assert (GANG.uid in late.backoffs) is kept
    assert ("line" in late._workload_backoffs) is kept


def test_of_gangs_that_are_there_nothing_is_forgotten() -> None:
    cache = GangCache()
    (group,) = cache.groups(SNAPSHOT, {})
    state = EvictionState(_gangs=cache)
    state.note(inputs(), eviction(group, timed_out=True, cause=EvictionReason.RUNTIME_EXCEEDED))

    state.restore_backoffs(inputs(NOON + 100 * FORGET_AFTER, group), PLACEMENTS)

    assert group.uid in state.evicted
    assert group.uid in state.backoffs


def test_an_eviction_ends_with_the_last_place_of_its_gang() -> None:
    state = a_state(eviction(cause=EvictionReason.PREEMPTED))

    state.restore_backoffs(inputs(NOON + MINUTE), PLACEMENTS)

    assert not state.ending
    assert GANG.uid in state.evicted


def test_the_next_gang_of_a_line_backs_off_as_the_one_before() -> None:
    state = a_state(eviction(LINED, timed_out=True))
    following = replace(LINED, identity=replace(LINED.identity, uid=GangUid("next")))

    state.restore_backoffs(inputs(NOON + MINUTE, following), PLACEMENTS)

    assert state.backoffs[following.uid] == state.backoffs[GANG.uid]


def placed(group: Group, *, runs: int = 2, reserved: datetime = NOON, written: Evicted | None = None) -> Group:
    """Return a gang with places for its two pods, of which so many run; and what its Gang object says, if it does."""
    pods = tuple(running(pod, "a") if at < runs else let_in(pod) for at, pod in enumerate(group.pods))
    seats = {pod.meta.uid: Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=NodeName("a"), claims=()) for pod in pods}
    placement = Placement(gang_uid=group.uid, gang=group.key, queue=group.queue, reserved_at=reserved, seats=seats)
    record = Gang(meta=Meta(name="g"), queue=group.queue, size=2, evicted=written) if written is not None else None
    return replace(group, pods=pods, placement=placement, record=record)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_gang_that_runs_again_backs_off_no_more(runs: int) -> None:
    state = a_state(eviction(LINED, timed_out=True))
    state.note_requeue(inputs(), LINED, "it is busy", most=5)

    state.restore_backoffs(inputs(NOON + MINUTE, placed(LINED, runs=runs)), PLACEMENTS)

    kept = runs < 2
    assert (LINED.uid in state.backoffs) is kept
    assert ("line" in state._workload_backoffs) is kept
    assert ("line" in state._gangs.positions) is kept


def test_a_gang_that_still_runs_while_it_ends_keeps_its_place_in_the_order() -> None:
    state = a_state(eviction(LINED, cause=EvictionReason.PREEMPTED))
    group = placed(LINED)
    assert group.placement is not None

    state.restore_backoffs(inputs(NOON + MINUTE, group), {group.uid: group.placement})

    assert state.ending == {LINED.uid}
    assert "line" in state._gangs.positions
    assert LINED.uid in state.evicted


WRITTEN: dict[str, tuple[timedelta, timedelta, bool]] = {
    "after it had its places": (-MINUTE, timedelta(0), True),
    "as it had its places": (timedelta(0), timedelta(0), True),
    "now": (-MINUTE, MINUTE, True),
    "before it had its places again": (INSTANT, timedelta(0), False),
    "at a time that is still to come": (-MINUTE, MINUTE + INSTANT, False),
}


@pytest.mark.parametrize(("reserved", "at", "ending"), WRITTEN.values(), ids=WRITTEN)
def test_the_next_leader_goes_on_with_an_eviction_that_was_written(
    reserved: timedelta, at: timedelta, *, ending: bool
) -> None:
    written = Evicted(reason=EvictionReason.PREEMPTED, message="", at=NOON + at)
    group, state = placed(GANG, runs=1, reserved=NOON + reserved, written=written), a_state()
    assert group.placement is not None

    state.restore_backoffs(inputs(NOON + MINUTE, group), {group.uid: group.placement})

    assert state.evicted == {GANG.uid: written}
    assert (GANG.uid in state.ending) is ending


def test_a_gang_that_runs_on_after_an_eviction_is_not_evicted_any_more() -> None:
    written = Evicted(reason=EvictionReason.PREEMPTED, message="", at=NOON)
    group, state = placed(GANG, reserved=NOON + MINUTE, written=written), a_state()
    assert group.placement is not None

    state.restore_backoffs(inputs(NOON + 2 * MINUTE, group), {group.uid: group.placement})

    assert not state.evicted
