import pytest

from admission.api.values.names import QueueName
from admission.quota.headroom import QueueUsage, Usage
from tests.unit.quota.trees import GPU, MEMORY, TreeBuilder, a_pair, a_tree

A, B, ROOT = QueueName("a"), QueueName("b"), QueueName("root")


def standing_of(builder: TreeBuilder) -> QueueUsage:
    return QueueUsage(builder.tree, builder.usage)


def test_charged_quota_is_available_to_no_queue() -> None:
    queue_usage = standing_of(a_pair().queue("b", 6, parent="root"))

    queue_usage.charge(A, {GPU: 3})

    assert queue_usage.available(A, GPU) == 5
    assert queue_usage.available(B, GPU) == 5
    assert queue_usage.usage(A, GPU) == queue_usage.usage(ROOT, GPU) == 3
    assert (queue_usage.borrowed(A, GPU), queue_usage.lent(B, GPU)) == (1, 1)


def test_released_quota_is_available_again() -> None:
    queue_usage = standing_of(a_pair(used=1).queue("b", 6, parent="root"))

    queue_usage.charge(A, {GPU: 3, MEMORY: 5})
    queue_usage.give_back(A, {GPU: 3, MEMORY: 5})

    assert (queue_usage.available(A, GPU), queue_usage.usage(A, GPU), queue_usage.usage(A, MEMORY)) == (7, 1, 0)
    assert (queue_usage.borrowed(A, GPU), queue_usage.lent(B, GPU)) == (0, 0)


def test_no_more_is_given_back_than_is_used() -> None:
    queue_usage = standing_of(a_tree().queue("a", 8, used=3))

    with pytest.raises(ValueError, match="queue a uses 0 memory, it cannot give back 1"):
        queue_usage.give_back(A, {GPU: 2, MEMORY: 1})

    assert queue_usage.usage(A, GPU) == 3


def test_a_copy_goes_its_own_way() -> None:
    queue_usage = standing_of(a_pair().queue("b", 6, parent="root"))
    queue_usage.charge(B, {GPU: 7})
    copied = queue_usage.copy()

    copied.charge(A, {GPU: 1})
    queue_usage.give_back(B, {GPU: 7})

    assert (copied.available(A, GPU), queue_usage.available(A, GPU)) == (0, 8)
    assert (copied.lent(A, GPU), queue_usage.lent(A, GPU)) == (1, 0)


@pytest.mark.parametrize(
    ("now", "in_the_end", "available", "loan", "early"),
    [
        ({A: {GPU: 2}}, {A: {GPU: 2}}, 6, 2, None),
        ({A: {GPU: 2}}, {B: {GPU: 2}}, 6, 2, A),
        ({B: {GPU: 2}}, {A: {GPU: 2}}, 6, 2, None),
        ({A: {GPU: 5}}, {B: {GPU: 8}}, 0, 5, A),
    ],
    ids=["in the same queue", "of the queue that asks", "of another queue", "more in the end"],
)
def test_a_charge_has_to_fit_beside_those_that_go_and_beside_those_that_come(
    now: Usage, in_the_end: Usage, available: int, loan: int, early: QueueName | None
) -> None:
    tree = a_pair().queue("b", 6, parent="root").tree
    queue_usage = QueueUsage(tree, now, in_the_end)

    assert queue_usage.available(A, GPU) == available
    for amount in (available, available + 1):
        assert queue_usage.fits(A, {GPU: amount}) == (queue_usage.charge_fits(A, {GPU: amount}) is None)
        assert queue_usage.fits(A, {GPU: amount}) == (amount <= available)
    assert queue_usage.borrowed_with(A, [GPU], A, {GPU: 2}) == {GPU: loan}
    assert queue_usage.borrows_early(A, {GPU: 2}) == early
    charged = queue_usage.copy()
    charged.charge(A, {GPU: 1})
    assert charged.available(A, GPU) == max(0, available - 1)
    charged.give_back(A, {GPU: 1})
    charged.give_back_at_most(now, {})
    assert charged.available(A, GPU) == QueueUsage(tree, in_the_end).available(A, GPU)
    assert queue_usage.available(A, GPU) == available


