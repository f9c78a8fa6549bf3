"""A queue that asks by ProvisioningRequests: quota first, then the request; gates stay closed until it is answered."""

from dataclasses import replace

import pytest

from admission.api.capacity import provisioning_requests
from admission.api.capacity.provisioning_requests import KEY, Answer, ProvisioningRequest
from admission.api.kubernetes.meta import Meta
from admission.api.muster.ledger_entries import Kind
from admission.api.values import names
from admission.errors import FixError
from admission.scheduling.capacity import capacity_requests
from tests.builders import a_cluster
from tests.unit.cycle.fences import MINUTE, KilledError, kinds, report
from tests.unit.cycle.requesting import CLASS, MADE, REQUEST, Requesting, asks
from tests.unit.cycle.test_node_requests import charged


def consumed(play: Requesting) -> set[tuple[str, str]]:
    """Return the request and class that pods consume which are let in."""
    pods = [pod for pod in play.world._pods.values() if not pod.gated]
    return {tuple(pod.meta.annotations.get(key, "") for key in KEYS) for pod in pods}  # type: ignore[misc]


KEYS = (names.CONSUMED_REQUEST, names.PROVISIONING_CLASS)


async def test_quota_is_reserved_before_the_request_and_gates_open_when_it_is_provisioned() -> None:
    play = Requesting(asks(), a={})

    result = await play.forget_changes()

    (made,) = play.requests.made
    assert charged(play) == 16
    assert (made.provisioning_class, made.parameters) == (CLASS, {"ValidUntilSeconds": "600"})
    assert [(one.count, one.labels) for one in made.pod_sets] == [(4, {"type": "x8"})]
    assert play.world.towards() == {}
    found = report(result, "a")
    assert found.phase == "Reserved"
    assert found.hold is not None
    assert found.hold.reason == "NodesNeeded"
    assert "2 of shape x8" in found.hold.message

    play.requests.answer(Answer.ACCEPTED, progress="Queued: eta 10 minutes")
    held = report(await play.forget_changes(), "a").hold
    assert held is not None
    assert "was accepted (Queued: eta 10 minutes)" in held.message
    assert play.world.towards() == {}

    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(2)

    assert sorted(play.world.bound().values()) == ["n1", "n1", "n2", "n2"]
    assert consumed(play) == {(made.name, CLASS)}
    assert kinds(play.ledger) == [Kind.RESERVE, Kind.SETTLE]
    assert len(play.requests.made) == 1
    play.world.delete_job("a")
    await play.forget_changes(2)
    assert play.requests.gone == [made.key]
    assert charged(play) == 0


async def test_pods_with_room_on_nodes_that_are_there_are_in_the_request_and_wait_with_the_others() -> None:
    play = Requesting(
        a_cluster().queue("q", gpus=100, provisioning=REQUEST).node("n", gpus=4).shape("x8", gpus=8), a={}
    )

    await play.forget_changes()

    (made,) = play.requests.made
    assert sorted((one.count, dict(one.labels)) for one in made.pod_sets if one.labels) == [(3, {"type": "x8"})]
    assert [one.count for one in made.pod_sets if not one.labels] == [1]
    assert play.world.bound() == {}
    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes()
    assert play.world.bound() == {"a-0": "n"}


async def test_a_gang_over_quota_has_no_request() -> None:
    play = Requesting(asks(gpus=15), a={})

    await play.forget_changes(2)

    assert play.requests.made == []


@pytest.mark.parametrize("answer", [Answer.FAILED, Answer.BOOKING_EXPIRED, Answer.CAPACITY_REVOKED])
async def test_what_cannot_be_had_is_given_back_and_asked_for_anew_after_the_back_off(answer: Answer) -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    first = play.requests.made[0]

    play.requests.answer(answer, message="OutOfStock: no such machines")
    result = await play.forget_changes(2)

    assert charged(play) == 0
    assert play.requests.gone == [first.key]
    assert len(play.world._pods) == 4, "its pods wait behind their gates, none is deleted"
    hold = report(result, "a").hold
    assert hold is not None
    assert hold.reason == "PlacementFailed"
    assert "OutOfStock: no such machines" in hold.message
    assert "it is tried again at" in hold.message

    play.world.now += 2 * MINUTE
    await play.forget_changes(2)
    second = play.requests.made[1]
    assert second.name != first.name
    assert charged(play) == 16
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 4


