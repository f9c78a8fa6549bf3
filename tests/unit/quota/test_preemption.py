from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admission.api.muster.queues import BorrowPolicy, BorrowWithinCohort, ByShares, Preemption, Reclaim, WithinQueue
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.quota import preemption as quota_preemption
from admission.quota.headroom import QueueUsage
from admission.quota.preemption import Bounds, NoVictims, Victims
from admission.quota.preemption_rules import Candidate, Incoming
from tests.unit.quota.trees import GPU, TreeBuilder, a_tree

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOTH = Preemption(within_queue=WithinQueue.LOWER_PRIORITY, reclaim=Reclaim.ANY)
OWN = Preemption(within_queue=WithinQueue.LOWER_PRIORITY)


class Scene:
    """Running gangs in a tree, and one that comes to queue a with priority 10."""

    def __init__(self, builder: TreeBuilder) -> None:
        self.builder = builder
        self.gangs: list[Candidate] = []

    def gang(self, uid: str, queue: str, gpus: int, *, priority: int = 0, age: int = 60, idle: bool = False) -> "Scene":
        charge = {GPU: gpus}
        start = NOON - timedelta(minutes=age)
        gang = Candidate(
            uid=GangUid(uid),
            queue=QueueName(queue),
            priority=priority,
            reserved_at=start,
            queued_since=start,
            charge=charge,
            is_idle=idle,
        )
        self.gangs.append(gang)
        amounts = self.builder.usage.setdefault(gang.queue, {})
        amounts[GPU] = amounts.get(GPU, 0) + gpus
        return self

    def answer(
        self, gpus: int, preemption: Preemption = BOTH, bounds: Bounds | None = None, *, was_reclaimed: bool = False
    ) -> Victims | NoVictims:
        """Return the answer where quota decides."""
        queue_usage = QueueUsage(self.builder.tree, self.builder.usage)
        incoming = Incoming(
            queue=QueueName("a"),
            queued_since=NOON,
            priority=10,
            charge={GPU: gpus},
            preemption=preemption,
            was_reclaimed=was_reclaimed,
        )

        def fits(gone: frozenset[GangUid]) -> bool:
            trial = queue_usage.copy()
            for gang in self.gangs:
                if gang.uid in gone:
                    trial.give_back(gang.queue, gang.charge)
            return trial.charge_fits(incoming.queue, incoming.charge) is None

        return quota_preemption.choose_fewest(queue_usage, incoming, self.gangs, fits, bounds or Bounds())


def victims(*gangs: str) -> Victims:
    return Victims(tuple(map(GangUid, gangs)), fewest=True)


NOBODY = NoVictims(proved=True)
LOWER = Preemption(within_queue=WithinQueue.LOWER_PRIORITY, reclaim=Reclaim.LOWER_PRIORITY)


NEWER = Preemption(within_queue=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)


def borrowing(most: int | None = None) -> Preemption:
    rule = BorrowWithinCohort(policy=BorrowPolicy.LOWER_PRIORITY, max_priority_threshold=most)
    return Preemption(reclaim=Reclaim.ANY, borrow_within_cohort=rule)


def sharing(rule: ByShares = ByShares.INITIAL_SHARE, reclaim: Reclaim = Reclaim.ANY) -> Preemption:
    return Preemption(within_queue=WithinQueue.LOWER_PRIORITY, reclaim=reclaim, by_shares=rule)


def a_pool(gpus: int, **weights: str) -> Scene:
    """Return queues without quota that share a pool of GPUs: a, b and c of the weights, 1 by default."""
    builder = a_tree().queue("root", gpus)
    for name in "abc":
        builder.queue(name, 0, parent="root", weight=weights.get(name, "1"))
    return Scene(builder)


FINAL = ByShares.FINAL_SHARE


def two_queues(a: int = 4, b: int = 4, root: int = 0) -> Scene:
    return Scene(a_tree().queue("root", root).queue("a", a, parent="root").queue("b", b, parent="root"))


def three_queues(a: int, b: int, c: int) -> Scene:
    builder = a_tree().queue("root").queue("a", a, parent="root").queue("b", b, parent="root")
    return Scene(builder.queue("c", c, parent="root"))


