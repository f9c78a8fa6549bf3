"""The pending gangs by queue, which follow what differs from one cycle to the next."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from hypothesis import given, strategies as st

from admission.api.values.names import GangUid, QueueName
from admission.scheduling.cache.queue_cache import PendingGangs
from admission.workloads import gangs
from admission.workloads.gangs import Group
from tests.builders import a_cluster

(GROUP,) = gangs.groups(a_cluster().job("train", queue="q").snapshot(), {})
QUEUES = (QueueName("a"), QueueName("b"))
STEPS = 20


def a_gang(uid: GangUid, queue: QueueName, *, waits: bool = True) -> Group:
    pods = GROUP.pods if waits else tuple(replace(pod, gates=()) for pod in GROUP.pods)
    return replace(GROUP, identity=replace(GROUP.identity, uid=uid), queue=queue, pods=pods)


def shown(groups: Iterable[Group]) -> dict[QueueName, set[int]]:
    found: dict[QueueName, set[int]] = {}
    for group in groups:
        if group.waiting:
            found.setdefault(group.queue, set()).add(id(group))
    return found


@given(st.integers(0, 2**32))
def test_pending_gangs_that_are_followed_equal_those_that_are_found_anew(seed: int) -> None:
    draw, pending = Random(seed), PendingGangs()  # noqa: S311 - a seed for choices
    known: dict[GangUid, Group] = {}
    for _ in range(STEPS):
        uid = GangUid(str(draw.randrange(4)))
        known = {one: group for one, group in known.items() if one != uid}
        if draw.random() < 0.7:
            known[uid] = a_gang(uid, draw.choice(QUEUES), waits=draw.random() < 0.7)
        groups = tuple(known.values())
        pending.follow(groups, known)

        assert pending.of(groups) is pending
        assert {queue: {*map(id, there)} for queue, there in pending.by_queue.items()} == shown(groups)
        assert {*pending.uids} == {group.uid for group in groups if group.waiting}


def test_what_was_returned_by_queue_stays_as_it_is() -> None:
    pending, one, other = PendingGangs(), a_gang(GangUid("1"), QUEUES[0]), a_gang(GangUid("2"), QUEUES[0])
    pending.follow((one,), {one.uid: one})
    before = pending.by_queue
    pending.follow((other,), {other.uid: other})

    assert before == {QUEUES[0]: (one,)}
    assert pending.by_queue == {QUEUES[0]: (other,)}


def test_of_gangs_that_were_not_followed_the_pending_ones_are_found() -> None:
    pending, one, other = PendingGangs(), a_gang(GangUid("1"), QUEUES[0]), a_gang(GangUid("2"), QUEUES[1])
    pending.follow((one, other), {one.uid: one, other.uid: other})
    rest = (other,)

    assert pending.of(rest).by_queue == {QUEUES[1]: rest}
    assert pending.of(rest) is pending.of(rest)
    assert {*pending.uids} == {one.uid, other.uid}
