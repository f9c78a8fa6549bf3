"""Devices of an extended resource are split so that each container has enough."""

from hypothesis import given, strategies as st

from admission.api.kubernetes.pods import Stage
from admission.claimpolicy.pods import extended_resources

NEEDS = st.lists(st.tuples(st.sampled_from(list(Stage)), st.integers(0, 9)), max_size=12)


@given(NEEDS)
def test_the_total_is_known_before_the_devices_are_split(needs: list[tuple[Stage, int]]) -> None:
    found = extended_resources.split(needs)

    assert extended_resources.total_devices(needs) == sum(found.counts)
    for (_, need), uses in zip(needs, found.of_containers, strict=True):
        assert sum(found.counts[index] for index in uses) >= need