def crowd(size: int) -> Scene:
    """Return a queue that uses gangs of one GPU each to borrow all that queue a has."""
    scene = two_queues(a=size, b=0)
    for number in range(size):
        scene.gang(f"x-{number:03}", "b", 1, age=number)
    return scene


def two_teams(a: int = 2, root: int = 0) -> Scene:
    """Return queues a and b in team x, which has 4 to share, and c in team y; a has 2 of its own by default."""
    builder = a_tree().queue("root", root).queue("x", 4, parent="root").queue("y", 2, parent="root")
    return Scene(builder.queue("a", a, parent="x").queue("b", 0, parent="x").queue("c", 0, parent="y"))


CASES: dict[str, tuple[Scene, int, Preemption, Victims | NoVictims]] = {
    "an idle gang goes before a younger one": (
        two_queues(b=0).gang("x", "a", 2, age=90, idle=True).gang("y", "a", 2),
        2,
        BOTH,
        victims("x"),
    ),
    "an idle gang goes before one of lower priority": (
        two_queues(b=0).gang("x", "a", 2, priority=5, idle=True).gang("y", "a", 2),
        2,
        BOTH,
        victims("x"),
    ),
    "an idle gang of the own queue goes before a loan": (
        two_queues(a=4, b=0).gang("x", "a", 2, idle=True).gang("y", "b", 2),
        2,
        BOTH,
        victims("x"),
    ),
    "idle gangs go though fewer others would do": (
        two_queues(b=0).gang("x", "a", 1, idle=True).gang("y", "a", 1, idle=True).gang("z", "a", 2),
        2,
        BOTH,
        victims("x", "y"),
    ),
    "of idle gangs the fewest": (
        two_queues(b=0).gang("x", "a", 1, idle=True).gang("y", "a", 1, idle=True).gang("z", "a", 2, idle=True),
        2,
        BOTH,
        victims("z"),
    ),
    "an idle gang goes beside others where idle ones are not enough": (
        two_queues(b=0).gang("x", "a", 1, age=90, idle=True).gang("y", "a", 1).gang("z", "a", 2),
        3,
        BOTH,
        victims("x", "z"),
    ),
    "an idle gang that may not go stays": (
        two_queues(b=0).gang("x", "a", 2, priority=20, idle=True).gang("y", "a", 2),
        2,
        BOTH,
        victims("y"),
    ),
    "a gang of lower priority makes room in its own queue": (
        two_queues(b=0).gang("x", "a", 4),
        4,
        BOTH,
        victims("x"),
    ),
    "of two pairs that is better whose lower gang is preferred, though another pair is found first": (
        two_queues(a=10, b=0)
        .gang("u", "a", 1, priority=2)
        .gang("v", "a", 2, priority=3)
        .gang("x", "a", 3, priority=4)
        .gang("y", "a", 4, priority=5),
        6,
        BOTH,
        victims("v", "y"),
    ),
    "one of the same priority does not": (two_queues(b=0).gang("x", "a", 4, priority=10), 4, BOTH, NOBODY),
    "none does where the queue says Never": (two_queues(b=0).gang("x", "a", 4), 4, Preemption(), NOBODY),
    "what others borrowed is taken back": (
        two_queues().gang("x", "b", 4, age=9).gang("y", "b", 4, age=5),
        4,
        BOTH,
        victims("y"),
    ),
    "of a higher priority too, where reclaim is Any": (
        two_queues(b=0).gang("x", "b", 4, priority=99),
        4,
        BOTH,
        victims("x"),
    ),
    "but not where it is LowerPriority": (two_queues(b=0).gang("x", "b", 4, priority=99), 4, LOWER, NOBODY),
    "nor where it is Never": (two_queues(b=0).gang("x", "b", 4), 4, OWN, NOBODY),
    "what is within its own quota stays": (two_queues().gang("x", "b", 4), 5, BOTH, NOBODY),
    "a gang goes that is borrowed only in part": (two_queues(a=8, b=1).gang("x", "b", 9), 8, BOTH, victims("x")),
    "two gangs of a queue that still borrows before the second one goes": (
        two_queues(b=2).gang("x", "b", 3).gang("y", "b", 3),
        4,
        BOTH,
        victims("x", "y"),
    ),
    "but not one of a queue that then no longer borrows": (
        two_queues(a=6, b=2).gang("x", "b", 2).gang("y", "b", 2, age=9).gang("z", "a", 4, priority=10),
        4,
        BOTH,
        NOBODY,
    ),
    "loans before gangs that are borrowed in part, though these are fewer": (
        Scene(
            a_tree()
            .queue("root")
            .queue("a", 6, parent="root")
            .queue("b", 1, parent="root")
            .queue("c", 0, parent="root")
        )
        .gang("x", "b", 4, priority=-1)
        .gang("y", "c", 2)
        .gang("z", "c", 1),
        3,
        BOTH,
        victims("y", "z"),
    ),
    "of gangs that are borrowed in part those that take the least beyond the loan": (
        Scene(
            a_tree()
            .queue("root")
            .queue("a", 6, parent="root")
            .queue("b", 3, parent="root")
            .queue("c", 1, parent="root")
        )
        .gang("x", "b", 6, priority=-1)
        .gang("y", "c", 4),
        4,
        BOTH,
        victims("y"),
    ),
    "of a team's gangs those that leave the team most of its own": (
        Scene(
            a_tree()
            .queue("root")
            .queue("a", 3, parent="root")
            .queue("team", 6, parent="root")
            .queue("b", 0, parent="team")
            .queue("c", 0, parent="team")
        )
        .gang("x", "b", 5, priority=-1)
        .gang("y", "c", 4),
        3,
        BOTH,
        victims("y"),
    ),
    "a queue of nothing takes what its team lent before it takes from its own gangs": (
        two_teams(a=0).gang("x", "a", 2, age=1).gang("y", "c", 2).gang("z", "c", 2),
        2,
        BOTH,
        victims("y"),
    ),
    "two gangs that borrow before one of its own": (
        two_queues(a=4, b=0).gang("x", "a", 2).gang("y", "b", 1).gang("z", "b", 1),
        2,
        BOTH,
        victims("y", "z"),
    ),
    "nobody is evicted so that others may borrow": (two_queues(b=0).gang("x", "b", 3), 5, BOTH, NOBODY),
    "what lies under another root is of no use": (
        Scene(a_tree().queue("a", 4).queue("b", 0)).gang("x", "b", 3).gang("y", "a", 4, priority=10),
        1,
        BOTH,
        NOBODY,
    ),
    "one large gang rather than two that are preferred": (
        two_queues(b=0).gang("x", "b", 1).gang("y", "b", 1).gang("z", "b", 2, priority=5, age=900),
        2,
        BOTH,
        victims("z"),
    ),
    "the lowest priority first": (
        two_queues(b=0).gang("x", "b", 2, priority=1).gang("y", "b", 2, priority=-1, age=900),
        2,
        BOTH,
        victims("y"),
    ),
    "then the youngest": (two_queues(b=0).gang("x", "b", 2).gang("y", "b", 2, age=5), 2, BOTH, victims("y")),
    "borrowers before the own gangs, whatever their priority": (
        two_queues(b=0).gang("x", "a", 2).gang("y", "b", 2, priority=9),
        2,
        BOTH,
        victims("y"),
    ),
    "own gangs go, so that the queue takes no more than its own back": (
        two_queues(b=0).gang("x", "a", 2).gang("y", "b", 2),
        4,
        BOTH,
        victims("y", "x"),
    ),
    "what a team lent to a gang that has more, one of its queues takes back": (
        two_teams().gang("x", "c", 8),
        4,
        BOTH,
        victims("x"),
    ),
    "what a team lent, one of its queues takes back for all of them": (
        two_teams().gang("x", "c", 4).gang("y", "c", 4),
        4,
        BOTH,
        victims("x"),
    ),
    "but no queue of the team from another what neither of them owns": (
        two_teams().gang("x", "b", 3).gang("y", "c", 2),
        4,
        BOTH,
        NOBODY,
    ),
    "all gangs that borrow before an own one, though more of them go": (
        two_queues(a=13, b=0)
        .gang("w", "b", 2, priority=-2)
        .gang("x", "b", 1, age=4)
        .gang("y", "b", 4, priority=1)
        .gang("z", "a", 5),
        8,
        BOTH,
        victims("w", "x", "y"),
    ),
    "no more go than what is left leaves missing": (
        two_queues(a=4, b=0).gang("x", "b", 2).gang("y", "b", 1, age=5),
        2,
        BOTH,
        victims("y"),
    ),
    "a queue takes back all that is its own though those under it borrow": (
        Scene(
            a_tree()
            .queue("root", 2)
            .queue("a", 2, parent="root")
            .queue("a1", 0, parent="a")
            .queue("b", 0, parent="root")
        )
        .gang("w", "a1", 2, priority=99)
        .gang("x", "b", 2),
        2,
        BOTH,
        victims("x"),
    ),
    "but not more than its own": (
        Scene(
            a_tree()
            .queue("root", 3)
            .queue("a", 2, parent="root")
            .queue("a1", 0, parent="a")
            .queue("b", 0, parent="root")
        )
        .gang("w", "a1", 2, priority=99)
        .gang("x", "b", 3),
        3,
        BOTH,
        NOBODY,
    ),
    "a gang of the same priority that was queued later goes where the queue says so": (
        two_queues(b=0).gang("x", "a", 2, priority=10, age=9).gang("y", "a", 2, priority=10, age=-9),
        2,
        NEWER,
        victims("y"),
    ),
    "but none that was queued before": (two_queues(b=0).gang("x", "a", 4, priority=10), 2, NEWER, NOBODY),
    "gangs of lower priority go to borrow where the queue says so": (
        two_queues(a=0, b=0, root=4).gang("x", "b", 4, priority=9),
        2,
        borrowing(),
        victims("x"),
    ),
    "but none that is borrowed only in part": (
        two_queues(a=0, b=2, root=2).gang("x", "b", 4, priority=9),
        2,
        borrowing(),
        NOBODY,
    ),
    "up to a threshold": (two_queues(a=0, b=0, root=4).gang("x", "b", 4, priority=6), 2, borrowing(5), NOBODY),
    "and to reclaim beyond it": (two_queues(a=2, b=0).gang("x", "b", 2, priority=99), 2, borrowing(5), victims("x")),
    "but not what is within its own quota": (two_queues(a=0, b=4).gang("x", "b", 4), 2, borrowing(), NOBODY),
    "nobody goes for what can never fit": (two_queues().gang("x", "b", 8), 9, BOTH, NOBODY),
    "nobody goes where there is room": (two_queues().gang("x", "a", 2), 2, BOTH, victims()),
}