async def test_tries_are_bounded_by_the_queue() -> None:
    play = Requesting(asks(requeue={"base": "1s", "max": "1s", "limit": 2}), a={})
    result = await play.forget_changes()

    for _ in range(5):
        if play.requests.there:
            play.requests.answer(Answer.FAILED)
        play.world.now += MINUTE
        result = await play.forget_changes(3)

    assert len(play.requests.made) == 3
    hold = report(result, "a").hold
    assert hold is not None
    assert "the queue allows 2 new tries" in hold.message
    assert (charged(play), play.requests.there) == (0, [])


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_request_that_is_never_answered_gives_everything_back_at_the_timeout(accepted: bool) -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    if accepted:
        play.requests.answer(Answer.ACCEPTED)

    play.world.now += 16 * MINUTE
    result = await play.forget_changes(3)

    assert (charged(play), play.requests.there) == (0, [])
    hold = report(result, "a").hold
    assert hold is not None
    assert "did not come within 15m" in hold.message


async def test_a_booking_that_expires_after_the_gates_are_open_leaves_the_gang_to_its_timeout() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes()
    play.requests.answer(Answer.BOOKING_EXPIRED)

    await play.forget_changes(2)

    assert len(play.world.towards()) == 4
    play.world.now += 16 * MINUTE
    await play.forget_changes(3)
    assert (charged(play), play.requests.there) == (0, [])


@pytest.mark.parametrize("runs", [True, False])
async def test_capacity_that_is_revoked_takes_the_whole_gang_back(runs: bool) -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    if runs:
        play.world.add("n1", "n2")
    await play.forget_changes(2)
    assert len(play.world.bound()) == (4 if runs else 0)

    play.requests.answer(Answer.CAPACITY_REVOKED, message="MaxRunDuration: seven days are over")
    result = await play.forget_changes(3)

    assert play.world.bound() == {}
    assert (charged(play), play.requests.there) == (0, [])
    hold = report(result, "a").hold
    assert hold is not None
    assert "the capacity was revoked (MaxRunDuration: seven days are over)" in hold.message


async def test_a_request_that_others_delete_before_the_gates_open_is_made_again() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes(2)
    play.world._rest = replace(play.world._rest, provisioning_requests={})

    await play.forget_changes()

    assert [one.name for one in play.requests.made] == [play.requests.made[0].name] * 2


async def test_requests_of_others_are_left_alone() -> None:
    play = Requesting(asks())
    theirs = ProvisioningRequest(meta=Meta(name="theirs", namespace="team", labels=MADE))
    play.requests.put(theirs)

    await play.forget_changes(2)

    assert play.requests.gone == []


async def test_a_request_that_is_refused_says_so_and_is_tried_until_the_timeout() -> None:
    play = Requesting(asks(), a={})
    play.requests.fails = FixError("create provisioningrequests: not allowed")

    hold = report(await play.forget_changes(2), "a").hold

    assert hold is not None
    assert "could not be made yet: create provisioningrequests: not allowed" in hold.message
    assert play.world.towards() == {}
    play.requests.fails = None
    await play.forget_changes()
    assert len(play.requests.made) == 1


async def test_templates_of_a_request_that_never_came_go_when_its_gang_is_taken_back() -> None:
    play = Requesting(asks(requeue={"base": "1h"}), a={})
    play.requests.fails = FixError("create provisioningrequests: over quota")
    await play.forget_changes(2)
    assert len(play.requests.templates) == 1, "it is tried again with the same ones"

    play.world.now += 16 * MINUTE
    await play.forget_changes(3)

    assert (charged(play), play.requests.templates) == (0, set())


