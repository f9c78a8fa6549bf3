"""Members of one queue in proportion: whose gang is asked first depends on what its member uses."""

from collections.abc import Mapping
from fractions import Fraction

from admission.api.values.names import MeterName
from admission.quota import queue_order
from admission.quota.fair_share import MemberShares
from admission.quota.queue_order import Members, Order
from tests.unit.quota.test_queue_order import GPU, Gang, a_gang, keys

CPU = MeterName("cpu")
DAYS = 1440


def ordered(
    *gangs: Gang,
    used: Mapping[str, Mapping[MeterName, int]] | None = None,
    weights: Mapping[str, int] | None = None,
    potential: Mapping[MeterName, int] | None = None,
) -> list[str]:
    """Return the order of gangs whose member is the letter behind the last slash: `q/1/a`."""
    shares = MemberShares(
        used=used or {},
        potential=potential or {GPU: 8, CPU: 100},
        weights={name: Fraction(weight) for name, weight in (weights or {}).items()},
    )
    members = Members({gang.key: gang.key[-1] for gang in gangs}, shares)
    places = queue_order.member_places(gangs, members, lambda gang: {GPU: gang.gpus})
    return keys(Order(places).sorted(gangs))


def test_the_gang_of_the_member_that_uses_least_is_first_whatever_its_priority_and_wait() -> None:
    gangs = [a_gang("q/1/a", priority=9), a_gang("q/2/b", minute=9), a_gang("q/3/c", minute=5)]

    assert ordered(*gangs, used={"a": {GPU: 2}, "b": {GPU: 1}, "c": {GPU: 4}}) == ["q/2/b", "q/1/a", "q/3/c"]


def test_members_that_use_alike_take_turns_by_rank() -> None:
    gangs = [a_gang(f"q/{minute}/{'a' if minute < 3 else 'b'}", minute=minute) for minute in range(6)]

    assert ordered(*gangs) == ["q/0/a", "q/3/b", "q/1/a", "q/4/b", "q/2/a", "q/5/b"]


def test_inside_a_member_rank_decides() -> None:
    gangs = [a_gang("q/1/a", minute=1), a_gang("q/2/a", minute=2, priority=1), a_gang("q/3/a")]

    assert ordered(*gangs, used={"a": {GPU: 8}}) == ["q/2/a", "q/3/a", "q/1/a"]


def test_twice_the_weight_may_use_twice_as_much_and_weight_0_comes_last() -> None:
    gangs = [a_gang("q/1/z"), a_gang("q/2/a", minute=1), a_gang("q/3/b", minute=2)]
    used = {"a": {GPU: 3}, "b": {GPU: 4}, "z": {GPU: 1}}

    assert ordered(*gangs, used=used, weights={"b": 2, "z": 0}) == ["q/3/b", "q/2/a", "q/1/z"]


def test_the_meter_counts_of_which_the_member_uses_the_largest_part() -> None:
    gangs = [a_gang("q/1/a"), a_gang("q/2/b", minute=1)]

    assert ordered(*gangs, used={"a": {CPU: 60, GPU: 1}, "b": {CPU: 1, GPU: 4}}) == ["q/2/b", "q/1/a"]


def test_use_of_what_the_queue_cannot_have_comes_last() -> None:
    gangs = [a_gang("q/1/a"), a_gang("q/2/b", minute=1)]

    assert ordered(*gangs, used={"a": {MeterName("gone"): 1}, "b": {GPU: 8}}) == ["q/2/b", "q/1/a"]