CASES |= {
    "a queue of a smaller share takes of a larger loan": (
        a_pool(4).gang("x", "b", 2).gang("y", "b", 2, age=5),
        2,
        sharing(),
        victims("y"),
    ),
    "not without that option": (a_pool(4).gang("x", "b", 4), 1, BOTH, NOBODY),
    "not of gangs that reclaim spares": (
        a_pool(4).gang("x", "b", 4, priority=10),
        1,
        sharing(reclaim=Reclaim.LOWER_PRIORITY),
        NOBODY,
    ),
    "not of a queue that would then have less, by final shares": (
        a_pool(4).gang("x", "b", 4),
        2,
        sharing(FINAL),
        NOBODY,
    ),
    "but by initial ones, if it is less than the other has": (
        a_pool(4).gang("x", "b", 4),
        2,
        sharing(),
        victims("x"),
    ),
    "an equal share in the end is enough": (
        a_pool(4).gang("x", "b", 2).gang("y", "b", 2, age=5),
        2,
        sharing(FINAL),
        victims("y"),
    ),
    "equal shares at first are not": (a_pool(4).gang("x", "b", 2).gang("y", "c", 2), 2, sharing(), NOBODY),
    "the queue of the largest share gives": (
        a_pool(9).gang("x", "b", 2, age=1).gang("y", "b", 2, age=2).gang("z", "c", 2, age=8).gang("w", "c", 3, age=9),
        2,
        sharing(),
        victims("z"),
    ),
    "weights count": (
        a_pool(8, b="4").gang("x", "b", 4, age=1).gang("y", "c", 2, age=8).gang("z", "c", 2, age=9),
        2,
        sharing(FINAL),
        victims("y"),
    ),
    "a queue of weight 0 gives first, whatever it has": (
        a_pool(8, c="0").gang("x", "b", 6, age=1).gang("y", "c", 2, age=8),
        2,
        sharing(),
        victims("y"),
    ),
    "and takes from nobody": (a_pool(4, a="0").gang("x", "b", 4), 1, sharing(), NOBODY),
    "a loan that is partly a queue's own stays": (
        Scene(a_tree().queue("root", 4).queue("a", 0, parent="root").queue("b", 2, parent="root")).gang("x", "b", 6),
        1,
        sharing(),
        NOBODY,
    ),
    "shares are of the teams where their paths meet": (
        two_teams(a=0, root=2).gang("x", "b", 2, age=1).gang("y", "c", 1, age=8).gang("z", "c", 5, age=9),
        1,
        sharing(),
        victims("y"),
    ),
    "own gangs make room where others would not be enough": (
        a_pool(4).gang("x", "b", 2, age=1).gang("y", "a", 2, age=8),
        3,
        sharing(),
        NOBODY,
    ),
    "a gang of a queue below has no share to compare": (
        Scene(a_pool(4).builder.queue("a1", 0, parent="a")).gang("x", "a1", 4),
        2,
        sharing(),
        NOBODY,
    ),
    "a queue keeps its quota for its own gangs, whatever those below have borrowed": (
        Scene(two_queues(a=2, b=2).builder.queue("b1", 0, parent="b"))
        .gang("x", "b", 2)
        .gang("y", "b1", 2, priority=99),
        2,
        LOWER,
        NOBODY,
    ),
    "what is one's own is taken back whatever the shares": (
        two_queues(a=4, b=0).gang("x", "b", 4),
        4,
        sharing(FINAL),
        victims("x"),
    ),
}


