"""Fair sharing in the long run: who has twice the weight gets twice as much, and the order is total."""

import math
from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given, strategies as st

from admission.api.values.names import MeterName, QueueName
from admission.quota import fair_share, queue_order
from admission.quota.fair_share import Rules, Shares
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Tournament
from admission.quota.tree import Tree
from tests.property.queue_trees import Model
from tests.unit.quota.test_fair_share import HOUR, NOW, a_child, a_queue, a_root, used
from tests.unit.quota.test_queue_order import START, Gang, a_gang

GPU = MeterName("gpu")
PARENTS: dict[str, str | None] = {"root": None, "a": "root", "b": "root", "c": "a", "d": "a", "e": None, "lost": "gone"}
NAMES = st.sampled_from([*PARENTS, "unknown"])
AMOUNTS = st.integers(0, 20)
SHARINGS = st.none() | st.builds(
    lambda weight, hours: {"weight": weight} | ({"halfLife": f"{hours}h"} if hours else {}),
    st.sampled_from(["0", "0.5", "1", "2"]),
    st.integers(0, 3),
)


def a_tree(sharings: dict[str, dict[str, Any] | None]) -> Tree:
    return Tree.build(
        a_queue(name, parent=parent, quotas={"gpu": 10}, fairSharing=sharings.get(name))
        for name, parent in PARENTS.items()
    )


TREES = st.builds(a_tree, st.dictionaries(st.sampled_from(list(PARENTS)), SHARINGS))
USAGES = st.dictionaries(NAMES, AMOUNTS).map(lambda found: {QueueName(name): {GPU: n} for name, n in found.items()})
GANGS = st.lists(
    st.builds(
        lambda queue, number, priority, minute, gpus: Gang(
            QueueName(queue), f"{queue}/{number}", priority, START + timedelta(minutes=minute), gpus
        ),
        NAMES,
        st.integers(0, 99),
        st.integers(0, 2),
        st.integers(0, 5),
        st.integers(0, 12),
    ),
    max_size=25,
    unique_by=lambda gang: gang.key,
)
GRANTS = st.lists(AMOUNTS, min_size=25, max_size=25)


def charge_of(gang: Gang) -> dict[MeterName, int]:
    return {GPU: gang.gpus}


def played(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], grants: list[int]
) -> list[Gang]:
    """Return the order of the gangs when each is granted so much; 0 is not granted."""
    shares = Shares(QueueUsage(tree, usage), usage, Rules.from_tree(tree))
    tournament = Tournament(shares, gangs, lambda gang: gang.queue, charge_of)
    found = []
    for gang, amount in zip(tournament, grants, strict=False):
        found.append(gang)
        if amount:
            tournament.charge(gang.queue, {GPU: amount})
    return found


@given(TREES, USAGES, GANGS, GRANTS, st.randoms(use_true_random=False))
def test_every_gang_comes_once_in_an_order_that_does_not_depend_on_how_they_are_listed(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], grants: list[int], random: Any
) -> None:
    shuffled = random.sample(gangs, len(gangs))

    order = played(tree, usage, gangs, grants)

    assert Counter(gang.key for gang in order) == Counter(gang.key for gang in gangs)
    assert played(tree, usage, shuffled, grants) == order


@given(TREES, USAGES, GANGS, GRANTS)
def test_who_stays_within_its_quota_wins_then_the_smallest_share_at_every_level(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], grants: list[int]
) -> None:
    """The rule as it is written, over all siblings, against the tournament with its heaps."""
    left = list(gangs)

    for gang, amount in zip(played(tree, usage, gangs, grants), grants, strict=False):
        assert gang == plainly(tree, usage, left, None)
        left.remove(gang)
        usage = used_too(usage, gang.queue, amount)


def used_too(
    usage: dict[QueueName, dict[MeterName, int]], queue: QueueName, amount: int
) -> dict[QueueName, dict[MeterName, int]]:
    return {**usage, queue: {GPU: usage.get(queue, {}).get(GPU, 0) + amount}}


def plainly(tree: Tree, usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], parent: Any) -> Gang | None:
    children = {gang.queue for gang in gangs if not tree.active(gang.queue)} if parent is None else set()
    children |= {name for name in tree.order if tree.parents.get(name) == parent}
    won = [
        (plain_place(tree, usage, name, gang), queue_order.rank(gang), gang)
        for name in children
        if (gang := plainly_in(tree, usage, gangs, name))
    ]
    return min(won)[2] if won else None