async def test_templates_are_looked_for_once_by_each_leader_and_kept_for_requests_that_are_needed() -> None:
    play = Requesting(asks(), a={})
    play.requests.templates = {"team/old-1"}

    await play.forget_changes(5)

    assert play.requests.cleanups == 1
    assert play.requests.templates == {play.requests.made[0].key}


async def test_without_the_right_to_look_for_templates_gangs_are_asked_for_all_the_same() -> None:
    play = Requesting(asks(), a={})
    play.requests.refuses = FixError("list podtemplates: forbidden")

    await play.forget_changes(2)

    assert len(play.requests.made) == 1


async def test_where_the_kind_is_not_served_nothing_is_charged_and_gang_and_queue_say_what_helps() -> None:
    play = Requesting(asks(), a={})
    play.world._rest = replace(play.world._rest, unwatched={KEY: "the API server does not serve it"})

    result = await play.forget_changes()

    assert (charged(play), play.requests.made) == (0, [])
    hold = report(result, "a").hold
    assert hold is not None
    assert hold.reason == "NodesNeeded"
    assert "install the CRD of Cluster Autoscaler" in hold.message
    (queue,) = result.queues
    (condition,) = [one for one in queue.conditions if one.type == "ProvisioningRequestsServed"]
    assert condition.status == "False"
    assert "does not serve it" in condition.message


async def test_where_the_kind_vanishes_while_a_gang_waits_everything_is_given_back() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    gone = {KEY: "the API server does not serve it"}
    play.world._rest = replace(play.world._rest, unwatched=gone, provisioning_requests={})

    hold = report(await play.forget_changes(2), "a").hold

    assert charged(play) == 0
    assert hold is not None
    assert "install the CRD of Cluster Autoscaler" in hold.message


async def test_a_queue_that_asks_no_longer_has_its_unanswered_requests_deleted() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    rest = play.world._rest
    (queue,) = rest.queues.values()
    pods = replace(queue.provisioning, mode=type(queue.provisioning.mode)("Pods"))
    play.world._rest = replace(rest, queues={queue.name: replace(queue, provisioning=pods)})

    await play.forget_changes(2)

    assert play.requests.there == []
    assert len(play.world.towards()) == 4


@pytest.mark.parametrize("joins", [False, True])
async def test_a_queue_that_asks_nobody_any_more_gives_back_what_waits_for_nodes_without_a_back_off(
    joins: bool,
) -> None:
    play = Requesting(asks(), a={"pods": 2, "gpus": 8})
    await play.forget_changes()
    if joins:
        play.requests.answer(Answer.PROVISIONED)
        play.world.add("n1", "n2")
        await play.forget_changes(3)
        play.world.lose("n2")
        await play.forget_changes(2)
        assert len(play.requests.made) == 2
    rest = play.world._rest
    (queue,) = rest.queues.values()
    none = replace(queue.provisioning, mode=type(queue.provisioning.mode)("None"))
    play.world._rest = replace(rest, queues={queue.name: replace(queue, provisioning=none)})

    result = await play.forget_changes(3)

    assert (play.world.towards(), charged(play)) == ({}, 8 if joins else 0)
    assert len(play.requests.there) == (1 if joins else 0)
    found = report(result, "a")
    assert (found.hold and found.hold.reason, found.evictions) == ("NodesNeeded", 0)
    play.world._rest = replace(play.world._rest, queues=rest.queues)
    await play.forget_changes(2)
    assert len(play.requests.made) == (3 if joins else 2)


async def test_a_request_stays_while_pods_consume_it_whatever_its_gang_reserves_later() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(2)
    (placement,) = play.ledger.book.placements.values()
    snapshot = play.world.snapshot()
    closed = replace(snapshot, pods={})
    later = replace(placement, reserved_at=placement.reserved_at + MINUTE)
    assert capacity_requests.asked(later, closed) == capacity_requests.asked(placement, closed)
    # The books of an older Muster do not say when nodes were asked for.
    untimed = {uid: replace(seat, node=names.for_people(seat.node)) for uid, seat in later.seats.items()}
    later = replace(later, seats=untimed)

    assert capacity_requests.asked(later, closed) != capacity_requests.asked(placement, closed)
    assert [one.key for one in capacity_requests.asked(later, snapshot)] == [play.requests.made[0].key]
    for queues in (snapshot.queues, {}):
        known = replace(snapshot, queues=queues)
        assert capacity_requests.unneeded(play.requests.there, [later], known) == []
    assert capacity_requests.unneeded(play.requests.there, [], snapshot) == play.requests.there