@pytest.mark.parametrize("reclaimed", [False, True])
def test_a_gang_that_was_reclaimed_evicts_nobody_by_shares(*, reclaimed: bool) -> None:
    answer = a_pool(4).gang("x", "b", 4).answer(2, sharing(), was_reclaimed=reclaimed)

    assert answer == (NOBODY if reclaimed else victims("x"))


def test_who_is_evicted_by_shares_cannot_evict_in_return() -> None:
    """The gang that went would have the share that it had, and the other side has a smaller one."""
    scene = Scene(a_pool(4).builder).gang("new", "b", 2)

    assert scene.answer(4, sharing()) == NOBODY


@pytest.mark.parametrize(("scene", "gpus", "preemption", "answer"), CASES.values(), ids=CASES)
def test_preemption_chooses_the_expected_victims(
    scene: Scene, gpus: int, preemption: Preemption, answer: Victims | NoVictims
) -> None:
    assert scene.answer(gpus, preemption) == answer


@pytest.mark.parametrize(("gpus", "answer"), [(5, NOBODY), (4, victims("x"))])
def test_a_gang_that_was_reclaimed_evicts_no_own_gang_to_borrow_more(gpus: int, answer: Victims | NoVictims) -> None:
    scene = two_queues(b=0, root=2).gang("x", "a", 4).gang("y", "b", 1, priority=99)

    assert scene.answer(gpus, OWN) == victims("x")
    assert scene.answer(gpus, OWN, was_reclaimed=True) == answer


