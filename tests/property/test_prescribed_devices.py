"""Devices chosen at random for a claim are taken or refused as a slow checker, which shares nothing, says."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import event, given, strategies as st

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.dra.allocator import prescribed
from admission.dra.allocator.prescribed import Misfit
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from tests.conformance import allocators, corpus
from tests.property import checker, clusters

Json = dict[str, Any]
Pick = Callable[[int, int], int]
"""Draws an integer between two bounds."""


@given(record=clusters.records(), data=st.data())
def test_devices_are_refused_where_a_rule_is_broken_and_nowhere_else(record: Json, data: st.DataObject) -> None:
    event(judge(record, lambda least, most: data.draw(st.integers(least, most))))


def test_prescribed_devices_are_judged_right_in_four_hundred_seeded_clusters() -> None:
    said = [judge(clusters.seeded(seed), Random(seed).randint) for seed in range(400)]  # noqa: S311 - not for secrets

    assert min(said.count("taken"), said.count("refused")) > 50


def judge(record: Json, pick: Pick) -> str:
    record = {**record, "claims": record["claims"][:1]}
    cluster_state = corpus.cluster(record, Release.V1_37)
    chosen = list(_chosen(record, pick))
    claim = corpus.claim(record["claims"][0], "pod")
    given_ = [RequestDevice(request=one["request"], device=_device(one)) for one in chosen]
    selectors, node = Selectors(cluster_state.profile.cel), next(iter(cluster_state.nodes))

    result = prescribed.prescribed_allocation(claim, given_, node, cluster_state, selectors=selectors)

    said = checker.objections(record, [chosen])
    if isinstance(result, Misfit):
        # The checker, as kube-scheduler, believes that what a device drew which no slice has any more is free again.
        assert said or cluster_state.vanished, result
        return "refused"
    # As kube-scheduler it wants counters and capacity for administrators, who take nothing (kubernetes #140729).
    free = "adminAccess" in repr(record["claims"])
    wanted = ("counters of", "would be used")
    assert [sentence for sentence in said if not (free and any(text in sentence for text in wanted))] == []
    assert checker.violations(record, [result.json(["<uuid>"] * 99)]) == said
    return "taken"


def _chosen(record: Json, pick: Pick) -> Iterator[Json]:
    """Yield devices for the claim: what the allocator gives, or what looks like it, and some of them changed."""
    answer = allocators.answer(record, Release.V1_37)
    found: Sequence[Json] = ()
    if answer["outcome"] == "allocated":
        found = answer["results"][0]["devices"]["results"]
    else:
        found = [one for request in _requests(record) for one in _some(record, request, pick)]
    for one in found:
        kind = pick(0, 11)
        if kind == 1:
            continue
        yield {**one, **(_any(record, pick) if kind in (2, 3) else {})}
        if kind == 4:
            yield {**one, **_any(record, pick)}


def _requests(record: Json) -> list[Json]:
    requests: list[Json] = record["claims"][0]["spec"].get("devices", {}).get("requests") or []
    return requests


def _some(record: Json, request: Json, pick: Pick) -> Iterator[Json]:
    options = request.get("firstAvailable") or [request["exactly"]]
    option = options[pick(0, len(options) - 1)]
    name = f"{request['name']}/{option['name']}" if request.get("firstAvailable") else request["name"]
    for _ in range(min(4, option.get("count", 1))):
        yield {"request": name, **_any(record, pick)}


def _any(record: Json, pick: Pick) -> Json:
    """Return some device of some slice; one that is not there, where there is none."""
    known = [
        {"driver": one["spec"]["driver"], "pool": one["spec"]["pool"]["name"], "device": device["name"]}
        for one in record["slices"]
        for device in one["spec"].get("devices") or ()
    ]
    if not known:
        return {"driver": "gpu.example.com", "pool": "nowhere", "device": "none"}
    return known[pick(0, len(known) - 1)]


def _device(one: Json) -> DeviceId:
    return DeviceId(one["driver"], one["pool"], one["device"])
