"""What pods request beside each device: the mean, kept in step with the snapshot."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims, devices, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.names import Uid
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.kinds_of_use import Selection, Tie
from admission.scheduling.cache.device_companions import DeviceCompanions

SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}


def a_claim(name: str, *requests: dict[str, Any]) -> Claim:
    given = [
        {"name": f"r-{at}", "exactly": {"deviceClassName": "gpu", **request}} for at, request in enumerate(requests)
    ]
    return claims.decode({"metadata": {"name": name, "namespace": "ml"}, "spec": {"devices": {"requests": given}}})


def a_pod(name: str, *, claim: str | None, phase: str = "Pending", **requests: str) -> Pod:
    container = {"name": "main", "resources": {"requests": requests}}
    users = [{"name": "gpus", "resourceClaimName": claim}] if claim else []
    spec = {"containers": [container], "resourceClaims": users}
    meta = {"name": name, "namespace": "ml", "uid": name}
    return pods.decode({"metadata": meta, "spec": spec, "status": {"phase": phase}})


def a_snapshot(*objects: Pod | Claim) -> Snapshot:
    spec = {"driver": "gpu", "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}
    shown = [{"name": "gpu-0", **SHARED}]
    slice_ = devices.decode_slice({"metadata": {"name": "a", "uid": "a"}, "spec": {**spec, "devices": shown}})
    return Snapshot(
        pods={Uid(one.meta.uid): one for one in objects if isinstance(one, Pod)},
        claims={one.meta.key: one for one in objects if isinstance(one, Claim)},
        slices={"a": slice_},
    )


def means(snapshot: Snapshot) -> Resources:
    return DeviceCompanions().update(snapshot, Selectors())


def test_the_mean_is_that_of_all_pods_over_all_devices() -> None:
    snapshot = a_snapshot(
        a_pod("two", claim="two", cpu="8", memory="1Gi"),
        a_claim("two", {"count": 2}),
        a_pod("one", claim="one", cpu="16"),
        a_claim("one", {}),
    )

    assert means(snapshot) == {"cpu": 8192, "memory": 2**30 // 3 // 2**26 * 2**26}


def test_a_share_counts_as_its_part_of_the_largest_device() -> None:
    half = a_claim("half", {"capacity": {"requests": {"memory": "40"}}})

    assert means(a_snapshot(a_pod("p", claim="half", cpu="4"), half)) == {"cpu": 8192}


def test_pods_without_devices_and_those_that_have_ended_count_for_nothing() -> None:
    claim = a_claim("one", {})
    others = a_pod("web", claim=None, cpu="64"), a_pod("done", claim="one", phase="Succeeded", cpu="64")

    assert means(a_snapshot(a_pod("p", claim="one", cpu="4"), claim, *others)) == {"cpu": 4096}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", None])
def test_claims_of_pods_that_have_ended_and_claims_without_a_pod_count_for_nothing(phase: str | None) -> None:
    """They are there for long, with no pod whose requests count: the mean would fall as such claims stay."""
    kept = DeviceCompanions()
    running = a_pod("p", claim="one", cpu="4"), a_claim("one", {}), a_claim("other", {"count": 7})
    other = a_pod("other", claim="other", cpu="4")

    assert kept.update(a_snapshot(*running, other), Selectors()) == {"cpu": 1024}

    ended = a_snapshot(*running, *([a_pod("other", claim="other", cpu="4", phase=phase)] if phase else []))
    assert kept.update(ended, Selectors()) == means(ended) == {"cpu": 4096}


def test_a_claim_that_pods_share_counts_once() -> None:
    snapshot = a_snapshot(a_pod("a", claim="one", cpu="4"), a_pod("b", claim="one", cpu="4"), a_claim("one", {}))

    assert means(snapshot) == {"cpu": 8192}


def test_nothing_is_known_without_devices() -> None:
    assert means(a_snapshot(a_pod("p", claim="gone", cpu="4"))) == {}
    assert means(Snapshot()) == {}


def test_admin_access_takes_no_device() -> None:
    monitor = a_claim("monitor", {"adminAccess": True, "allocationMode": "All"})

    assert means(a_snapshot(a_pod("p", claim="monitor", cpu="4"), monitor)) == {}


def a_card(node: str = "a", compute: str = "7") -> dict[str, Slice]:
    """Return a card of 7 slices of compute and 8 of memory, in partitions of two profiles."""
    spec = {"driver": "gpu", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 2}}
    totals = {"compute": {"value": compute}, **{f"memory-{at}": {"value": "1"} for at in range(8)}}
    drawn = {
        "1g": {"compute": {"value": "1"}, "memory-0": {"value": "1"}},
        "3g": {"compute": {"value": "3"}, **{f"memory-{at}": {"value": "1"} for at in range(4)}},
    }
    shown = [
        {
            "name": name,
            "attributes": {"profile": {"string": name}},
            "consumesCounters": [{"counterSet": "card", "counters": counters}],
        }
        for name, counters in drawn.items()
    ]
    parts: dict[str, dict[str, Any]] = {
        "counters": {"sharedCounters": [{"name": "card", "counters": totals}]},
        "devices": {"devices": shown},
    }
    return {
        name: devices.decode_slice({"metadata": {"name": name, "uid": name}, "spec": {**spec, **part}})
        for name, part in parts.items()
    }


PARTITIONS = {
    "1g is a seventh of the compute": ("1g", 1024 * 7),
    "3g is half of the memory": ("3g", 2048),
    "what matches no partition is whole": ("7g", 1024),
}


@pytest.mark.parametrize(("profile", "cpu"), PARTITIONS.values(), ids=PARTITIONS)
def test_a_partition_counts_as_its_part_of_a_device(profile: str, cpu: int) -> None:
    chosen = {"selectors": [{"cel": {"expression": f"device.attributes['gpu'].profile == '{profile}'"}}]}
    snapshot = replace(a_snapshot(a_pod("p", claim="one", cpu="1"), a_claim("one", chosen)), slices=a_card())

    assert means(snapshot) == {"cpu": cpu}


def test_which_kinds_are_looked_up_follows_from_what_there_is_and_not_from_what_there_was() -> None:
    """Of more kinds than the bound the most frequent are; 300 that have gone take nobody's place."""

    def asking(profile: str, number: int) -> Claim:
        expression = f"device.attributes['gpu'].profile == '{profile}' && {number} > -1"
        return a_claim(f"c{number}", {"selectors": [{"cel": {"expression": expression}}]})

    users = (a_pod(f"p{number}", claim=f"c{number}", cpu="1") for number in range(300))
    gone = replace(a_snapshot(*users, *(asking("3g", number) for number in range(300))), slices=a_card())
    snapshot = replace(a_snapshot(a_pod("p", claim="c900", cpu="1"), asking("1g", 900)), slices=a_card())
    kept = DeviceCompanions()
    kept.update(gone, Selectors())

    assert kept.update(snapshot, Selectors()) == means(snapshot) == {"cpu": 1024 * 7}