def test_quota_that_a_queue_does_not_lend_is_not_available_above() -> None:
    queue_usage = standing_of(a_tree().queue("root", 1).queue("a", 6, parent="root", lends=2))

    queue_usage.charge(A, {GPU: 5})

    assert (queue_usage.own(A, GPU), queue_usage.usage(A, GPU), queue_usage.usage(ROOT, GPU)) == (5, 5, 1)
    assert (queue_usage.quota(A, GPU), queue_usage.quota(ROOT, GPU)) == (6, 3)


def test_a_later_change_of_the_usage_does_not_reach_the_standing() -> None:
    builder = a_tree().queue("a", 8, used=3)
    queue_usage = standing_of(builder)

    builder.usage[A][GPU] = 8

    assert queue_usage.available(A, GPU) == 5


OVERUSED = {
    "a queue whose own nominal was lowered": a_tree().queue("a", 2, used=5),
    "a queue whose sibling uses more than there is": a_pair().queue("b", 2, parent="root", used=9),
    "a queue that keeps something, under a parent that has nothing left": (
        a_tree().queue("root").queue("a", 3, parent="root", lends=0).queue("b", 2, parent="root", used=9)
    ),
    "a queue above whose borrowing limit was lowered": (
        a_tree().queue("root", 9).queue("x", 0, parent="root", borrows=1).queue("a", 0, parent="x", used=4)
    ),
}


@pytest.mark.parametrize("builder", OVERUSED.values(), ids=OVERUSED)
def test_nothing_enters_where_more_is_used_than_there_is(builder: TreeBuilder) -> None:
    queue_usage = standing_of(builder)

    assert queue_usage.available(A, GPU) == 0
    short = queue_usage.charge_fits(A, {GPU: 1})
    assert short is not None
    assert short.left == 0


def test_an_inactive_queue_has_takes_and_gives_nothing() -> None:
    queue_usage = standing_of(a_tree().queue("a", 2, parent="gone", used=2).queue("b", 2))
    gone = QueueName("never-heard-of")

    queue_usage.charge(A, {GPU: 1})
    queue_usage.give_back(gone, {GPU: 1})

    for queue in (A, gone):
        short = queue_usage.charge_fits(queue, {})
        assert short is not None
        assert short.message == f"queue {queue} is not active"
        assert not queue_usage.fits(queue, {})
        asked = (queue_usage.available, queue_usage.potential, queue_usage.usage, queue_usage.own, queue_usage.quota)
        assert [ask(queue, GPU) for ask in (*asked, queue_usage.borrowed, queue_usage.lent)] == [0] * 7


def test_a_meter_without_any_quota_has_no_headroom() -> None:
    queue_usage = standing_of(a_pair())

    assert (queue_usage.available(A, MEMORY), queue_usage.potential(A, MEMORY), queue_usage.lent(A, MEMORY)) == (
        0,
        0,
        0,
    )
    assert queue_usage.charge_fits(A, {MEMORY: 0}) is None


def test_a_meter_that_was_removed_while_charged_can_be_given_back() -> None:
    builder = a_tree().queue("a")
    builder.usage[A][MEMORY] = 4
    queue_usage = standing_of(builder)

    queue_usage.give_back(A, {MEMORY: 3})

    assert (queue_usage.usage(A, MEMORY), queue_usage.available(A, MEMORY)) == (1, 0)


