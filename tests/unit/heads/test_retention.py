"""Which heads are kept."""

from datetime import timedelta

from hypothesis import given, strategies as st

from admission.heads import retention
from admission.heads.signed_head import SignedHead
from tests.unit.heads.builders import AT, a_signed_head

SECONDS = st.integers(0, 12 * 366 * 86_400)
YEARS = timedelta(days=12 * 366)


def heads_at(seconds: list[int], *, foreign: int | None = None) -> list[SignedHead]:
    """Return heads of a growing chain, at some seconds before AT."""
    ordered = sorted(seconds, reverse=True)
    return [
        a_signed_head(
            number, at=AT - timedelta(seconds=second), foreign=((number, number),) if number == foreign else ()
        )
        for number, second in enumerate(ordered)
    ]


@given(seconds=st.lists(SECONDS, max_size=60), later=st.lists(SECONDS, max_size=30), passed=SECONDS)
def test_what_is_dropped_early_would_be_dropped_anyway(seconds: list[int], later: list[int], passed: int) -> None:
    heads = heads_at([*seconds, *later])
    before, after = heads[: len(seconds)], heads[len(seconds) :]
    now = AT + timedelta(seconds=passed)

    gradually = retention.retained([*retention.retained(before, now=AT), *after], now=now)

    assert gradually == retention.retained(heads, now=now)
    assert retention.retained(gradually, now=now) == gradually


@given(seconds=st.lists(SECONDS, min_size=1, max_size=60))
def test_the_newest_head_is_kept_and_the_order_too(seconds: list[int]) -> None:
    heads = heads_at(seconds)

    kept = retention.retained(heads, now=AT)

    assert kept[-1] == heads[-1]
    assert kept == [signed for signed in heads if signed in kept]


def test_the_number_of_heads_is_bounded_whatever_their_ages() -> None:
    day = 86_400
    ages = [*range(0, 2 * day, 60), *range(2 * day, 9 * day, 1800), *range(9 * day, 9 * 366 * day, 43_200)]

    kept = retention.retained(heads_at(ages), now=AT)

    assert len(kept) <= retention.MOST - retention.MOST_FOREIGN
    assert len(kept) > 700


def test_a_head_of_each_minute_hour_and_day_is_kept() -> None:
    kept = retention.retained(heads_at([10, 70, 130, 131, 7000, 7100, 9 * 86_400, 9 * 86_400 + 60]), now=AT)

    assert [int((AT - signed.head.at).total_seconds()) for signed in kept] == [9 * 86_400, 7000, 130, 70, 10]


def test_heads_that_name_foreign_transactions_are_kept_at_any_age() -> None:
    heads = heads_at([20 * 366 * 86_400, 9 * 86_400 + 60, 9 * 86_400, 5], foreign=1)

    kept = [signed.head.sequence for signed in retention.retained(heads, now=AT)]

    assert kept == [1, 2, 3]


def test_clusters_are_kept_apart_and_repeated_heads_once() -> None:
    east, west = a_signed_head(1), a_signed_head(1, cluster="west")

    assert retention.retained([west, east, east, west], now=AT) == [east, west]
