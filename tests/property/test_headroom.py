"""Laws of a standing, judged by a model that computes everything anew for every question."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from hypothesis import given, strategies as st

from admission.api.values.names import MeterName, QueueName
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree
from tests.property.queue_trees import METERS, Model, Usage, charges, trees, usages
from tests.unit.quota import available
from tests.unit.quota.available import Loans

Move = tuple[QueueName, Mapping[MeterName, int]]


@st.composite
def stands(draw: st.DrawFn) -> tuple[Tree, Usage]:
    """Draw a tree and what is used in it."""
    tree = draw(trees())
    return tree, draw(usages(tree))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Tree, Usage, list[Move]]:
    """Draw a tree, what is used in it, and charges that come one after the other."""
    tree, usage = draw(stands())
    return tree, usage, draw(st.lists(st.tuples(st.sampled_from(tree.order), charges()), max_size=8))


def added(usage: Mapping[QueueName, Mapping[MeterName, int]], moves: Sequence[Move]) -> Usage:
    total: dict[QueueName, Counter[MeterName]] = {queue: Counter(amounts) for queue, amounts in usage.items()}
    for queue, charge in moves:
        total.setdefault(queue, Counter()).update(charge)
    return {queue: dict(amounts) for queue, amounts in total.items()}


def numbers(queue_usage: QueueUsage) -> list[tuple[int, ...]]:
    asked = (
        queue_usage.available,
        queue_usage.potential,
        queue_usage.own,
        queue_usage.usage,
        queue_usage.quota,
        queue_usage.borrowed,
        queue_usage.lent,
    )
    return [tuple(parsed(queue, meter) for parsed in asked) for queue in queue_usage.tree.order for meter in METERS]


@given(histories())
def test_queue_usage_gives_the_available_quota_of_the_rules(history: tuple[Tree, Usage, list[Move]]) -> None:
    tree, usage, moves = history
    queue_usage = QueueUsage(tree, usage)
    for queue, charge in moves:
        queue_usage.charge(queue, charge)

    for meter in METERS:
        model = Model(tree, added(usage, moves), meter)
        for queue in tree.order:
            assert queue_usage.margin(queue, meter) == model.available(queue)
            assert queue_usage.available(queue, meter) == max(0, model.available(queue))
            assert queue_usage.potential(queue, meter) == model.potential(queue)
            assert queue_usage.own(queue, meter) == model.own(queue)
            assert queue_usage.usage(queue, meter) == model.usage(queue)
            assert queue_usage.quota(queue, meter) == model.subtree(queue)
            assert queue_usage.borrowed(queue, meter) == model.borrowed(queue)


@given(histories())
def test_queue_usage_updated_by_charges_equals_queue_usage_from_scratch(
    history: tuple[Tree, Usage, list[Move]],
) -> None:
    tree, usage, moves = history
    queue_usage = QueueUsage(tree, usage)
    numbers(queue_usage)
    for queue, charge in moves:
        queue_usage.charge(queue, charge)

    assert numbers(queue_usage) == numbers(QueueUsage(tree, added(usage, moves)))


@given(histories(), st.randoms(use_true_random=False))
def test_charges_released_in_any_order_leave_no_trace_in_queue_usage(
    history: tuple[Tree, Usage, list[Move]], chance: Random
) -> None:
    tree, usage, moves = history
    queue_usage = QueueUsage(tree, usage)
    before = numbers(queue_usage)
    for queue, charge in moves:
        queue_usage.charge(queue, charge)
    chance.shuffle(moves)
    for queue, charge in moves:
        queue_usage.give_back(queue, charge)

    assert numbers(queue_usage) == before


@given(histories())
def test_a_copy_of_queue_usage_is_independent_of_its_origin(history: tuple[Tree, Usage, list[Move]]) -> None:
    tree, usage, moves = history
    queue_usage = QueueUsage(tree, usage)
    before = numbers(queue_usage)
    copied = queue_usage.copy()
    for queue, charge in moves:
        copied.charge(queue, charge)

    assert numbers(queue_usage) == before
    assert numbers(copied.copy()) == numbers(QueueUsage(tree, added(usage, moves)))


@given(stands())
def test_no_more_is_available_than_there_could_ever_be(stand: tuple[Tree, Usage]) -> None:
    queue_usage = QueueUsage(*stand)

    for queue in queue_usage.tree.order:
        for meter in METERS:
            assert 0 <= queue_usage.available(queue, meter) <= queue_usage.potential(queue, meter)


@given(stands())
def test_usage_counts_at_the_root_or_against_the_quota_that_a_queue_does_not_lend(stand: tuple[Tree, Usage]) -> None:
    tree, usage = stand
    queue_usage = QueueUsage(tree, usage)

    for meter in METERS:
        model = Model(tree, usage, meter)
        roots = [queue for queue in tree.order if queue not in tree.parents]
        inside = sum(min(model.kept(queue), queue_usage.usage(queue, meter)) for queue in tree.parents)
        used = sum(amounts.get(meter, 0) for amounts in usage.values())
        assert inside + sum(queue_usage.usage(root, meter) for root in roots) == used


@given(stands(), st.data())
def test_a_charge_fits_if_every_meter_of_it_is_available(stand: tuple[Tree, Usage], data: st.DataObject) -> None:
    queue_usage = QueueUsage(*stand)
    queue, charge = data.draw(st.sampled_from(queue_usage.tree.order)), data.draw(charges())
    short = queue_usage.charge_fits(queue, charge)

    exceeded = [meter for meter, needed in sorted(charge.items()) if needed > queue_usage.available(queue, meter)]
    assert (short.meter if short else None) == (exceeded[0] if exceeded else None)
    assert queue_usage.fits(queue, charge) == (short is None)
    if short is not None and short.meter is not None:
        assert (short.left, short.needed) == (queue_usage.available(queue, short.meter), charge[short.meter])
        assert short.potential == queue_usage.potential(queue, short.meter)
        assert short.message
        assert short.details


@given(stands(), st.data())
def test_the_loan_named_in_a_shortage_is_a_real_loan(stand: tuple[Tree, Usage], data: st.DataObject) -> None:
    queue_usage = QueueUsage(*stand)
    queue = data.draw(st.sampled_from(queue_usage.tree.order))
    short = queue_usage.charge_fits(queue, {METERS[0]: data.draw(st.integers(1, 10))})

    if short is not None and short.loan is not None:
        loan = short.loan
        siblings = queue_usage.tree.children[queue_usage.tree.parents[loan.lender]]
        assert loan.lender in queue_usage.tree.path(queue)
        assert loan.amount == queue_usage.lent(loan.lender, METERS[0]) > 0
        assert loan.borrowers
        assert all(queue_usage.borrowed(borrower, METERS[0]) for borrower in loan.borrowers)
        assert len(loan.borrowers) + loan.others <= len(set(siblings) - {loan.lender})


@given(trees(), st.data())
def test_charges_that_fit_break_no_limit(tree: Tree, data: st.DataObject) -> None:
    queue_usage, admitted = QueueUsage(tree, {}), []
    for move in data.draw(st.lists(st.tuples(st.sampled_from(tree.order), charges()), max_size=12)):
        if queue_usage.charge_fits(*move) is None:
            queue_usage.charge(*move)
            admitted.append(move)

    for meter in METERS:
        model = Model(tree, added({}, admitted), meter)
        for queue in tree.order:
            quota, used = model.quota(queue), model.usage(queue)
            if queue not in tree.parents:
                assert used <= model.subtree(queue)
            elif quota.borrowing_limit is not None:
                assert used <= model.subtree(queue) + quota.borrowing_limit
        for lender, parent in tree.parents.items():
            limit = model.quota(lender).lending_limit
            if limit is not None:
                # What all but the lender use under the parent, beyond what there is without it.
                others = model.usage(parent) - max(0, model.usage(lender) - model.kept(lender))
                rest = model.subtree(parent) - (model.subtree(lender) - model.kept(lender))
                assert model.subtree(lender) - model.kept(lender) <= limit
                if parent not in tree.parents:
                    assert others - rest <= limit


@given(stands(), st.data())
def test_no_charge_is_accepted_where_more_is_used_than_the_quota(
    stand: tuple[Tree, Usage], data: st.DataObject
) -> None:
    tree, usage = stand
    queue_usage = QueueUsage(tree, usage)
    move = data.draw(st.tuples(st.sampled_from(tree.order), charges()))
    if queue_usage.charge_fits(*move) is not None:
        return
    queue_usage.charge(*move)

    for meter in METERS:
        before, after = Model(tree, usage, meter), Model(tree, added(usage, [move]), meter)
        for queue in tree.order:
            limit = None if queue not in tree.parents else after.quota(queue).borrowing_limit
            most = after.subtree(queue) + (limit or 0)
            if queue not in tree.parents or limit is not None:
                assert after.usage(queue) <= max(most, before.usage(queue))


@given(stands())
def test_a_single_question_is_answered_as_by_a_standing(stand: tuple[Tree, Usage]) -> None:
    tree, usage = stand
    queue_usage = QueueUsage(tree, usage)

    for meter in METERS:
        loans = Loans(tree, usage, meter)
        for queue in tree.order:
            assert available.available(tree, usage, queue, meter) == queue_usage.available(queue, meter)
            assert available.potential(tree, queue, meter) == queue_usage.potential(queue, meter)
            assert (loans.borrowed(queue), loans.lent(queue)) == (
                queue_usage.borrowed(queue, meter),
                queue_usage.lent(queue, meter),
            )
            for amount in (0, 1, 5):
                charge = {meter: amount}
                assert available.charge_fits(tree, usage, queue, charge) == queue_usage.charge_fits(queue, charge)


@given(stands(), st.data())
def test_what_is_kept_binds_those_alone_that_would_borrow_where_they_meet_the_queue_that_keeps(
    stand: tuple[Tree, Usage], data: st.DataObject
) -> None:
    tree, usage = stand
    queue_usage, meter = QueueUsage(tree, usage), METERS[0]
    plain, kept = Model(tree, usage, meter), dict[QueueName, int]()
    for keeper, needed in data.draw(st.lists(st.tuples(st.sampled_from(tree.order), st.integers(0, 8)), max_size=3)):
        queue_usage.keep(keeper, {meter: needed})
        kept[keeper] = max(0, min(needed, plain.quota(keeper).nominal - plain.own(keeper)))

    for queue in tree.order:
        for amount in range(1, 9):
            binding = binding_keeps(plain, usage, kept, queue, amount)
            beside = Model(tree, added(usage, binding), meter)
            assert queue_usage.fits(queue, {meter: amount}) == (amount <= beside.available(queue))
            short = queue_usage.charge_fits(queue, {meter: amount})
            if short is not None and amount <= plain.available(queue):
                assert {*short.keepers} == {one for one, _ in binding if is_felt(beside, binding, one, queue)}


def binding_keeps(
    plain: Model, usage: Usage, kept: Mapping[QueueName, int], queue: QueueName, amount: int
) -> list[Move]:
    """Return what queues keep from a queue that would take an amount, those that its path meets first first.

    What is kept below counts as used: who takes it makes the queues above borrow for those that keep it.
    """
    path, binding = plain.tree.path(queue), list[Move]()
    meeting = {one: next((at for at in path if at in plain.tree.path(one)), None) for one in kept if one != queue}
    for at, below in ((at, path[:number]) for number, at in enumerate(path)):
        with_it = Model(plain.tree, added(usage, [*binding, (queue, {plain.meter: amount})]), plain.meter)
        if plain.own(queue) + amount > plain.quota(queue).nominal and all(map(with_it.borrowed, below)):
            binding += [(one, {plain.meter: kept[one]}) for one in meeting if meeting[one] == at]
    return binding


def is_felt(beside: Model, binding: Sequence[Move], keeper: QueueName, queue: QueueName) -> bool:
    """Return whether what a queue keeps counts where its path meets that of another, so that this could do with less.

    It does not where it is kept of what the keeper, or a queue between both, does not lend anyway.
    """
    meeting = next(at for at in beside.tree.path(queue) if at in beside.tree.path(keeper))
    released = [(one, {meter: -amount for meter, amount in kept.items()}) for one, kept in binding if one == keeper]
    return Model(beside.tree, added(beside.used, released), beside.meter).usage(meeting) < beside.usage(meeting)


@given(stands(), st.data())
def test_who_borrows_leaves_room_for_what_each_queue_keeps_if_there_was_any(
    stand: tuple[Tree, Usage], data: st.DataObject
) -> None:
    """The purpose of what is kept, asked of the rules without it: a gang that had room for that has it still."""
    tree, usage = stand
    queue_usage, meter = QueueUsage(tree, usage), METERS[0]
    plain, keeps = Model(tree, usage, meter), dict[QueueName, int]()
    for keeper, needed in data.draw(st.lists(st.tuples(st.sampled_from(tree.order), st.integers(1, 8)), max_size=3)):
        queue_usage.keep(keeper, {meter: needed})
        keeps[keeper] = max(0, min(needed, plain.quota(keeper).nominal - plain.own(keeper)))

    for queue in tree.order:
        counted = [(keeper, {meter: kept}) for keeper, kept in keeps.items() if keeper != queue]
        for amount in range(1, 9):
            is_own = plain.own(queue) + amount <= plain.quota(queue).nominal
            if is_own or not queue_usage.fits(queue, {meter: amount}):
                continue
            after = Model(tree, added(usage, [(queue, {meter: amount})]), meter)
            beside = Model(tree, added(usage, [*counted, (queue, {meter: amount})]), meter)
            for keeper, kept in keeps.items():
                below = [one for one in tree.path(queue) if one not in tree.path(keeper)]
                borrows = len(below) < len(tree.path(queue)) and all(map(beside.borrowed, below))
                had_room = keeper != queue and plain.available(keeper) >= kept
                assert not (borrows and had_room) or after.available(keeper) >= kept


@st.composite
def operations(draw: st.DrawFn) -> tuple[Tree, Usage, Usage, list[tuple[str, QueueName, Mapping[MeterName, int]]]]:
    """Draw a tree, what is used in it now and in the end, which mostly is much the same, and what then happens."""
    tree, usage = draw(stands())
    then = added(usage, draw(st.lists(st.tuples(st.sampled_from(tree.order), charges()), max_size=2)))
    if draw(st.booleans()):
        usage, then = then, usage
    what = st.sampled_from(("charge", "charge", "keep", "give back", "copy"))
    return tree, usage, then, draw(st.lists(st.tuples(what, st.sampled_from(tree.order), charges()), max_size=8))


@given(operations(), st.data())
def test_a_question_of_what_is_used_now_and_in_the_end_is_answered_as_by_two(
    case: tuple[Tree, Usage, Usage, list[tuple[str, QueueName, Mapping[MeterName, int]]]], data: st.DataObject
) -> None:
    tree, usage, then, happening = case
    both, now, end = QueueUsage(tree, usage, then), QueueUsage(tree, usage), QueueUsage(tree, then)
    for what, queue, amounts in happening:
        if data.draw(st.booleans()):
            assert both.fits(queue, amounts) == (now.fits(queue, amounts) and end.fits(queue, amounts))
        for one in (both, now, end):
            if what == "charge":
                one.charge(queue, amounts)
            elif what == "keep":
                one.keep(queue, amounts)
        if what == "copy":
            both = both.copy()
        elif what == "give back":
            charge = {meter: min(n, now.own(queue, meter), end.own(queue, meter)) for meter, n in amounts.items()}
            for one in (both, now, end):
                one.give_back(queue, charge)

    for queue in tree.order:
        assert_answered_as_by(both, (now, end), queue, data.draw(charges()))


def assert_answered_as_by(
    both: QueueUsage, each: tuple[QueueUsage, QueueUsage], queue: QueueName, charge: Mapping[MeterName, int]
) -> None:
    short = next((found for one in each if (found := one.charge_fits(queue, charge)) is not None), None)
    assert both.charge_fits(queue, charge) == short
    assert both.fits(queue, charge) == (short is None)
    assert both.loan_level(queue, charge) == max(one.loan_level(queue, charge) for one in each)
    for meter in METERS:
        assert both.margin(queue, meter) == min(one.margin(queue, meter) for one in each)
    for name in both.tree.path(queue):
        now, end = (Counter(one.borrowed_with(name, METERS, queue, charge)) for one in each)
        assert both.borrowed_with(name, METERS, queue, charge) == dict(now | end)
        assert both.borrows(name, queue, charge) == any(one.borrows(name, queue, charge) for one in each)