def test_where_only_devices_are_missing_the_caller_decides() -> None:
    scene = two_queues(a=4, b=0).gang("x", "b", 1).gang("y", "b", 1)
    queue_usage = QueueUsage(scene.builder.tree, scene.builder.usage)
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=0, charge={GPU: 1}, preemption=BOTH)

    assert queue_usage.charge_fits(incoming.queue, incoming.charge) is None
    answer = quota_preemption.choose(queue_usage, incoming, scene.gangs, lambda gone: GangUid("y") in gone)
    assert answer == victims("y")


def test_a_gang_that_costs_nothing_takes_nothing_back() -> None:
    scene = two_queues(b=0).gang("x", "b", 1).gang("y", "a", 1)
    queue_usage = QueueUsage(scene.builder.tree, scene.builder.usage)
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=1, charge={GPU: 0}, preemption=BOTH)

    answer = quota_preemption.choose(queue_usage, incoming, scene.gangs, bool)
    assert answer == victims("y")


def test_a_meter_that_is_not_short_protects_no_gang_from_preemption() -> None:
    builder = a_tree().queue("root").queue("a", 4, parent="root").queue("b", 0, parent="root")
    memory = MeterName("memory")
    scene = Scene(builder).gang("x", "b", 4)
    gang = replace(scene.gangs[0], charge={GPU: 4, memory: 7})
    queue_usage = QueueUsage(builder.tree, {**builder.usage, gang.queue: dict(gang.charge)})
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=0, charge={GPU: 4}, preemption=BOTH)

    assert quota_preemption.choose(queue_usage, incoming, [gang], bool) == victims("x")
    assert queue_usage.own(gang.queue, memory) == 7