def a_tied_claim(name: str, count: int, *rules: dict[str, Any], profile: str = "") -> Claim:
    text = f"device.attributes['gpu'].profile == '{profile}'"
    selectors = [{"cel": {"expression": text}}] if profile else []
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": count, "selectors": selectors}}
    nic = {"name": "nic", "exactly": {"deviceClassName": "nic"}}
    spec = {"devices": {"requests": [request, nic], "constraints": list(rules)}}
    return claims.decode({"metadata": {"name": name, "namespace": "ml"}, "spec": spec})


ROOT = {"matchAttribute": "resource.kubernetes.io/pcieRoot"}


def test_claims_that_tie_several_devices_of_a_class_are_kinds_of_use() -> None:
    """A network card on the root of GPUs is one device of its class, which any free one can be."""
    kept, selectors = DeviceCompanions(), Selectors()
    snapshot = a_snapshot(
        a_pod("a", claim="a", cpu="1"),
        a_tied_claim("a", 4, ROOT),
        a_pod("b", claim="b", cpu="1"),
        a_claim("b", {"count": 3}),
    )
    kept.update(snapshot, selectors)

    assert kept.ties(Selectors()) == (Tie("resource.kubernetes.io/pcieRoot", (), 4, 512),)

    kept.update(a_snapshot(a_pod("b", claim="b", cpu="1"), a_claim("b", {"count": 3})), selectors)
    assert kept.ties(Selectors()) == ()