WHY = {
    "its own nominal is lent to a sibling": (
        a_pair().queue("b", 6, parent="root", used=7),
        (
            "queue a has 1 gpu left (nominal 2, used 0), the gang needs 2; 1 of the 2 of queue a are lent to b"
            "; nobody of other queues is evicted for the gang, as preemption.reclaim of queue a is Never"
        ),
        {"lender": "a", "lent": "1", "borrowers": ["b"], "reclaim": "Never"},
    ),
    "of many borrowers the largest are named": (
        a_tree()
        .queue("root")
        .queue("a", 10, parent="root")
        .queue("b", 0, parent="root", used=1)
        .queue("c", 0, parent="root", used=4)
        .queue("d", 0, parent="root", used=2)
        .queue("e", 0, parent="root", used=2),
        (
            "queue a has 1 gpu left (nominal 10, used 0), the gang needs 2;"
            " 9 of the 10 of queue a are lent to c, d, e and 1 more"
            "; nobody of other queues is evicted for the gang, as preemption.reclaim of queue a is Never"
        ),
        {"lender": "a", "lent": "9", "borrowers": ["c", "d", "e"], "reclaim": "Never"},
    ),
    "a queue above has lent it": (
        a_tree().queue("root").queue("x", 2, parent="root").queue("a", parent="x").queue("y", 0, parent="root", used=1),
        (
            "queue a has 1 gpu left (nominal 0, used 0), the gang needs 2; 1 of the 2 of queue x are lent to y"
            "; nobody of other queues is evicted for the gang, as preemption.reclaim of queue a is Never"
        ),
        {"lender": "x", "lent": "1", "borrowers": ["y"], "reclaim": "Never"},
    ),
    "it would borrow with the gang, and may evict by shares": (
        a_tree()
        .queue("root", 1)
        .queue("a", 1, parent="root", reclaim="Any", by_shares="LessThanInitialShare")
        .queue("b", 0, parent="root", used=1),
        (
            "queue a has 1 gpu left (nominal 1, used 0), the gang needs 2; up to 1 of the 1 of queue a are lent to b"
            "; gangs of queues with a larger share are evicted for the gang where it could then start, and no"
            " others, as queue a would borrow, too (its preemption.byShares)"
        ),
        {"lender": "a", "lent": "1", "borrowers": ["b"], "reclaim": "ByShares"},
    ),
    "it would borrow with the gang, so nothing is reclaimed": (
        a_tree().queue("root", 1).queue("a", 1, parent="root", reclaim="Any").queue("b", 0, parent="root", used=1),
        (
            "queue a has 1 gpu left (nominal 1, used 0), the gang needs 2; up to 1 of the 1 of queue a are lent to b"
            "; nobody of other queues is evicted for the gang, as queue a would borrow, too, and its preemption has"
            " neither borrowWithinCohort nor byShares"
        ),
        {"lender": "a", "lent": "1", "borrowers": ["b"], "reclaim": "WouldBorrow"},
    ),
    "what is its own is reclaimed from gangs of lower priority": (
        a_pair(reclaim="LowerPriority").queue("b", 6, parent="root", used=7),
        (
            "queue a has 1 gpu left (nominal 2, used 0), the gang needs 2; 1 of the 2 of queue a are lent to b"
            "; of the gangs that borrow those of lower priority are evicted for the gang where it could then start, and"
            " no others, as preemption.reclaim of queue a is LowerPriority"
        ),
        {"lender": "a", "lent": "1", "borrowers": ["b"], "reclaim": "LowerPriority"},
    ),
    "what its team lent is reclaimed": (
        a_tree()
        .queue("root")
        .queue("x", 2, parent="root")
        .queue("a", parent="x", reclaim="Any")
        .queue("y", 0, parent="root", used=1),
        (
            "queue a has 1 gpu left (nominal 0, used 0), the gang needs 2; 1 of the 2 of queue x are lent to y"
            "; gangs that borrow are evicted for the gang where it could then start (preemption.reclaim of queue a is"
            " Any)"
        ),
        {"lender": "x", "lent": "1", "borrowers": ["y"], "reclaim": "Any"},
    ),
    "what the parent itself has is taken, and nobody gives it back": (
        a_tree().queue("root", 4).queue("a", 0, parent="root", reclaim="Any").queue("b", 0, parent="root", used=3),
        (
            "queue a has 1 gpu left (nominal 0, used 0), the gang needs 2; 3 more that it may borrow are taken by other"
            " queues; nobody of other queues is evicted for the gang, as queue a would borrow, too, and its"
            " preemption has neither borrowWithinCohort nor byShares"
        ),
        {"reclaim": "WouldBorrow"},
    ),
    "what the parent itself has is taken, and a larger share gives it back": (
        a_tree()
        .queue("root", 4)
        .queue("a", 0, parent="root", reclaim="LowerPriority", by_shares="LessThanInitialShare")
        .queue("b", 0, parent="root", used=3),
        (
            "queue a has 1 gpu left (nominal 0, used 0), the gang needs 2; 3 more that it may borrow are taken by other"
            " queues; gangs of lower priority of queues with a larger share are evicted for the gang where it could"
            " then start, and no others, as queue a would borrow, too (its preemption.byShares)"
        ),
        {"reclaim": "ByShares"},
    ),
    "what the parent itself has is taken by gangs that may be of too high a priority": (
        a_tree()
        .queue("root", 4)
        .queue("a", 0, parent="root", reclaim="Any", borrow_within="LowerPriority")
        .queue("b", 0, parent="root", used=3),
        (
            "queue a has 1 gpu left (nominal 0, used 0), the gang needs 2; 3 more that it may borrow are taken by other"
            " queues; gangs of lower priority, up to maxPriorityThreshold, whose queues keep their own quota are"
            " evicted for the gang where it could then start, and no others, as queue a would borrow, too (its"
            " preemption.borrowWithinCohort)"
        ),
        {"reclaim": "BorrowWithinCohort"},
    ),
    "it borrows already": (
        a_pair(used=7).queue("b", 6, parent="root"),
        "queue a has 1 gpu left (nominal 2, used 7, borrowed 5), the gang needs 2",
        {"borrowed": "5"},
    ),
    "its own gangs have all of it, and some of them stay": (
        a_tree().queue("a", 4, used=3, within="LowerPriority"),
        (
            "queue a has 1 gpu left (nominal 4, used 3), the gang needs 2; of queue a's own gangs those of lower"
            " priority are evicted for the gang where it could then start, and no others, as its"
            " preemption.withinQueue is LowerPriority"
        ),
        {},
    ),
    "its own gangs have all of it, and the newer ones go": (
        a_tree().queue("a", 4, used=3, within="LowerOrNewerEqualPriority"),
        (
            "queue a has 1 gpu left (nominal 4, used 3), the gang needs 2; of queue a's own gangs those of lower"
            " priority, and newer ones of the same priority, are evicted for the gang where it could then start, and no"
            " others, as its preemption.withinQueue is LowerOrNewerEqualPriority"
        ),
        {},
    ),
    "its own limit stops it, whatever others have lent": (
        a_tree()
        .queue("root")
        .queue("x", 9, parent="root", borrows=0)
        .queue("a", 1, parent="x", borrows=1, used=1)
        .queue("y", 0, parent="root", used=3),
        (
            "queue a has 1 gpu left (nominal 1, used 1), the gang needs 2; queue a borrows no more than 1 (its"
            " borrowingLimit)"
        ),
        {"limitedBy": "a", "borrowingLimit": "1"},
    ),
}


