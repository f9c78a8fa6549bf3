"""Extended resources of device plugins through whole cycles: on the meters that list them, from grant to end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes import devices, pods as kubernetes_pods
from admission.api.muster import meters
from admission.api.muster.ledger_entries import Holding, Kind
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.simulation import opening_balance
from admission.workloads import gangs
from tests.builders import CLASS, NOON, ClusterBuilder, running
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, kinds, run

Q = QueueName("q")
GPU, NIC = "example.com/gpu", "example.com/nic"


def meter(name: str, *resources: str, sources: tuple[dict[str, Any], ...] = ()) -> meters.Meter:
    spec = {"sources": list(sources), "extendedResources": list(resources)}
    return meters.decode({"metadata": {"name": name, "generation": 1}, "spec": spec})


COUNTED = {"deviceClasses": [CLASS], "count": {}}


class Plugged(ClusterBuilder):
    """A cluster whose meter `gpus` counts devices and an extended resource alike."""

    def __init__(self, *, offered: bool = False) -> None:
        super().__init__()
        self._meters[1] = meter("gpus", GPU, sources=(COUNTED,))
        self._offered = offered

    def plugin(self, name: str, *, devices: int = 0, **resources: int) -> "Plugged":
        """Add a node whose device plugins have so many of `gpu` and `nic`, and which has devices beside."""
        self.node(name, gpus=devices)
        found = self._nodes[-1]
        has = {f"example.com/{resource}": amount for resource, amount in resources.items()}
        self._nodes[-1] = replace(found, allocatable={**(found.allocatable or {}), **has})
        return self

    def asking(self, name: str, *, pods: int = 1, claims: int = 0, init: int = 0, **resources: int) -> "Plugged":
        """Add a Job whose pods ask for so many of `gpu` and `nic`, and have a claim for so many devices."""
        self.job(name, queue="q", pods=pods, gpus=claims)
        wanted = {f"example.com/{resource}": str(amount) for resource, amount in resources.items()}
        first = [{"name": "init", "resources": {"limits": {GPU: str(init)}}}] if init else []
        containers = [{"name": "main", "resources": {"limits": wanted}}]
        body = {"spec": {"containers": containers, "initContainers": first}}
        asked = kubernetes_pods.decode({"metadata": {"name": "-"}, **body})
        for at, pod in enumerate(self._pods):
            if pod.meta.name.startswith(f"{name}-"):
                self._pods[at] = replace(pod, requests=asked.requests, containers=asked.containers)
        return self

    def snapshot(self) -> Snapshot:
        spec = {"extendedResourceName": GPU} if self._offered else {}
        offered = devices.decode_class({"metadata": {"name": CLASS}, "spec": spec})
        return replace(super().snapshot(), classes={CLASS: offered})


def usage(ledger: Ledger, name: MeterName = GPUS) -> tuple[int, int]:
    return ledger.book.usage().get(Q, {}).get(name, (0, 0))


def held_by(ledger: Ledger, name: str, pod: int = 0) -> Mapping[Uid, Holding]:
    """Return what the books have open of one pod of a Job."""
    holdings = ledger.book.placements[GangUid(f"job-{name}")].holdings
    return {uid: holding for uid, holding in holdings.items() if f"{name}-{pod}" in uid}


def plugin_claim(pod: str) -> Uid:
    return names.resources_claim(Uid(f"pod-{pod}"))


async def test_device_plugin_resources_are_reserved_settled_at_binding_and_released_with_the_pod() -> None:
    builder = Plugged().plugin("a", gpu=4).queue("q", gpus=4)
    cluster, ledger = Cluster(builder.asking("train", pods=2, gpu=2).asking("next", gpu=1)), Ledger()
    leader = a_leader(cluster, ledger)

    first = await run(leader)
    assert usage(ledger) == (4, 0)
    assert gang(first, "train").charges == {"gpus": 4}
    hold = gang(first, "next").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUOTA_EXCEEDED
    await run(leader)
    assert usage(ledger) == (4, 0), "let in, and not bound yet"

    started = cluster.schedule(ledger.book)
    await run(leader)
    assert usage(ledger) == (0, 4)
    assert held_by(ledger, "train") == {
        plugin_claim("train-0"): Holding(
            claim_uid=plugin_claim("train-0"),
            claim="team/train-0",
            devices=(),
            charge={GPUS: 2},
            settled=True,
            classes={GPU: 2},
        )
    }
    cluster.finish(started[:1])
    await run(leader)

    assert usage(ledger) == (1, 2)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE, Kind.RESERVE]


async def test_pods_of_plugins_and_of_devices_draw_on_one_quota_and_neither_twice() -> None:
    builder = Plugged(offered=True).plugin("a", gpu=2).node("b", gpus=2).queue("q", gpus=3)
    builder.asking("one", gpu=2).asking("two", gpu=1, pods=1).asking("three", gpu=1)
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)

    first = await run(leader)
    assert usage(ledger) == (3, 0)
    hold = gang(first, "three").hold
    assert hold is not None
    assert hold.reason == HoldReason.QUOTA_EXCEEDED
    assert dict(cluster.opened) == {"one-0": "b", "two-0": "a"}
    cluster.schedule(ledger.book)
    await run(leader)

    assert usage(ledger) == (0, 3)
    (devices,) = held_by(ledger, "one").values()
    (plugged,) = held_by(ledger, "two").values()
    assert (len(devices.devices), devices.charge[GPUS], devices.classes) == (2, 2, {CLASS: 2})
    assert (plugged.devices, plugged.charge, plugged.classes) == ((), {GPUS: 1}, {GPU: 1})


async def test_a_device_plugin_is_taken_where_devices_cost_too_much() -> None:
    builder = Plugged(offered=True).plugin("a", gpu=1).node("b", gpus=1).queue("q", gpus=1).asking("train", gpu=1)
    dear = {"deviceClasses": [CLASS], "expression": {"cel": "5"}}
    builder._meters[1] = meter("gpus", GPU, sources=(dear,))
    cluster, ledger = Cluster(builder), Ledger()

    await run(a_leader(cluster, ledger))

    assert dict(cluster.opened) == {"train-0": "a"}
    assert usage(ledger) == (1, 0)


ASKS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "every resource on the meters that list it": ({"gpu": 2, "nic": 3}, {"gpus": 2, "parts": 5}),
    "an init container that needs more counts for the whole pod": ({"gpu": 1, "init": 4}, {"gpus": 4, "parts": 4}),
    "a resource that no meter lists is free": ({"rdma": 8}, {}),
    "a claim beside it is charged as ever": ({"nic": 1, "claims": 1}, {"claims": 1, "gpus": 1, "parts": 1}),
}


@pytest.mark.parametrize(("asked", "charges"), ASKS.values(), ids=ASKS)
async def test_a_pod_is_charged_as_kube_scheduler_counts(asked: dict[str, int], charges: dict[str, int]) -> None:
    builder = Plugged().plugin("a", devices=1, gpu=8, nic=8, rdma=8).asking("train", **asked)
    builder.queue("q", quotas=[{"meter": name, "nominal": "100"} for name in ("claims", "gpus", "parts")])
    builder._meters.append(meter("parts", GPU, NIC))
    cluster, ledger = Cluster(builder), Ledger()

    result = await run(a_leader(cluster, ledger))

    assert gang(result, "train").charges == charges
    assert dict(cluster.opened) == {"train-0": "a"}


async def test_a_new_leader_settles_device_plugin_holdings_of_a_dead_leader_once() -> None:
    builder = Plugged().plugin("a", gpu=2).queue("q", gpus=2).asking("train", gpu=2)
    cluster, ledger = Cluster(builder), Ledger()
    await run(a_leader(cluster, ledger))
    cluster.schedule(ledger.book)

    for _ in range(3):
        await run(a_leader(cluster, ledger))

    assert usage(ledger) == (0, 2)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE]


async def test_a_pod_deleted_before_its_binding_releases_its_device_plugin_reservation() -> None:
    cluster, ledger = Cluster(Plugged().plugin("a", gpu=2).queue("q", gpus=2).asking("train", gpu=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    del cluster._pods[Uid("pod-train-0")]

    await run(leader)
    await run(leader)

    assert usage(ledger) == (0, 0)


async def test_a_meter_that_is_gone_by_the_binding_stays_charged_as_planned() -> None:
    cluster, ledger = Cluster(Plugged().plugin("a", gpu=2).queue("q", gpus=2).asking("train", gpu=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(ledger.book)
    cluster._rest = replace(cluster._rest, meters={})

    await run(leader)
    assert usage(ledger) == (0, 2)
    cluster.finish(started)
    await run(leader)

    assert usage(ledger) == (0, 0)


def test_the_opening_balance_charges_running_pods_by_device_plugin_or_claim() -> None:
    builder = Plugged(offered=True).plugin("a", gpu=4).queue("q", gpus=4).asking("train", pods=2, gpu=2)
    snapshot = builder.snapshot()
    snapshot = replace(snapshot, pods={uid: running(pod, "a") for uid, pod in snapshot.pods.items()})

    entries = opening_balance.entries(gangs.groups(snapshot, {}), snapshot, at=NOON, actor="test")

    book = Book.replay(entries)
    assert book.usage()[Q][GPUS] == (0, 4)
    holdings = book.placements[GangUid("job-train")].holdings
    assert {uid: holding.classes for uid, holding in holdings.items()} == {
        plugin_claim(f"train-{at}"): {GPU: 2} for at in range(2)
    }


async def test_all_entries_of_a_gang_name_the_user_who_made_the_workload() -> None:
    builder = Plugged().plugin("a", gpu=2).queue("q", gpus=2).asking("train", gpu=2)
    builder._pods = [replace(pod, meta=replace(pod.meta, annotations={names.USER: "alice"})) for pod in builder._pods]
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)

    await run(leader)
    cluster.finish(cluster.schedule(ledger.book))
    await run(leader)
    await run(leader)

    told = {entry.kind: entry.user for entry in ledger.entries if entry.kind is not Kind.GRANT}
    assert told == {Kind.RESERVE: "alice", Kind.SETTLE: "alice", Kind.RELEASE: "alice"}
    assert NodeName("a") in {node for _, node in cluster.opened}