def test_a_hundred_small_gangs_are_few_questions() -> None:
    assert crowd(100).answer(60, bounds=Bounds(fits=3, sets=700)) == victims(
        *(f"x-{number:03}" for number in range(60))
    )


def test_when_the_bound_ends_what_was_found_in_order_is_taken() -> None:
    """Ten gangs of one GPU and, last in order, two of five: the two are fewer, but may not be found any more."""
    scene = two_queues(a=20, b=0).gang("y-0", "b", 5, priority=5).gang("y-1", "b", 5, priority=5)
    for number in range(10):
        scene.gang(f"x-{number}", "b", 1, age=number)
    found = [scene.answer(10, bounds=Bounds(sets=sets)) for sets in range(0, 200, 2)]

    ones = Victims(tuple(GangUid(f"x-{number}") for number in range(10)), fewest=False)
    twos = replace(victims("y-0", "y-1"), fewest=False)
    changes = [one for at, one in enumerate(found) if not at or one != found[at - 1]]
    assert changes == [NoVictims(proved=False), ones, twos, victims("y-0", "y-1")]


def test_preemption_evicts_no_needless_victim_wherever_the_search_bound_ends() -> None:
    """Were z evicted, x would have to go as well, for a to take back its own alone; but y frees the devices."""
    scene = two_teams().gang("x", "a", 2).gang("y", "c", 2).gang("z", "b", 1, priority=9)
    scene.builder.usage[QueueName("c")][GPU] += 2
    queue_usage = QueueUsage(scene.builder.tree, scene.builder.usage)
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=10, charge={GPU: 1}, preemption=BOTH)

    def answers(sets: int) -> Victims | NoVictims:
        return quota_preemption.choose(queue_usage, incoming, scene.gangs, lambda gone: "y" in gone, Bounds(sets=sets))

    found = {answers(sets) for sets in range(60)}
    assert found == {NoVictims(proved=False), replace(victims("y"), fewest=False), victims("y")}


def test_without_any_question_nothing_is_known() -> None:
    assert two_queues(b=0).gang("x", "a", 4).answer(4, bounds=Bounds(fits=0)) == NoVictims(proved=False)


def test_a_gang_that_uses_more_than_its_queue_is_a_mistake() -> None:
    scene = two_queues(b=0).gang("x", "b", 4)
    queue_usage = QueueUsage(scene.builder.tree, {QueueName("b"): {GPU: 3}})
    incoming = Incoming(queue=QueueName("a"), queued_since=NOON, priority=0, charge={GPU: 4}, preemption=BOTH)

    with pytest.raises(ValueError, match="queue b uses 3 gpu, it cannot give back 4"):
        quota_preemption.choose(queue_usage, incoming, scene.gangs, bool)
