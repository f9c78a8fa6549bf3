"""Which heads are kept."""

from datetime import timedelta

from admission.heads import retention
from admission.heads.signed_head import SignedHead
from tests.unit.heads.builders import AT, a_signed_head

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
