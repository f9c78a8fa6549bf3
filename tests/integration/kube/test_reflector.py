"""Watching against a fake API server: what breaks, and that the store is true again afterwards."""

import asyncio
from typing import Any

import pytest
import structlog

from admission.api.kubernetes import pods
from admission.api.kubernetes.meta import Meta
from admission.api.values.names import Uid
from admission.errors import ClusterUnavailableError
from admission.kube.cache import reflector, watched_resources
from admission.kube.cache.reflector import WatchTiming
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.kube.client.connection import Connection, ParsedFields
from tests.integration.kube.fake_api import FakeApi, status
from tests.integration.kube.watches import RULES, a_rule, absent, until, watched
from tests.unit.kube.builders import PODS, a_pod

QUEUES = watched_resources.QUEUES.path


def a_queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


async def asked(api: FakeApi, times: int, **query: str) -> None:
    """Wait until pods were asked for so often."""
    async with asyncio.timeout(30):
        while api.count("GET", PODS, **query) < times:
            await api.next_request()


def names_in(store: Store) -> set[str]:
    return {pod.meta.name for pod in store.snapshot().pods.values()}


async def test_everything_is_listed_in_pages_and_then_watched(api: FakeApi, connection: Connection) -> None:
    for name in "abcde":
        api.put(PODS, a_pod(name))

    async with watched(connection) as store:
        assert names_in(store) == set("abcde")
        assert api.count("GET", PODS, limit="2") == 3

        api.put(PODS, a_pod("f"))
        api.delete(PODS, "team/a")
        await until(store, lambda: names_in(store) == set("bcdef"))

    watch = next(request for request in api.asked if request.query.get("watch") and request.path == PODS)
    assert watch.query["allowWatchBookmarks"] == "true"
    assert watch.query["timeoutSeconds"] == "30"


async def test_nothing_is_synced_before_every_kind_is_listed(api: FakeApi, connection: Connection) -> None:
    for _ in range(1000):
        api.answer("GET", QUEUES, 404, "404 page not found")

    async with watched(connection, synced=False) as store:
        with pytest.raises(ClusterUnavailableError, match=r"queues\.muster\.dev \(list queues: 404 page not found"):
            await store.wait_synced(within=1)
        assert set(store.troubles()) == {"queues.muster.dev"}

        api.answers.clear()
        await store.wait_synced(within=30)
        assert store.synced
        await asyncio.sleep(0.05)
        assert store.troubles() == {}


async def test_a_lost_connection_resumes_from_where_it_was(api: FakeApi, connection: Connection) -> None:
    api.put(PODS, a_pod("a"))
    async with watched(connection, watched_resources.PODS) as store:
        await asked(api, 1, watch="true")

        api.break_watches()
        api.put(PODS, a_pod("b"))
        await until(store, lambda: names_in(store) == {"a", "b"})

    assert api.count("GET", PODS, limit="2") == 1, "nothing was listed again"


async def test_an_api_server_that_restarts_loses_nothing(api: FakeApi, connection: Connection) -> None:
    api.put(PODS, a_pod("a"))
    api.put(PODS, a_pod("b"))
    async with watched(connection) as store:
        await api.stop()
        api.delete(PODS, "team/a")
        api.put(PODS, a_pod("c"))
        await asyncio.sleep(0.05)
        assert names_in(store) == {"a", "b"}, "what was seen last stays while nobody answers"

        await api.start()
        await until(store, lambda: names_in(store) == {"b", "c"})


async def test_a_version_that_is_too_old_is_listed_again_and_what_is_gone_is_removed(
    api: FakeApi, connection: Connection
) -> None:
    api.put(PODS, a_pod("a"))
    api.put(PODS, a_pod("b"))
    async with watched(connection, watched_resources.PODS) as store:
        before = store.snapshot().pods
        with store.subscribe() as changed:
            await api.stop()
            gone = next(uid for uid, pod in before.items() if pod.meta.name == "a")
            api.delete(PODS, "team/a")
            api.compact()
            await api.start()

            async with asyncio.timeout(30):
                assert await changed.next() == {watched_resources.PODS: {gone}}, "what stayed the same is no change"
        assert names_in(store) == {"b"}


