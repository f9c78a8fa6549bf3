"""The table of a Kubernetes without a profile: a difference counts for the features of its world."""

import pytest

from admission.dra.compatibility import Release
from tests.conformance import kubernetes, newer
from tests.property import clusters

pytestmark = pytest.mark.conformance

WORLDS = 40


def test_a_difference_is_in_the_rows_of_the_features_of_its_world() -> None:
    """Of a Kubernetes that refuses every world with admin access, and answers no other question."""

    def ask(record: newer.Record) -> newer.Record:
        return {"outcome": "none" if "admin access" in newer.features_of(record) else "panic"}

    table = newer.Table()
    newer.ask_allocator(table, ask, WORLDS)

    worlds = [clusters.seeded(seed) for seed in range(WORLDS)]
    other = [kubernetes.difference(world, Release.V1_37, ask) is not None for world in worlds]
    rows = {feature: (asked, table.differ[_, feature]) for (_, feature), asked in table.asked.items()}
    assert 0 < sum(other) < WORLDS
    assert rows["admin access"][1] == sum(other)
    assert all(differ <= sum(other) for _, differ in rows.values())
    assert f"| allocator | admin access | {rows['admin access'][0]} | {sum(other)} | seed {other.index(True)} |" in (
        table.markdown("v1.38.0")
    )