@pytest.mark.parametrize(("builder", "message", "details"), WHY.values(), ids=WHY)
def test_a_shortage_of_quota_says_which_queues_use_the_rest(
    builder: TreeBuilder, message: str, details: dict[str, object]
) -> None:
    short = standing_of(builder).charge_fits(A, {GPU: 2})

    assert short is not None
    assert short.message == message
    numbers = {"queue", "meter", "needed", "left", "nominal", "used", "potential"}
    assert {name: value for name, value in short.details.items() if name not in numbers} == details


def test_a_shortage_of_two_meters_names_the_one_that_would_be_borrowed() -> None:
    builder = a_tree().queue("root").queue("a", 4, memory=0, parent="root", reclaim="Any")
    queue_usage = standing_of(builder.queue("b", 0, parent="root").queue("c", memory=4, parent="root"))
    queue_usage.charge(B, {GPU: 4, MEMORY: 4})

    short = queue_usage.charge_fits(A, {GPU: 2, MEMORY: 2})
    alone = queue_usage.charge_fits(A, {GPU: 2})

    assert short is not None
    assert alone is not None
    assert "; nobody of other queues is evicted for the gang, as queue a would borrow memory, too, and" in short.message
    assert alone.message.endswith(" where it could then start (preemption.reclaim of queue a is Any)")


def test_headroom_and_charges_pass_through_sixteen_levels_of_queues() -> None:
    builder = a_tree().queue("q-1", 1)
    for depth in range(2, 17):
        builder.queue(f"q-{depth}", 1, parent=f"q-{depth - 1}", lends=0 if depth == 9 else None)
    queue_usage = standing_of(builder)
    leaf = QueueName("q-16")

    assert queue_usage.potential(leaf, GPU) == 16
    queue_usage.charge(leaf, {GPU: 9})
    assert (queue_usage.available(leaf, GPU), queue_usage.usage(QueueName("q-1"), GPU)) == (7, 1)