@pytest.mark.parametrize(
    "logged",
    [status(410, "Expired", "too old"), status(500, "InternalError", "etcd is on fire"), {"nonsense": True}, {}],
    ids=["expired", "any other error", "not a Status", "nothing"],
)
async def test_an_error_in_the_stream_has_everything_listed_again(
    api: FakeApi, connection: Connection, logged: dict[str, Any]
) -> None:
    async with watched(connection, watched_resources.PODS) as store:
        await asked(api, 1, watch="true")
        api.event(PODS, "ERROR", logged)
        await asked(api, 2, limit="2")

        api.put(PODS, a_pod("a"))
        await until(store, lambda: names_in(store) == {"a"})


async def test_pages_that_expire_are_read_again_as_a_whole(api: FakeApi, connection: Connection) -> None:
    for name in "abc":
        api.put(PODS, a_pod(name))
    api.answer("GET", PODS, 200, {"metadata": {"resourceVersion": "1", "continue": "2"}, "items": [a_pod("x")]})
    api.answer("GET", PODS, 410, status(410, "Expired", "the continue token is too old"))

    async with watched(connection, watched_resources.PODS) as store:
        assert names_in(store) == set("abc")
        assert api.count("GET", PODS, limit="2") == 2


async def test_a_bookmark_moves_the_version_that_is_resumed_from(api: FakeApi, connection: Connection) -> None:
    async with watched(connection, watched_resources.PODS):
        await asked(api, 1, watch="true")
        api.event(PODS, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "900"}})
        await asyncio.sleep(0.05)
        api.break_watches()
        await asked(api, 2, watch="true")

    assert api.asked[-1].query["resourceVersion"] == "900"


async def test_an_object_that_cannot_be_read_is_set_aside_until_it_can(api: FakeApi, connection: Connection) -> None:
    api.put(QUEUES, a_queue("good"))
    api.put(QUEUES, a_queue("bad", quotas=[{"meter": "gpus", "nominal": "many"}]))
    api.put(QUEUES, a_queue("worse", quotas=[{"meter": []}]))
    bad = ("Queue", "bad")

    async with watched(connection, watched_resources.QUEUES) as store:
        snapshot = store.snapshot()
        assert set(snapshot.queues) == {"good"}
        assert set(snapshot.malformed) == {bad, ("Queue", "worse")}
        assert snapshot.malformed[bad].problems[0].field == "spec.quotas[0].nominal"

        api.put(QUEUES, a_queue("bad", quotas=[{"meter": "gpus", "nominal": "8"}]))
        api.delete(QUEUES, "worse")
        await until(store, lambda: set(store.snapshot().queues) == {"good", "bad"} and not store.snapshot().malformed)

        api.put(QUEUES, a_queue("good", placement="Nowhere"))
        await until(store, lambda: set(store.snapshot().queues) == {"bad"})
        assert set(store.snapshot().malformed) == {("Queue", "good")}


async def test_a_decoder_that_breaks_takes_nothing_else_down(api: FakeApi, connection: Connection) -> None:
    def breaks(obj: Any) -> Meta:
        if obj["metadata"]["name"] == "bad":
            raise KeyError("spec")
        return Meta(name=obj["metadata"]["name"])

    kind = Kind(name="Queue", group="muster.dev", version="v1alpha1", plural="queues", field="queues", decode=breaks)
    api.put(QUEUES, a_queue("bad"))
    api.put(QUEUES, a_queue("good"))

    async with watched(connection, kind) as store:
        assert list(store.snapshot().queues) == ["good"]
        assert "KeyError" in str(store.snapshot().malformed["Queue", "bad"])


async def test_nonsense_in_the_stream_is_asked_for_again(api: FakeApi, connection: Connection) -> None:
    broken = '{"type":"ADDED","object":{"metadata":{"na\n'
    api.put(PODS, a_pod("a"))
    async with watched(connection, watched_resources.PODS, synced=False) as store:
        await asked(api, 1, limit="2")
        api.answer("GET", PODS, 200, broken)
        api.break_watches()
        await asyncio.sleep(0.05)
        api.put(PODS, a_pod("b"))
        await until(store, lambda: names_in(store) == {"a", "b"})


async def test_a_silent_watch_is_taken_for_dead(api: FakeApi, connection: Connection) -> None:
    quiet = WatchTiming(shortest_watch=30, longest_watch=30, quiet=0.05, base=0.01, longest_pause=0.02)

    async with watched(connection, watched_resources.PODS, timing=quiet):
        await asked(api, 3, watch="true")

    assert api.count("GET", PODS, limit="500") == 1


