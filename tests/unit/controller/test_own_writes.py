"""What a leader remembers of its writes."""

from admission.api.muster.ledger_entries import Posted
from admission.controller.own_writes import MOST_RANGES, OwnWrites
from admission.simulation import in_memory
from tests.unit.controller.test_heads import an_entry


def test_many_writes_in_a_row_are_remembered_as_one_range() -> None:
    writes = OwnWrites(in_memory.Ledger())
    entry = an_entry(1)
    for place in range(1, 10_001):
        writes._note([entry], [Posted(sequence=place, digest=str(place))])

    assert writes._own == [(1, 10_000)]
    assert writes.last == (10_000, "10000")


def test_however_many_others_write_in_between_memory_is_bounded() -> None:
    writes = OwnWrites(in_memory.Ledger())
    for place in range(0, 3 * MOST_RANGES, 2):
        writes._add(place)

    assert len(writes._own) == MOST_RANGES