def test_what_a_queue_keeps_is_used_to_others_and_not_to_itself() -> None:
    queue_usage = standing_of(a_pair(used=1).queue("b", 6, parent="root"))

    queue_usage.keep(A, {GPU: 5})

    assert (queue_usage.available(A, GPU), queue_usage.available(B, GPU)) == (7, 6)
    assert queue_usage.copy().available(B, GPU) == 6
    queue_usage.charge(A, {GPU: 1})
    assert (queue_usage.available(A, GPU), queue_usage.available(B, GPU)) == (6, 6)
    queue_usage.keep(A, {GPU: 1})
    queue_usage.give_back(A, {GPU: 2})
    short = queue_usage.charge_fits(B, {GPU: 9})
    assert short is not None
    assert short.keepers == (), "it would not fit either if nothing were kept"
    assert short.used == 0
    queue_usage.release_all()
    assert (queue_usage.available(A, GPU), queue_usage.available(B, GPU)) == (8, 8)


LIMITED: dict[str, tuple[TreeBuilder, int, str | None]] = {
    "its own": (
        a_tree().queue("root").queue("a", 2, parent="root", borrows=1, used=3).queue("b", 4, parent="root"),
        1,
        "a",
    ),
    "that of the branch above": (
        a_tree()
        .queue("root")
        .queue("c", 0, parent="root", borrows=1)
        .queue("a", 2, parent="c", used=2)
        .queue("b", 6, parent="root"),
        3,
        "c",
    ),
    "none, where others use what it could borrow": (
        a_tree().queue("root").queue("a", 2, parent="root", borrows=4, used=3).queue("b", 4, parent="root", used=3),
        1,
        None,
    ),
    "none, where it could never have as much": (
        a_tree().queue("root").queue("a", 2, parent="root", borrows=1, used=2).queue("b", 4, parent="root"),
        4,
        None,
    ),
}


@pytest.mark.parametrize(("builder", "needed", "limited"), LIMITED.values(), ids=LIMITED)
def test_a_shortage_names_the_borrowing_limit_that_keeps_a_queue_from_what_lies_idle(
    builder: TreeBuilder, needed: int, limited: str | None
) -> None:
    short = standing_of(builder).charge_fits(A, {GPU: needed})

    assert short is not None
    assert short.details.get("limitedBy") == limited
    assert short.details.get("borrowingLimit") == ("1" if limited else None)
    assert (f"; queue {limited} borrows no more than 1 (its borrowingLimit)" in short.message) == (limited is not None)


def test_a_shortage_names_the_queues_that_keep_what_would_be_enough() -> None:
    builder = a_tree().queue("root").queue("b", 1, parent="root").queue("other", 4)
    for name in "acdef":
        builder.queue(name, 1, parent="root")
    queue_usage = standing_of(builder)
    for name in ("a", "c", "d", "e", "other"):
        queue_usage.keep(QueueName(name), {GPU: 1})

    short = queue_usage.charge_fits(B, {GPU: 3})

    assert short is not None
    assert short.message == (
        "queue b has 2 gpu left (nominal 1, used 0), the gang needs 3; the rest may not be borrowed now:"
        " queues a, c, d and 1 more keep their own quota for gangs of their own"
    )
    assert short.details["keptBy"] == ["a", "c", "d"]
    assert queue_usage.charge_fits(A, {GPU: 2}) is None, "what f does not use, beside its own"


def test_a_shortage_names_no_queue_that_keeps_only_what_it_does_not_lend_anyway() -> None:
    builder = a_tree().queue("root").queue("b", 1, parent="root")
    builder.queue("d", 2, parent="root", lends=0).queue("e", 4, parent="root")
    builder.queue("f", 0, parent="root").queue("g", 3, parent="f", lends=1)
    queue_usage = standing_of(builder)
    for name in ("d", "e", "g"):
        queue_usage.keep(QueueName(name), {GPU: 2})

    short = queue_usage.charge_fits(B, {GPU: 5})

    assert short is not None
    assert short.keepers == ("e",)
    queue_usage.keep(QueueName("g"), {GPU: 3})
    short = queue_usage.charge_fits(B, {GPU: 5})
    assert short is not None
    assert short.keepers == ("e", "g"), "one of the 3 is lent"