def test_of_many_kinds_of_use_those_count_that_ask_for_the_most_devices() -> None:
    """As many as the bound, and none of less than a hundredth of all devices."""
    wanted = {f"c{count:02}": count for count in range(2, 16)}
    pods_ = [a_pod(name, claim=name, cpu="1") for name in wanted]
    kept = DeviceCompanions()
    kept.update(a_snapshot(*pods_, *(a_tied_claim(name, count, ROOT) for name, count in wanted.items())), Selectors())

    assert [tie.devices for tie in kept.ties(Selectors())] == [*range(8, 16)]

    few = a_pod("few", claim="few", cpu="1"), a_tied_claim("few", 2, ROOT)
    many = a_pod("many", claim="many", cpu="1"), a_claim("many", {"count": 400})
    kept.update(a_snapshot(*few, *many), Selectors())
    assert kept.ties(Selectors()) == ()


def test_claims_that_tie_partitions_take_no_place_of_others() -> None:
    """Whatever their number, and though they ask for more devices: no partition is in a group."""
    wanted = {f"c{count}": count for count in range(3, 12)}
    partitions = [
        a_tied_claim(name, count, {"matchAttribute": "gpu/parent"}, profile="1g") for name, count in wanted.items()
    ]
    whole = a_tied_claim("whole", 2, ROOT, profile="card")
    snapshot = a_snapshot(*(a_pod(one.meta.name, claim=one.meta.name, cpu="1") for one in (whole, *partitions)))
    spec = {"driver": "gpu", "nodeName": "b", "pool": {"name": "b", "generation": 1, "resourceSliceCount": 1}}
    attributes = {"profile": {"string": "card"}, ROOT["matchAttribute"]: {"string": "x"}}
    cards = [{"name": "gpu-0", "attributes": attributes}]
    slice_ = devices.decode_slice({"metadata": {"name": "b"}, "spec": {**spec, "devices": cards}})
    kept, selectors = DeviceCompanions(), Selectors()
    claims_ = {one.meta.key: one for one in (whole, *partitions)}
    kept.update(replace(snapshot, claims=claims_, slices={**a_card(), "b": slice_}), selectors)

    ties = kept.ties(selectors)

    assert len(ties) == 8
    assert [tie.devices for tie in ties if tie.attribute == ROOT["matchAttribute"]] == [2]


NOT_TIED: dict[str, Claim] = {
    "a single device": a_tied_claim("a", 1, ROOT),
    "devices that must differ": a_tied_claim("a", 4, {"distinctAttribute": "gpu/numa"}),
    "a constraint on the request for another class": a_tied_claim("a", 4, {**ROOT, "requests": ["nic"]}),
    "claims without constraints": a_claim("a", {"count": 4}),
}


@pytest.mark.parametrize("claim", NOT_TIED.values(), ids=NOT_TIED)
def test_no_kind_of_use_is(claim: Claim) -> None:
    kept = DeviceCompanions()
    kept.update(a_snapshot(a_pod("a", claim="a", cpu="1"), claim), Selectors())

    assert kept.ties(Selectors()) == ()


def test_models_that_are_named_more_often_than_there_are_devices_of_them_are_kinds_of_use() -> None:
    """By the class's selectors and the request's, whatever part of a device is asked for."""
    t4 = "device.attributes['gpu'].model == 't4'"
    spec = {"driver": "gpu", "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}
    shown = [
        {"name": f"gpu-{at}", "attributes": {"model": {"string": model}}, **SHARED}
        for at, model in enumerate(["t4", "g2", "g2", "g2"])
    ]
    slice_ = devices.decode_slice({"metadata": {"name": "a"}, "spec": {**spec, "devices": shown}})
    gpu = devices.decode_class(
        {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu'"}}]}}
    )
    half = a_claim("half", {"capacity": {"requests": {"memory": "40"}}, "selectors": [{"cel": {"expression": t4}}]})
    snapshot = a_snapshot(a_pod("a", claim="half", cpu="1"), half, a_pod("b", claim="b", cpu="1"), a_claim("b", {}))
    snapshot = replace(snapshot, slices={"a": slice_}, classes={"gpu": gpu})
    kept, selectors = DeviceCompanions(), Selectors()
    kept.update(snapshot, selectors)

    any_, named = ("device.driver == 'gpu'",), ("device.driver == 'gpu'", t4)
    assert kept.kinds_of_use(selectors) == (Selection(any_, 11), Selection(named, 21))

    kept.update(replace(snapshot, claims={"ml/b": snapshot.claims["ml/b"]}), selectors)
    assert kept.kinds_of_use(selectors) == ()
