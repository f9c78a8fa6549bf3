"""The places of others in the ledger are all but the own."""

from hypothesis import given, strategies as st

from admission.controller.own_writes import OwnWrites
from admission.simulation import in_memory

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
