"""The cheapest nodes for a question: enough of them, none too much, and no single shape that is cheaper."""

from fractions import Fraction
from itertools import product

from hypothesis import given, strategies as st

from admission.scheduling.capacity.node_counts import Counts, CountSearch, cost_of

SHAPES = ("a", "b", "c")
amounts = st.dictionaries(st.sampled_from(SHAPES), st.integers(1, 9), min_size=1)


@given(size=amounts, need=st.integers(1, 40), prices=st.lists(st.none() | st.integers(0, 9), min_size=3, max_size=3))
def test_no_node_is_too_much_and_no_single_shape_is_cheaper(
    size: dict[str, int], need: int, prices: list[int | None]
) -> None:
    price = {name: None if one is None else Fraction(one) for name, one in zip(SHAPES, prices, strict=True)}
    most = dict.fromkeys(size, 4)

    def fits(counts: Counts) -> bool:
        return sum(size[name] * count for name, count in counts.items()) >= need

    search = CountSearch[Counts](
        ask=lambda counts: dict(counts) if fits(counts) else None,
        used=lambda answer: answer,
        most=most,
        prices=price,
        tries=1_000,
    )
    found = search.cheapest()

    if found is None:
        assert not fits(most)
        return
    assert fits(found.counts)
    assert all(0 < count <= most[name] for name, count in found.counts.items())
    assert not any(fits({**found.counts, name: count - 1}) for name, count in found.counts.items())
    singles = [{name: count} for name, count in product(size, range(1, 5)) if fits({name: count})]
    assert all(cost_of(found.counts, price) <= cost_of(one, price) for one in singles)
