"""Muster's filters against the answers that kube-scheduler's gave, of both releases. None may differ."""

from collections import Counter

import pytest

from tests.conformance import corpus
from tests.conformance.filters import comparison, worlds

pytestmark = pytest.mark.conformance

LEAST = 25
"""The nodes that each plugin refuses at least in the recorded worlds of a version."""


@pytest.mark.parametrize("version", worlds.VERSIONS)
def test_nodes_are_refused_as_kube_scheduler_refuses_them(version: str) -> None:
    every = (record for name in ("filters", "nominated") for record in corpus.records(name))
    records = [record for record in every if record["world"]["version"] == version]
    assert records

    compared, different = Counter[str](), []
    for record in records:
        for found in comparison.compared(record["world"], record["answer"]):
            compared[found.there or "fits"] += 1
            if found.differs:
                different.append(f"{record['id']}: {found}")

    assert different == []
    assert all(compared[plugin] >= LEAST for plugin in (*comparison.JUDGED, "fits")), compared


@pytest.mark.parametrize("version", worlds.VERSIONS)
def test_every_plugin_refuses_nodes_in_the_recorded_worlds(version: str) -> None:
    """Those that Muster does not simulate, too: their answers are there for whoever does it next."""
    refusals = Counter(
        plugin
        for record in corpus.records("filters")
        if record["world"]["version"] == version
        for pod in record["answer"]["pods"]
        for refused in pod["refused"].values()
        for plugin in refused["plugin"].split(",")
    )

    assert {plugin for plugin in worlds.FAMILIES if refusals[plugin] < LEAST} == set()


def test_a_seed_means_one_world() -> None:
    assert [worlds.seeded(seed) for seed in range(20)] == [worlds.seeded(seed) for seed in range(20)]
    assert worlds.seeded(3, family="NodePorts", version="1.36") != worlds.seeded(4, family="NodePorts", version="1.36")
