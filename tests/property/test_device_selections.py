"""Weights of sets of selectors that are kept are those that are counted from scratch."""

from typing import Any

from hypothesis import given, strategies as st

from admission.api.kubernetes.devices import Slice
from admission.dra.inventory.selectors import Texts
from admission.scheduling.cache.device_selections import DeviceSelections
from tests.unit.scheduling.test_device_selections import G2, GPUS, NONE, T4, a_slice, weights

WORLD = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(["t4", "g2", "x"]), max_size=3)), max_size=4
)
ASKED = st.dictionaries(st.sampled_from([GPUS, T4, G2, NONE]), st.integers(1, 9))


@given(st.lists(st.tuples(WORLD, ASKED), min_size=1, max_size=6))
def test_weights_that_are_kept_are_those_counted_from_scratch(steps: list[tuple[Any, dict[Texts, int]]]) -> None:
    kept, known = DeviceSelections(), dict[object, Slice]()
    for world, asked in steps:
        slices = {name: known.setdefault((name, *models), a_slice(name, *models)) for name, models in world}.values()

        assert weights(asked, *slices, kept=kept) == weights(asked, *slices)
