from datetime import UTC, datetime, timedelta

from admission.api.values import references
from admission.api.values.names import QueueName
from admission.dra.state.what_if import Interval
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.backfill.running_gangs import RunningGangs

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def expected_end(gang: str, end: datetime | None) -> ExpectedEnd:
    return ExpectedEnd(interval=Interval(gang=gang), queue=QueueName("q"), charge={}, end=end)


def endless(present: RunningGangs) -> list[str]:
    """Return the gangs for which it is unknown when others start."""
    estimate = present.unknown()
    return [] if estimate is None else [one.key for one in estimate.references[0].referents]


def test_gangs_without_an_expected_end_are_listed_as_they_start_and_end() -> None:
    present = RunningGangs(NOON)
    present.expect({"b": expected_end("b", None), "a": expected_end("a", None), "c": expected_end("c", LATER)}, NOON)
    assert endless(present) == ["a", "b"]

    present.add(expected_end("d", None))
    assert endless(present) == ["a", "b", "d"]

    present.remove("a")
    assert endless(present) == ["b", "d"]


def test_of_many_gangs_without_an_expected_end_the_last_are_named_and_the_others_counted() -> None:
    present = RunningGangs(NOON)
    present.expect({f"g{at:02}": expected_end(f"g{at:02}", None) for at in range(references.LISTED + 6)}, NOON)

    estimate = present.unknown()

    assert estimate is not None
    assert estimate.message == "nobody says how long 64 gangs and 6 more run"
    assert [one.key for one in estimate.references[0].referents[: references.MOST_NAMED]] == ["g67", "g68", "g69"]


def test_a_gang_whose_expected_end_becomes_known_is_no_longer_listed_as_endless() -> None:
    present = RunningGangs(NOON)
    present.expect({"a": expected_end("a", None)}, NOON)
    assert endless(present) == ["a"]

    present.expect({"a": expected_end("a", LATER)}, NOON)
    assert endless(present) == []


def test_a_granted_gang_that_was_not_committed_is_not_running_in_the_next_cycle() -> None:
    """A grant that was not committed: nothing else may have changed."""
    present, books = RunningGangs(NOON), {"a": expected_end("a", LATER)}
    present.expect(books, NOON)
    present.add(expected_end("b", LATER))

    present.expect(books, NOON)

    assert set(present.expected_ends) == {"a"}
    assert [one.interval.gang for one in present.removed(LATER)] == ["a"]
