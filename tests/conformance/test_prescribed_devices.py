"""Devices that Kubernetes' own allocator chose: written by us, they make the very allocation that it wrote."""

from collections import Counter
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.dra.allocator import prescribed
from admission.dra.allocator.prescribed import Misfit
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import Holder
from admission.dra.state import cluster_state
from tests.conformance import allocators, corpus
from tests.conformance.corpus import Record
from tests.property import checker

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("release", corpus.RELEASES)
@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_devices_that_kubernetes_chose_make_the_allocation_that_it_wrote(name: str, release: Release) -> None:
    """Where it chose wrongly, by a defect of 1.36, they are refused; a slow checker must say so too."""
    counts: Counter[str] = Counter()
    for record in corpus.records(name):
        if corpus.answer(record, release)["outcome"] == "allocated":
            counts[judge(record, release)] += 1
    if not counts:
        pytest.skip(f"{name} does not travel with the repository")
    print(f"\n{name} {release}: {dict(counts)}")

    assert counts["as written"] > 50
    assert counts["refused"] <= 10


def judge(record: Record, release: Release) -> str:
    """Allot the recorded devices, claim by claim, each with its devices in the opposite order."""
    expected = corpus.answer(record, release).get("results", ())
    cluster, found = corpus.cluster(record, release), []
    selectors, node = Selectors(cluster.profile.cel), next(iter(cluster.nodes))
    for obj, wanted in zip(record["claims"], expected, strict=True):
        claim = corpus.claim(obj, "pod")
        given = [_given(entry) for entry in reversed(wanted["devices"].get("results", ()))]
        result = prescribed.prescribed_allocation(claim, given, node, cluster, selectors=selectors)
        if isinstance(result, Misfit):
            assert checker.violations(record, expected, 37), (record["id"], result)
            return "refused"
        found.append(result.json(["<uuid>"] * 99))
        uses = (one.use for one in result.given if one.use is not None)
        cluster = cluster_state.with_devices(cluster, uses, Holder(claim=claim.meta.key))
    assert allocators.compared(record, allocators.as_allocated(found), release) is None, record["id"]
    return "as written"


def _given(entry: dict[str, Any]) -> RequestDevice:
    device = DeviceId(entry["driver"], entry["pool"], entry["device"])
    return RequestDevice(request=entry["request"], device=device)
