"""What a leader remembers of its writes."""

from hypothesis import given, strategies as st

from admission.api.muster.ledger_entries import Posted
from admission.controller.own_writes import MOST_RANGES, OwnWrites
from admission.simulation import in_memory
from tests.unit.controller.test_heads import an_entry

PLACES = st.integers(1, 40)


@given(own=st.lists(PLACES, max_size=40), first=PLACES, last=PLACES, forgotten=PLACES)
def test_the_places_of_others_are_all_but_the_own(own: list[int], first: int, last: int, forgotten: int) -> None:
    writes = OwnWrites(in_memory.Ledger())
    for place in own:
        writes._add(place)

    def others() -> set[int]:
        return {place for start, end in writes.others(first, last) for place in range(start, end + 1)}

    assert others() == set(range(first, last + 1)) - set(own)
    assert writes._own == sorted(writes._own)
    assert len(writes._own) <= len(set(own))
    writes.forget_before(forgotten)
    assert others() == set(range(first, last + 1)) - {place for place in own if place >= forgotten}


def test_many_writes_in_a_row_are_remembered_as_one_range() -> None:
    writes = OwnWrites(in_memory.Ledger())
    entry = an_entry(1)
    for place in range(1, 100_001):
        writes._note([entry], [Posted(sequence=place, digest=str(place))])

    assert writes._own == [(1, 100_000)]
    assert writes.last == (100_000, "100000")


def test_however_many_others_write_in_between_memory_is_bounded() -> None:
    writes = OwnWrites(in_memory.Ledger())
    for place in range(0, 3 * MOST_RANGES, 2):
        writes._add(place)

    assert len(writes._own) == MOST_RANGES