def lent_in_part() -> TreeBuilder:
    """a has 4, of which z has borrowed 3; b has 1, and uses nothing."""
    builder = a_tree().queue("root").queue("a", 4, parent="root").queue("z", 0, parent="root", used=3)
    return builder.queue("b", 1, parent="root")


BESIDE_KEPT = {
    "its own": (lent_in_part(), 1),
    "its own, of which it lends nothing": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("z", 0, parent="root", used=3)
        .queue("b", 1, parent="root", lends=0),
        1,
    ),
    "its own, and nothing that is lent": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("z", 0, parent="root", used=3)
        .queue("b", 3, parent="root", used=1),
        2,
    ),
    "what its branch has": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("z", 0, parent="root", used=3)
        .queue("x", 1, parent="root")
        .queue("b", parent="x"),
        1,
    ),
    "its own, though another one of its branch has borrowed that": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("x", parent="root")
        .queue("z", 0, parent="x", used=3)
        .queue("b", 1, parent="x"),
        1,
    ),
    "its own, beside one of its branch": (
        a_tree()
        .queue("root")
        .queue("x", parent="root")
        .queue("a", 4, parent="x")
        .queue("z", 0, parent="root", used=3)
        .queue("b", 1, parent="x"),
        1,
    ),
    "its own, above the queue that keeps": (
        a_tree()
        .queue("root")
        .queue("z", 0, parent="root", used=3)
        .queue("b", 1, parent="root")
        .queue("a", 4, parent="b"),
        1,
    ),
    "nothing, as a loan": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("z", 0, parent="root", used=3)
        .queue("b", 0, parent="root")
        .queue("c", 1, parent="root"),
        0,
    ),
    "nothing, with a branch that would borrow": (
        a_tree()
        .queue("root")
        .queue("a", 4, parent="root")
        .queue("z", 0, parent="root", used=3)
        .queue("c", 1, parent="root")
        .queue("x", 0, parent="root")
        .queue("b", parent="x"),
        0,
    ),
    "nothing, having borrowed already": (
        a_tree().queue("root").queue("a", 4, parent="root").queue("b", 1, parent="root", used=4),
        0,
    ),
}


@pytest.mark.parametrize(("builder", "available"), BESIDE_KEPT.values(), ids=BESIDE_KEPT)
def test_beside_what_a_queue_keeps_another_one_has(builder: TreeBuilder, available: int) -> None:
    """Less is left than the queue keeps, since so much of it is lent."""
    queue_usage = standing_of(builder)
    left = queue_usage.available(B, GPU)

    queue_usage.keep(A, {GPU: 4})

    assert queue_usage.available(B, GPU) == available
    assert queue_usage.fits(B, {GPU: available})
    assert left >= available
    short = queue_usage.charge_fits(B, {GPU: available + 1})
    assert short is not None
    assert short.keepers == ((A,) if left > available else ())
    assert queue_usage.own(A, GPU) == queue_usage.borrowed(A, GPU) == 0, "what is kept is not used"
    queue_usage.charge(B, {GPU: available})
    assert queue_usage.available(B, GPU) == 0


def test_an_owner_whose_own_is_lent_reclaims_it_whatever_others_keep() -> None:
    builder = a_tree().queue("root").queue("a", 4, parent="root").queue("z", 0, parent="root", used=5)
    queue_usage = standing_of(builder.queue("b", 3, parent="root", reclaim="Any"))
    queue_usage.keep(A, {GPU: 4})

    short = queue_usage.charge_fits(B, {GPU: 3})

    assert short is not None
    assert short.keepers == ()
    assert short.message == (
        "queue b has 2 gpu left (nominal 3, used 0), the gang needs 3; up to 3 of the 3 of queue b are lent to z; gangs"
        " that borrow are evicted for the gang where it could then start (preemption.reclaim of queue b is Any)"
    )
