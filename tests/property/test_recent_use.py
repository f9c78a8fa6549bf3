"""How little devices were in use of late, against a plain look at every row."""

from hypothesis import given, strategies as st

from admission.accounting.recent_use import LowUse
from tests.unit.accounting.test_recent_use import a_row, at, below


@given(st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=3), min_size=1, max_size=30), st.integers(1, 100))
def test_every_row_since_then_is_below_and_the_one_before_is_not(hours: list[list[int]], percent: int) -> None:
    rows = [a_row(at(hour), percent=value) for hour, values in enumerate(hours) for value in values]
    since = len(hours)
    while since and max(hours[since - 1]) < percent:
        since -= 1

    expected = LowUse(at(since), at(len(hours))) if since < len(hours) else None
    assert below(rows, percent) == expected