def plain_place(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], name: QueueName, gang: Gang
) -> tuple[bool, float, float]:
    """Return whether a queue borrows with its next gang, its share with it, and that without an infinite weight."""
    if name not in tree.placed:
        return False, 0.0, 0.0
    after = used_too(usage, gang.queue, gang.gpus)
    rules, model = Rules.from_tree(tree), Model(tree, after, GPU)
    over = model.borrowed(name) if name in tree.parents else 0
    if name in rules.by_history or name not in rules.weights:
        share = Shares(QueueUsage(tree, after), after, rules).share(name)
        used = sum(model.own(one) for one in tree.order if name in tree.path(one))
        part = used / capacity(tree, name) / (2 if rules.half_lives.get(name) else 1)
        return over > 0 and gang.gpus > 0, share, part if math.isinf(share) else 0.0
    weight = rules.weights[name]
    part = over / model.potential(tree.parents[name]) if over else 0.0
    return (
        over > 0 and gang.gpus > 0,
        (part / float(weight) if weight else math.inf) if over else 0.0,
        0.0 if weight else part,
    )


def capacity(tree: Tree, name: QueueName) -> int:
    parent = tree.parents.get(name)
    under = [one for one in tree.order if parent is None or parent in tree.path(one)]
    nominal = sum(quota.nominal for one in under for quota in tree.quotas[one].values())
    return max(nominal, Model(tree, {}, GPU).potential(parent) if parent is not None else 0)


def plainly_in(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], queue: QueueName
) -> Gang | None:
    own = [gang for gang in gangs if gang.queue == queue]
    below = plainly(tree, usage, gangs, queue) if tree.active(queue) else None
    return min([*own, *([below] if below else [])], key=queue_order.rank, default=None)


@given(USAGES, GANGS, GRANTS)
def test_between_roots_the_order_is_by_rank(
    usage: dict[QueueName, dict[MeterName, int]], gangs: list[Gang], grants: list[int]
) -> None:
    tree = Tree.build([a_queue(name, quotas={"gpu": 10}) for name in PARENTS])

    assert played(tree, usage, gangs, grants) == queue_order.in_order(gangs)


@given(TREES, USAGES, st.tuples(NAMES, st.integers(1, 20)), st.tuples(NAMES, AMOUNTS))
def test_a_share_never_falls_when_more_is_used(
    tree: Tree, usage: dict[QueueName, dict[MeterName, int]], now: tuple[str, int], before_now: tuple[str, int]
) -> None:
    (user, more), (past_user, past) = now, before_now
    rules = Rules.from_tree(tree)
    memory = fair_share.start_history(rules, [used(past_user, 3 * HOUR, HOUR, past * 7200)], NOW)
    further = memory.after([used(past_user, HOUR, 0 * HOUR, more * 3600)], NOW)
    shares, remembering = (Shares(QueueUsage(tree, usage), usage, rules, kept) for kept in (memory, further))
    before = {name: shares.share(name) for name in tree.queues}

    shares.charge(QueueName(user), {GPU: more})

    assert all(shares.share(name) >= share for name, share in before.items())
    assert all(remembering.share(name) >= share for name, share in before.items())


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))
def test_in_the_long_run_queues_get_shares_by_weight(one: int, other: int, slots: int) -> None:
    """Two queues always want more; one gang ends in every round, the oldest first, and the next one starts."""
    tree = Tree.build([a_root(gpu=slots * (one + other)), a_child("a", one), a_child("b", other)])
    running: list[QueueName] = []
    starts: Counter[str] = Counter()
    rounds = (one + other) * 40

    for _ in range(rounds):
        if len(running) == slots * (one + other):
            running.pop(0)
        usage = {name: {GPU: running.count(name)} for name in set(running)}
        shares = Shares(QueueUsage(tree, usage), usage, Rules.from_tree(tree))
        winner = next(Tournament(shares, [a_gang("a/1"), a_gang("b/1")], lambda gang: gang.queue, charge_of))
        running.append(winner.queue)
        starts[winner.queue] += 1

    assert abs(starts["a"] - rounds * one // (one + other)) <= 1
    assert abs(starts["b"] - rounds * other // (one + other)) <= 1