async def test_a_role_that_is_missing_is_waited_for(api: FakeApi, connection: Connection) -> None:
    refusal = status(403, "Forbidden", 'User "muster" cannot list resource "pods" in API group ""')
    api.answer("GET", PODS, 403, refusal)
    with structlog.testing.capture_logs() as logs:
        async with watched(connection, watched_resources.PODS) as store:
            assert store.synced
    assert "grant verb list on resource pods" in logs[0]["error"]
    assert logs[0]["log_level"] == "warning"


async def test_a_pod_recreated_under_its_name_is_another_pod(api: FakeApi, connection: Connection) -> None:
    first = api.put(PODS, a_pod("a"))["metadata"]["uid"]
    async with watched(connection, watched_resources.PODS) as store:
        await asked(api, 1, watch="true")
        api.delete(PODS, "team/a")
        second = api.put(PODS, a_pod("a"))["metadata"]["uid"]
        await until(store, lambda: Uid(second) in store.snapshot().pods)
        assert Uid(first) not in store.snapshot().pods


async def test_a_new_leader_waits_until_its_watches_show_what_there_is(api: FakeApi, connection: Connection) -> None:
    api.put(PODS, a_pod("known"))
    async with watched(connection, watched_resources.PODS) as store:
        await reflector.caught_up(connection, store, (watched_resources.PODS,), within=30)

    # Nobody feeds the store any more: it stays behind for ever.
    api.put(PODS, a_pod("new"))
    with pytest.raises(ClusterUnavailableError, match="do not show all"):
        await reflector.caught_up(connection, store, (watched_resources.PODS,), within=0.3)


async def test_to_see_whether_the_watches_have_caught_up_only_versions_are_read(
    api: FakeApi, connection: Connection
) -> None:
    api.put(PODS, a_pod("a"))
    page = [page async for page in connection.pages(PODS, limit=10, parsed_fields=ParsedFields.IDENTITY)]

    ((head,),) = [one["items"] for one in page]
    assert head.keys() == {"metadata"}
    assert head["metadata"].keys() <= {"name", "namespace", "uid", "resourceVersion"}
    assert "as=PartialObjectMetadataList;" in api.last("GET", PODS).accept


async def test_of_a_collection_nothing_is_kept_that_no_decoder_reads(api: FakeApi, connection: Connection) -> None:
    pod = a_pod("a")
    pod["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]
    api.put(PODS, pod)
    ((kept,),) = [page["items"] async for page in connection.pages(PODS, limit=10, parsed_fields=ParsedFields.DECODED)]
    ((whole,),) = [page["items"] async for page in connection.pages(PODS, limit=10)]

    assert "managedFields" not in kept["metadata"]
    assert pods.decode(kept) == pods.decode(whole)


async def test_an_object_of_the_wrong_shape_does_not_hide_the_others(api: FakeApi, connection: Connection) -> None:
    api.put(PODS, a_pod("a"))
    api.put(PODS, a_pod("b") | {"spec": "none"})
    labelled = a_pod("c")
    labelled["metadata"]["ownerReferences"] = 7
    api.put(PODS, labelled)
    async with watched(connection, watched_resources.PODS) as store:
        snapshot = store.snapshot()

    assert [pod.meta.name for pod in snapshot.pods.values()] == ["a"]
    assert sorted(key for _, key in snapshot.malformed) == ["team/b", "team/c"]


async def test_an_object_in_an_older_version_is_behind_too(api: FakeApi, connection: Connection) -> None:
    api.put(PODS, a_pod("a"))
    async with watched(connection, watched_resources.PODS) as store:
        pass
    api.put(PODS, a_pod("a", gates=()))

    with pytest.raises(ClusterUnavailableError):
        await reflector.caught_up(connection, store, (watched_resources.PODS,), within=0.3)


async def test_a_kind_that_is_served_in_an_older_version_is_compared_there(
    api: FakeApi, connection: Connection
) -> None:
    absent(api, RULES[0])
    api.put(RULES[1], a_rule("first"))
    async with watched(connection, watched_resources.TAINT_RULES) as store:
        await reflector.caught_up(connection, store, (watched_resources.TAINT_RULES,), within=30)

    api.put(RULES[1], a_rule("second"))
    with pytest.raises(ClusterUnavailableError):
        await reflector.caught_up(connection, store, (watched_resources.TAINT_RULES,), within=0.3)
