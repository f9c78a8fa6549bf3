"""The cheapest nodes for a question are found by trying numbers of nodes."""

import pytest

from admission.scheduling.capacity.node_counts import Counts, CountSearch


def test_what_was_found_is_returned_when_no_more_may_be_tried() -> None:
    def search(tries: int) -> CountSearch[int]:
        return CountSearch[int](
            ask=lambda counts: counts.get("a", 0) if counts.get("a", 0) >= 3 else None,
            used=lambda answer: {"a": answer},
            most={"a": 9},
            prices={"a": None},
            tries=tries,
        )

    assert search(0).cheapest() is None
    assert (found := search(100).cheapest()) is not None
    assert found.counts == {"a": 3}
    assert (started := search(3).cheapest({"a": 3})) is not None
    assert started.counts == {"a": 3}


@pytest.mark.parametrize(("needs_some", "asked"), [(False, [{}]), (True, [{"a": 3}])])
def test_what_a_similar_question_needed_is_tried_after_no_node_at_all(*, needs_some: bool, asked: list[Counts]) -> None:
    """Unless it is known that none does."""
    tried: list[Counts] = []

    def ask(counts: Counts) -> int:
        tried.append(counts)
        return 0

    search = CountSearch[int](
        ask=ask,
        used=lambda answer: {"a": answer},
        most={"a": 9},
        prices={"a": None},
        tries=100,
        needs_some=needs_some,
    )

    search.cheapest({"a": 3})

    assert tried == asked
