"""The garbage collector beside large numbers of objects that stay alive."""

import gc

from admission import heap


def test_what_somebody_has_frozen_stays_so_after_a_block() -> None:
    """As what the collection of these tests made: to visit it takes half a second, each time."""
    kept = [object()]
    gc.freeze()

    with heap.frozen():
        assert gc.get_threshold() == heap.GC_THRESHOLDS

    assert not any(one is kept for one in gc.get_objects()), "it lists what is not frozen"
