"""Members take turns, and a grant moves nobody but who is granted."""

from hypothesis import given, strategies as st

from admission.api.muster.gangs import Charge
from admission.quota import queue_order
from admission.quota.fair_share import MemberShares, Rules, Shares
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Members, Order, Tournament
from admission.quota.tree import Tree
from tests.unit.quota.test_fair_share import a_queue
from tests.unit.quota.test_member_order import ordered
from tests.unit.quota.test_queue_order import GPU, Gang, a_gang

GANGS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)), max_size=12
)


@given(GANGS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 8)))
def test_a_queue_has_the_ranks_of_its_gangs_and_a_grant_of_the_first_moves_nobody_else(
    drawn: list[tuple[str, int, int, int]], used: dict[str, int]
) -> None:
    gangs = [
        a_gang(f"q/{number}/{member}", priority=priority, minute=minute, gpus=gpus)
        for number, (member, priority, minute, gpus) in enumerate(drawn)
    ]
    shares = MemberShares(used={}, potential={GPU: 8}, weights={})
    members = Members({gang.key: gang.key[-1] for gang in gangs}, shares)
    places = queue_order.member_places(gangs, members, lambda gang: {GPU: gang.gpus})
    order = ordered(*gangs, used={member: {GPU: amount} for member, amount in used.items()})

    assert sorted(places.values()) == sorted(map(queue_order.rank, gangs))
    if order:
        first = next(gang for gang in gangs if gang.key == order[0])
        member = first.key[-1]
        after = {**used, member: used.get(member, 0) + first.gpus}
        rest = [gang for gang in gangs if gang is not first]
        assert ordered(*rest, used={name: {GPU: amount} for name, amount in after.items()}) == order[1:]


@given(GANGS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 8)), st.lists(st.booleans(), max_size=12))
def test_members_take_turns_alike_where_only_the_plan_of_a_gang_says_what_it_is_charged(
    drawn: list[tuple[str, int, int, int]], used: dict[str, int], known: list[bool]
) -> None:
    gangs = [
        a_gang(f"q/{number}/{member}", priority=priority, minute=minute, gpus=gpus)
        for number, (member, priority, minute, gpus) in enumerate(drawn)
    ]
    certain = {gang.key for gang, is_known in zip(gangs, known, strict=False) if is_known}
    shares = MemberShares(used={name: {GPU: amount} for name, amount in used.items()}, potential={GPU: 8}, weights={})
    members = Members({gang.key: gang.key[-1] for gang in gangs}, shares)

    def at_least(gang: Gang) -> Charge:
        return {GPU: gang.gpus} if gang.key in certain else {}

    places = queue_order.member_places(gangs, members, at_least)
    tree = Tree.build([a_queue("q", quotas={"gpu": 8})])
    queue_shares = Shares(QueueUsage(tree, {}), {}, Rules.from_tree(tree))
    order = Order(places, {gang.queue: members for gang in gangs})
    contest = Tournament(queue_shares, gangs, lambda gang: gang.queue, at_least, order)
    found: list[str] = []
    for gang in contest:
        assert contest.order.rank(gang) == sorted(places.values())[len(found)]
        found.append(gang.key)
        contest.grant(gang, {GPU: gang.gpus})

    assert found == ordered(*gangs, used={name: {GPU: amount} for name, amount in used.items()})