@pytest.mark.parametrize("lives", range(6))
@pytest.mark.parametrize("end", ["nodes come", "it fails", "the job is deleted"])
async def test_killed_at_any_write_the_next_leader_leaves_no_request_and_no_charge(lives: int, end: str) -> None:
    play = Requesting(asks(requeue={"base": "1h"}), a={})
    play.requests.lives = lives
    await survive(play, 1)
    if play.requests.there:
        play.requests.answer(Answer.PROVISIONED if end == "nodes come" else Answer.ACCEPTED)
    if end == "nodes come":
        play.world.add("n1", "n2")
    elif end == "it fails" and play.requests.there:
        play.requests.answer(Answer.FAILED)
    elif end == "the job is deleted":
        play.world.delete_job("a")
    await survive(play, 2)

    if end == "nodes come":
        play.requests.lives = 10**6
        if Answer.PROVISIONED not in play.requests.there[0].answers:
            play.requests.answer(Answer.PROVISIONED)
        await play.forget_changes(2)
        assert len(play.world.bound()) == 4
        assert len({one.name for one in play.requests.made}) == 1
        play.world.delete_job("a")
    elif end == "it fails" and play.requests.there:
        play.requests.answer(Answer.FAILED)
    await survive(play, 3)
    assert (charged(play), play.requests.there, play.requests.templates) == (0, [], set())


async def test_a_request_that_is_being_deleted_opens_no_gate_and_is_made_again() -> None:
    play = Requesting(asks(), a={})
    await play.forget_changes()
    (asked,) = play.requests.there
    going = replace(asked, meta=replace(asked.meta, deleted=play.world.now), answers={Answer.PROVISIONED: "it is"})
    play.requests.put(going)

    result = await play.forget_changes(2)

    assert play.world.towards() == {}
    assert "is being deleted" in str(report(result, "a").hold)
    play.world._rest = replace(play.world._rest, provisioning_requests={})
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes()
    assert len(play.world.towards()) == 4
    (asked,) = play.requests.there
    play.requests.put(replace(asked, meta=replace(asked.meta, deleted=play.world.now)))
    play.world.add("n1", "n2")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 4, "gates that are open stay open"


async def survive(play: Requesting, cycles: int) -> None:
    """Run cycles; where the leader dies, another one takes over, which lives."""
    for _ in range(cycles):
        try:
            await play.forget_changes()
        except* KilledError:
            play.requests.lives = 10**6
            await play.ledger.fence(play.epoch + 1)
            play.succeed()


def test_what_an_autoscaler_says_is_read_and_cut() -> None:
    conditions = [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "taken up"},
        {"type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound", "message": "no\nroom"},
        {"type": "Failed", "status": "False", "reason": "No", "message": ""},
        {"type": "Other", "status": "True", "reason": "Yes", "message": ""},
        {"type": "BookingExpired", "status": "True", "reason": "Late", "message": "x" * 1000},
    ]
    spec = {"provisioningClassName": CLASS, "podSets": [{"count": 2, "podTemplateRef": {"name": "r-0"}}]}
    obj = {"metadata": {"name": "r", "namespace": "team"}, "spec": spec, "status": {"conditions": conditions}}

    read = provisioning_requests.decode(obj)

    assert read.answers[Answer.ACCEPTED] == "Accepted: taken up"
    assert read.progress == "CapacityIsNotFound: no room"
    assert read.answers.keys() == {Answer.ACCEPTED, Answer.BOOKING_EXPIRED}
    assert len(read.answers[Answer.BOOKING_EXPIRED]) == 400
    assert (read.templates, read.is_ours) == (("r-0",), False)
