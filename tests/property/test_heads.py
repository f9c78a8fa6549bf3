"""Heads are read as they were written, and kept by rules that do not depend on when they are applied."""

import json
from datetime import timedelta

from hypothesis import given, strategies as st

from admission.heads import retention, signed_head
from tests.unit.heads.builders import AT, a_signed_head
from tests.unit.heads.test_retention import heads_at


@given(
    cluster=st.text(min_size=1, max_size=20),
    numbers=st.tuples(st.integers(0, signed_head.LARGEST), st.integers(0, signed_head.LARGEST)),
    at=st.datetimes(timezones=st.just(AT.tzinfo)),
    foreign=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=5).map(tuple),
)
def test_a_head_is_read_as_it_was_written(cluster: str, numbers: tuple[int, int], at: object, foreign: object) -> None:
    signed = a_signed_head(numbers[0], epoch=numbers[1], cluster=cluster, at=at, foreign=foreign)  # type: ignore[arg-type]

    read = signed_head.from_json(json.loads(signed_head.to_line(signed)))

    assert read == signed
    assert signed_head.signed_bytes(read.head, read.key) == signed_head.signed_bytes(signed.head, signed.key)


SECONDS = st.integers(0, 12 * 366 * 86_400)


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
