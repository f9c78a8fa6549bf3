"""Laws of the allocator, on random worlds of every feature, judged by a checker that shares nothing with it."""

from random import Random
from typing import Any

import pytest
from hypothesis import event, given, reject, strategies as st

from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.allocator.results import StepsEndedError
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from tests.conformance import allocators, corpus, kubernetes
from tests.property import checker, clusters

LONGEST_SEARCH = 2_000
"""Steps of brute force, so that an example takes no longer than half a second."""

DEFECTS_OF_1_36 = ("distinctAttribute", "counters of pool")
"""How sentences about answers begin in which we err as 1.36 does; `checker.DEFECTS` says why."""

Json = dict[str, Any]


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(record=clusters.records(gates=True))
def test_an_allocation_breaks_no_rule_and_none_exists_where_the_allocator_finds_none(
    record: Json, release: Release
) -> None:
    """The latter by brute force, where that ends. Fatal errors and searches cut short answer neither question."""
    answer = allocators.answer(record, release)

    event(answer["outcome"])
    match answer:
        case {"outcome": "allocated"}:
            said = checker.violations(record, answer["results"], _minor(release))
            known = DEFECTS_OF_1_36 if release is Release.V1_36 else ()
            assert [sentence for sentence in said if not sentence.startswith(known)] == []
        case {"outcome": "none"} | {"outcome": "error", "fatal": False}:
            exists = checker.exists(record, _minor(release), steps=LONGEST_SEARCH)
            event(f"exists: {exists}")
            # 1.36 takes the counters of two drivers' pools of one name for each other's, and may find nothing for that.
            assert not exists or (release is Release.V1_36 and clusters.two_drivers_count_in_one_name(record))
        case _:
            assert answer in ({"outcome": "error", "fatal": True}, allocators.UNDECIDED)


@pytest.mark.parametrize("release", corpus.RELEASES)
@given(record=clusters.records())
def test_a_certain_allocation_equals_the_plain_one_and_rests_on_no_known_defect(record: Json, release: Release) -> None:
    promised, answered = (_allocated(record, release, nomination=nomination) for nomination in (True, False))

    event("promised" if promised is not None else "not promised" if answered is not None else "nothing to promise")
    if promised is not None:
        assert promised == answered
        assert checker.violations(record, promised, 37) == []


@given(record=clusters.records(), order=st.randoms(use_true_random=False))
def test_what_is_promised_for_a_1_35_comes_in_any_order_of_pools_and_slices(record: Json, order: Random) -> None:
    """Pools and slices are tried by name; other names are another order."""
    record = kubernetes.as_read_by(record, Release.V1_35)
    names = sorted({each["spec"]["pool"]["name"] for each in record["slices"]})
    renamed = dict(zip(names, order.sample(names, len(names)), strict=True))
    promised = _devices(record, renamed, certain=True)

    event("promised" if promised is not None else "not promised")
    if promised is not None:
        assert promised == _devices(_reordered(record, renamed, order), dict(zip(names, names, strict=True)))


def _devices(record: Json, pools: dict[str, str], *, certain: bool = False) -> list[list[tuple[str, ...]]] | None:
    """Return all that a 1.35 gives to each claim. pools: the names to write for those of the record."""
    found = _allocated(record, Release.V1_35, nomination=certain)
    if found is None:
        return None
    given = (one["devices"].get("results", ()) for one in found)
    return [
        sorted((one["request"], one["driver"], pools[one["pool"]], one["device"]) for one in devices)
        for devices in given
    ]


def _reordered(record: Json, pools: dict[str, str], order: Random) -> Json:
    """Return the world with other names of pools and slices."""
    numbers = order.sample(range(len(record["slices"])), len(record["slices"]))
    slices = [
        {
            **each,
            "metadata": {**each["metadata"], "name": f"slice-{number:03}"},
            "spec": {**each["spec"], "pool": {**each["spec"]["pool"], "name": pools[each["spec"]["pool"]["name"]]}},
        }
        for each, number in zip(record["slices"], numbers, strict=True)
    ]
    in_use = {
        key: [{**one, "pool": pools.get(one["pool"], one["pool"])} for one in record[key]]
        for key in ("allocated", "sharedDevices", "consumedCapacity")
    }
    return {**record, "slices": slices, **in_use}


def _allocated(record: Json, release: Release, *, nomination: bool) -> list[Json] | None:
    cluster_state = corpus.cluster(record, release)
    claims = [corpus.claim(obj, "pod") for obj in record["claims"]]
    selectors, node = Selectors(cluster_state.profile.cel), next(iter(cluster_state.nodes))
    try:
        found = node_allocator.allocate(
            claims, node, cluster_state, selectors=selectors, steps=allocators.STEPS, certain=nomination
        )
    except StepsEndedError:
        reject()
    if not isinstance(found, Allocated):
        return None
    return [one.json(["<uuid>"] * 99) for one in found.claims]


def _minor(release: Release) -> int:
    return int(release.value.partition(".")[2])
