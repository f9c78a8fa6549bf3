import asyncio
import gc
from datetime import UTC, datetime
from typing import Any

import pytest

from admission import heap
from admission.api.values import names
from admission.api.values.names import QueueName, Uid
from admission.errors import ClusterUnavailableError
from admission.kube.cache import dashboard_store, reflector, watched_resources
from admission.kube.cache.store import Store
from tests.unit.kube.builders import a_pod


def listed(store: Store, kind: watched_resources.Kind, *objects: dict[str, Any]) -> None:
    table = store.tables[kind]
    table.keep_only({table.put(obj) for obj in objects})
    store.note_listed()


def synced(store: Store) -> bool:
    return store.synced


def known(name: str, version: str = "1") -> dict[str, Any]:
    obj = a_pod(name)
    obj["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
    return obj


def a_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": "1"}}


def test_a_snapshot_never_changes() -> None:
    store = Store((watched_resources.PODS,))
    listed(store, watched_resources.PODS, known("a"))
    before = store.snapshot()

    store.tables[watched_resources.PODS].put(known("b"))
    store.tables[watched_resources.PODS].drop(known("a"))

    assert set(before.pods) == {"uid-a"}
    assert set(store.snapshot().pods) == {"uid-b"}


def test_a_snapshot_copies_only_the_kinds_that_changed() -> None:
    store = Store((watched_resources.PODS, watched_resources.NODES))
    listed(store, watched_resources.PODS, known("a"))
    listed(store, watched_resources.NODES, a_node("n"))
    before = store.snapshot()
    assert store.snapshot() is before, "nothing changed"

    store.tables[watched_resources.PODS].put(known("b"))

    after = store.snapshot()
    assert after.nodes is before.nodes
    assert after.pods is not before.pods


def test_a_version_that_is_known_is_no_change() -> None:
    store = Store((watched_resources.PODS,))
    listed(store, watched_resources.PODS, known("a"))
    before = store.snapshot()

    listed(store, watched_resources.PODS, known("a"))

    assert store.snapshot() is before


@pytest.mark.parametrize("kind", dashboard_store.WATCHED, ids=str)
def test_the_dashboard_sees_an_object_again(kind: watched_resources.Kind) -> None:
    table = Store(dashboard_store.WATCHED).tables[kind]
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    for version in "12":
        table.put({"metadata": {"name": "a", "namespace": "team", "resourceVersion": version}, "spec": spec})
        assert len(table) == 1


def test_an_object_without_a_name_is_ignored() -> None:
    store = Store((watched_resources.PODS,))

    assert store.tables[watched_resources.PODS].put({"metadata": None}) == ""
    store.tables[watched_resources.PODS].drop({})

    assert store.snapshot().pods == {}


def test_a_kind_that_is_not_watched_is_empty_and_does_not_delay_syncing() -> None:
    store = Store((watched_resources.PODS,))
    assert not synced(store)

    listed(store, watched_resources.PODS)

    assert synced(store)
    assert store.snapshot().nodes == {}
    assert store.policies == {}


def test_an_unreadable_queue_is_known_to_be_being_deleted() -> None:
    store = Store((watched_resources.QUEUES,))
    ending = {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["muster.dev/in-use"]}
    spec = {"quotas": [{"meter": "gpus", "nominal": "-1"}]}
    obj = {"metadata": {"name": "q", "resourceVersion": "1", **ending}, "spec": spec}
    listed(store, watched_resources.QUEUES, obj)

    snapshot = store.snapshot()

    assert snapshot.queues == {}
    unread = snapshot.unread_queues[QueueName("q")]
    assert (unread.deleted, unread.finalizers) == (datetime(2026, 11, 21, 12, tzinfo=UTC), ("muster.dev/in-use",))
    store.tables[watched_resources.QUEUES].drop(obj)
    assert store.snapshot().unread_queues == {}


async def test_each_subscriber_gets_the_changes_since_its_last_request() -> None:
    store = Store((watched_resources.PODS, watched_resources.NODES))
    with store.subscribe() as everything, store.subscribe(watched_resources.NODES) as nodes:
        store.tables[watched_resources.PODS].put(known("a"))
        store.tables[watched_resources.PODS].put(known("a", "2"))
        store.tables[watched_resources.NODES].put(a_node("n"))
        assert await everything.next() == {watched_resources.PODS: {"uid-a"}, watched_resources.NODES: {"n"}}

        store.tables[watched_resources.PODS].drop(known("a"))
        assert await everything.next() == {watched_resources.PODS: {"uid-a"}}
        assert await nodes.next() == {watched_resources.NODES: {"n"}}

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await nodes.next()


async def test_no_subscriber_is_woken_by_a_change_in_fields_that_are_not_read() -> None:
    """A heartbeat in a node's status, say. The version counts all the same: whoever writes next names it."""
    store = Store((watched_resources.PODS,))
    listed(store, watched_resources.PODS, known("a"))
    pods = store.tables[watched_resources.PODS]

    with store.subscribe() as changed:
        pods.put(known("a", version="2") | {"status": {"conditions": [{"type": "Seen", "status": "True"}]}})
        assert store.snapshot().pods[Uid("uid-a")].meta.resource_version == "2"
        pods.put(known("b"))
        assert await changed.next() == {watched_resources.PODS: {"uid-b"}}

        pods.put(known("a", version="3") | {"status": {"phase": "Running"}})
        assert await changed.next() == {watched_resources.PODS: {"uid-a"}}


def test_a_stored_object_stays_the_same_where_a_write_changes_no_field_that_is_read() -> None:
    store = Store((watched_resources.PODS, watched_resources.NODES))
    listed(store, watched_resources.PODS, known("bound") | {"spec": {"nodeName": "n"}}, known("waits"))
    listed(store, watched_resources.NODES, {"metadata": {"name": "n", "resourceVersion": "1"}})
    before = store.snapshot()

    seen = {"status": {"conditions": [{"type": "Seen", "status": "True"}]}}
    store.tables[watched_resources.PODS].put(known("bound", version="2") | {"spec": {"nodeName": "n"}} | seen)
    store.tables[watched_resources.NODES].put({"metadata": {"name": "n", "resourceVersion": "2"}} | seen)
    after = store.snapshot()
    assert (after.pods, after.nodes) == (before.pods, before.nodes)
    assert after.pods is before.pods
    assert after.nodes is before.nodes
    assert not store.tables[watched_resources.PODS].is_behind(known("bound", version="2"))

    # Who waits is written yet, in the version that was seen last.
    store.tables[watched_resources.PODS].put(known("waits", version="2") | seen)
    assert store.snapshot().pods[Uid("uid-waits")].meta.resource_version == "2"


async def test_a_subscriber_is_woken_when_the_store_has_synced() -> None:
    store = Store((watched_resources.PODS,))
    with store.subscribe() as changed:
        listed(store, watched_resources.PODS)
        assert await changed.next() == {}


async def test_waiting_for_a_cluster_that_does_not_come_names_the_kinds() -> None:
    with pytest.raises(ClusterUnavailableError, match=r"pods \(not listed yet\)"):
        await Store((watched_resources.PODS,)).wait_synced(within=0.01)


async def test_garbage_is_looked_for_seldom_only_until_the_cluster_is_read() -> None:
    before, store = gc.get_threshold(), Store((watched_resources.PODS,))
    waiting = asyncio.create_task(reflector.until_synced(store))
    await asyncio.sleep(0)
    assert gc.get_threshold() == heap.GC_THRESHOLDS

    listed(store, watched_resources.PODS, known("a"))
    await waiting
    assert gc.get_threshold() == before


CLAIMS = next(kind for kind in watched_resources.STORAGE if kind.storage == "claims")


def a_claim(name: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": version}, "spec": {}}


def with_a_volume(name: str, *, gate: bool = True, version: str = "1", node: str = "") -> dict[str, Any]:
    obj = known(name, version)
    obj["spec"] |= {
        "nodeName": node,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "schedulingGates": [{"name": names.GATE}] if gate else [],
    }
    return obj


async def test_storage_is_read_only_while_a_pod_with_volumes_waits_behind_its_gate_or_to_be_bound() -> None:
    pods, claims = watched_resources.PODS, CLAIMS
    store = Store((pods, *watched_resources.STORAGE))
    with store.subscribe() as changes:
        listed(store, pods, with_a_volume("bound", gate=False, node="n"))
        for kind in watched_resources.STORAGE:
            listed(store, kind, *([a_claim("data")] if kind is claims else ()))
        assert store.snapshot().storage is None
        await changes.next()
        before = store.snapshot()
        store.tables[claims].put(a_claim("other"))
        assert store.snapshot() is before, "nobody reads it"

        store.tables[pods].put(with_a_volume("waits"))
        storage = store.snapshot().storage
        assert storage is not None
        assert (set(storage.claims), storage.is_whole) == ({"team/data", "team/other"}, True)
        store.tables[pods].put(known("another"))
        assert store.snapshot().storage is storage
        await changes.next()
        store.tables[claims].put(a_claim("third"))
        assert claims in await changes.next()
        assert store.snapshot().storage is not storage

        store.tables[pods].put(with_a_volume("waits", gate=False, version="2"))
        assert store.snapshot().storage is not None, "which volume it gets is still to be seen"
        store.tables[pods].put(with_a_volume("waits", gate=False, version="3", node="n"))
        assert store.snapshot().storage is None


def test_nobody_judges_by_a_part_of_the_storage() -> None:
    store = Store((watched_resources.PODS, *watched_resources.STORAGE))
    listed(store, watched_resources.PODS, with_a_volume("waits"))
    assert store.snapshot().storage is not None

    store.tables[CLAIMS].unavailable = "forbidden"
    store.note_availability(CLAIMS)

    assert store.snapshot().storage is None
