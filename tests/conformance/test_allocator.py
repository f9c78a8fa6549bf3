"""The allocator against the answers that Kubernetes' own gave, of both releases. None may differ."""

from collections import Counter

import pytest

from admission.dra.compatibility import Release
from tests.conformance import allocators, corpus

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("release", corpus.RELEASES)
@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_allocator_answers_as_kubernetes_does(name: str, release: Release) -> None:
    counts: Counter[str] = Counter()
    different = {}
    for record in corpus.records(name):
        counts[corpus.answer(record, release)["outcome"]] += 1
        if (difference := allocators.compare(record, release)) is not None:
            different[record["id"]] = difference
    if not counts:
        pytest.skip(f"{name} does not travel with the repository")

    assert different == {}
    assert min(counts[outcome] for outcome in ("allocated", "none", "error")) > 0
