"""Members take turns, and a grant moves nobody but who is granted."""

from hypothesis import given, strategies as st

from admission.quota import queue_order
from admission.quota.fair_share import MemberShares
from tests.unit.quota.test_member_order import ordered
from tests.unit.quota.test_queue_order import GPU, a_gang

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
    places = queue_order.member_places(gangs, lambda gang: gang.key[-1], lambda gang: {GPU: gang.gpus}, shares)
    order = ordered(*gangs, used={member: {GPU: amount} for member, amount in used.items()})

    assert sorted(places.values()) == sorted(map(queue_order.rank, gangs))
    if order:
        first = next(gang for gang in gangs if gang.key == order[0])
        member = first.key[-1]
        after = {**used, member: used.get(member, 0) + first.gpus}
        rest = [gang for gang in gangs if gang is not first]
        assert ordered(*rest, used={name: {GPU: amount} for name, amount in after.items()}) == order[1:]
