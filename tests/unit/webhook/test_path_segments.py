"""The rotation of the paths' secret segment: what is known, what is registered, and what the Secret has."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from admission.errors import FixError
from admission.webhook import path_segments
from admission.webhook.path_segments import PLAIN, Segment, Segments
from admission.webhook.tls.ca_rotation import Lifetimes

NOW = datetime(2026, 8, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TERMS = Lifetimes(authority=90 * DAY, leaf=7 * DAY)


def begun(*days: float) -> Segments:
    """Return segments that were made on these days, named after them."""
    return tuple(Segment(begins=NOW + day * DAY, text=f"{day:040g}") for day in days)


def registered(segments: Segments, *named: str, day: float = 0) -> str:
    return path_segments.registered(segments, TERMS, now=NOW + day * DAY, named=named)


def test_a_segment_cannot_be_guessed_and_is_a_part_of_a_path_that_the_api_server_takes() -> None:
    made = {path_segments.rotate((), TERMS, now=NOW)[0].text for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch("[0-9a-f]{40}", text) for text in made)


def test_a_segment_is_neither_shown_nor_logged() -> None:
    assert begun(0)[0].text not in repr(begun(0))


def test_a_new_one_is_added_a_third_before_the_end_and_an_old_one_is_known_until_its_own() -> None:
    first = begun(0)

    assert path_segments.rotate(first, TERMS, now=NOW + 59 * DAY) == first
    both = path_segments.rotate(first, TERMS, now=NOW + 60 * DAY)
    assert (both[:1], len(both)) == (first, 2)
    assert path_segments.rotate(both, TERMS, now=NOW + 89 * DAY) == both
    assert path_segments.rotate(both, TERMS, now=NOW + 90 * DAY) == both[1:]


REGISTERED: dict[str, tuple[Segments, tuple[str, ...], float, str]] = {
    "in a new cluster, the first at once": (begun(0), (), 0, f"{0:040g}"),
    "where an earlier Muster has registered plain paths, these": (begun(0), (PLAIN,), 2.9, PLAIN),
    "until all have had the time to read of the first": (begun(0), (PLAIN,), 3, f"{0:040g}"),
    "a new one not before all have read of it": (begun(0, 60), (f"{0:040g}",), 62.9, f"{0:040g}"),
    "a new one once all have": (begun(0, 60), (f"{0:040g}",), 63, f"{60:040g}"),
    "what stands, while all are new": (begun(0, 0.5), (f"{0:040g}",), 1, f"{0:040g}"),
    "plain paths, if these stand beside others": (begun(0, 0.5), (f"{0:040g}", PLAIN), 1, PLAIN),
    "plain paths, while all know only older ones": (begun(0, 60), (PLAIN,), 61, PLAIN),
    "one that is known where nobody knows what stands": (begun(0), ("f" * 40,), 0, f"{0:040g}"),
}


@pytest.mark.parametrize(("segments", "named", "day", "expected"), REGISTERED.values(), ids=REGISTERED)
def test_what_is_registered_is_known_to_all(
    segments: Segments, named: tuple[str, ...], day: float, expected: str
) -> None:
    assert registered(segments, *named, day=day) == expected


def test_over_a_year_what_is_registered_was_known_for_three_days_and_stays_known_for_a_month() -> None:
    segments: Segments = ()
    named: tuple[str, ...] = (PLAIN,)
    known: dict[str, tuple[int, int]] = {}
    changes: list[tuple[int, str]] = []
    for day in range(400):
        segments = path_segments.rotate(segments, TERMS, now=NOW + day * DAY)
        for one in segments:
            since, _ = known.get(one.text, (day, 0))
            known[one.text] = since, day
        chosen = registered(segments, *named, day=day)
        if (chosen,) != named:
            changes.append((day, named[0]))
            named = (chosen,)
            assert day - known[chosen][0] >= 3

    assert len(changes) > 4
    for day, given_up in changes[1:]:
        assert known[given_up][1] - day >= 26


def test_lists_of_two_processes_are_put_together() -> None:
    assert path_segments.union(begun(0, 2), begun(1, 2)) == begun(0, 1, 2)


def test_the_entry_of_the_secret_is_read_as_it_is_written() -> None:
    made = path_segments.rotate(path_segments.rotate((), TERMS, now=NOW), TERMS, now=NOW + 60 * DAY)

    assert path_segments.read(path_segments.encode(made)) == made
    assert path_segments.read({"ca.crt": b"others'"}) == ()


@pytest.mark.parametrize(
    "entry",
    [b"2026-08-01T00:00:00+00:00 short", b"then " + b"0" * 40, b"\xff", b"2026-08-01T00:00:00 " + b"0" * 40, b"one"],
)
def test_an_entry_that_cannot_be_read_is_named_with_its_mend_and_not_shown(entry: bytes) -> None:
    with pytest.raises(FixError, match=r"webhook\.secret: paths cannot be read; delete this entry") as raised:
        path_segments.read({"paths": entry})

    assert "0" * 40 not in str(raised.value)
