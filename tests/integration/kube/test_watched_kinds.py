"""Which kinds are watched, and where: not served, served in an older version, forbidden, or coming to be served."""

import asyncio
from collections.abc import Iterable

import structlog

from admission.kube.cache import reflector, watched_resources
from admission.kube.client.connection import Connection
from tests.integration.kube.fake_api import FakeApi, status
from tests.integration.kube.watches import RULES, SOON, a_rule, absent, until, watched


async def test_every_kind_is_asked_for_at_its_place(api: FakeApi, connection: Connection) -> None:
    api.put(watched_resources.POLICIES.path, {"metadata": {"name": "p", "labels": {"a": "b"}}})
    api.put(watched_resources.NODES.path, {"metadata": {"name": "n"}})

    async with watched(connection, *watched_resources.ALL) as store:
        assert store.policies["p"].meta.labels == {"a": "b"}
        assert set(store.snapshot().nodes) == {"n"}

    assert listed(api) == {
        *("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", "/apis/batch/v1/jobs"),
        *(f"/apis/resource.k8s.io/v1/resource{kind}" for kind in ("claims", "claimtemplates", "slices")),
        *("/apis/resource.k8s.io/v1/deviceclasses", "/apis/resource.k8s.io/v1/devicetaintrules"),
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        *(f"/apis/muster.dev/v1alpha1/{kind}" for kind in ("queues", "meters", "gangs", "claimpolicies", "nodeshapes")),
        "/apis/autoscaling.x-k8s.io/v1/provisioningrequests",
        "/apis/karpenter.sh/v1/nodepools",
        *(kind.path for kind in (*watched_resources.PARENTS, *watched_resources.STORAGE)),
    }


async def test_without_provisioning_requests_the_store_is_synced_and_says_why_there_are_none(
    api: FakeApi, connection: Connection
) -> None:
    absent(api, watched_resources.REQUESTS.path)
    async with watched(connection, watched_resources.REQUESTS) as store:
        snapshot = store.snapshot()
        assert snapshot.provisioning_requests == {}
        assert snapshot.unwatched == {"ProvisioningRequest.autoscaling.x-k8s.io": "the API server does not serve it"}


async def test_a_kind_that_is_served_in_an_older_version_is_read_there(api: FakeApi, connection: Connection) -> None:
    absent(api, RULES[0])
    api.put(RULES[1], a_rule("first"))
    async with watched(connection, watched_resources.TAINT_RULES) as store:
        assert set(store.snapshot().taint_rules) == {"first"}

        api.put(RULES[1], a_rule("second"))
        await until(store, lambda: set(store.snapshot().taint_rules) == {"first", "second"})

    watches = [request.path for request in api.asked if request.query.get("watch")]
    assert watches == [RULES[1]]


async def test_a_kind_that_is_not_served_is_empty_and_no_trouble(api: FakeApi, connection: Connection) -> None:
    absent(api, *RULES)
    with structlog.testing.capture_logs() as logs:
        async with watched(connection, watched_resources.TAINT_RULES, timing=SOON) as store:
            assert store.snapshot().taint_rules == {}
            async with asyncio.timeout(30):
                while api.count("GET", RULES[-1]) < 4:
                    await api.next_request()
            assert store.troubles() == {}

    assert [(log["log_level"], log["event"]) for log in logs] == [
        ("info", "the API server does not serve this kind")
    ], "it is said once, however often it is looked for"
    assert not any(request.query.get("watch") for request in api.asked)


async def test_a_kind_that_comes_to_be_served_is_watched_from_then_on(api: FakeApi, connection: Connection) -> None:
    absent(api, *RULES)
    async with watched(connection, watched_resources.TAINT_RULES, timing=SOON) as store:
        assert store.synced
        api.put(RULES[0], a_rule("a"))
        api.answers.clear()
        await until(store, lambda: set(store.snapshot().taint_rules) == {"a"})

        api.delete(RULES[0], "a")
        await until(store, lambda: store.snapshot().taint_rules == {})


async def test_a_kind_that_is_served_no_more_is_empty(api: FakeApi, connection: Connection) -> None:
    api.put(RULES[0], a_rule("a"))
    async with watched(connection, watched_resources.TAINT_RULES, timing=SOON) as store:
        async with asyncio.timeout(30):
            while not api.count("GET", RULES[0], watch="true"):
                await api.next_request()
        absent(api, *RULES)
        api.break_watches()
        await until(store, lambda: store.snapshot().taint_rules == {})


JOBSETS = next(kind for kind in watched_resources.PARENTS if kind.name == "JobSet")
REFUSAL = status(403, "Forbidden", 'User "muster" cannot list resource "jobsets" in API group "jobset.x-k8s.io"')


async def test_a_kind_of_workload_that_may_not_be_listed_is_reported_and_other_kinds_work(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("GET", JOBSETS.path, 403, REFUSAL)
    api.put(JOBSETS.path, {"metadata": {"name": "train", "namespace": "team", "uid": "js-1"}, "spec": {}})
    async with watched(connection, watched_resources.QUEUES, JOBSETS, timing=SOON) as store:
        await until(store, lambda: store.snapshot().unwatched != {})
        (why,) = store.snapshot().unwatched.values()
        assert "grant verb list on resource jobsets of API group jobset.x-k8s.io in the whole cluster" in why

        # The role is granted.
        await until(store, lambda: set(store.snapshot().parents[JOBSETS.workload_kind]) == {"js-1"})
        assert store.snapshot().unwatched == {}
        assert store.troubles() == {}


async def test_storage_that_may_not_be_read_keeps_nothing_from_working(api: FakeApi, connection: Connection) -> None:
    """As where an older role is left in place: volumes are then not judged."""
    classes = next(kind for kind in watched_resources.STORAGE if kind.storage == "classes")
    api.answer("GET", classes.path, 403, REFUSAL)
    async with watched(connection, watched_resources.QUEUES, classes, timing=SOON) as store:
        (table,) = (table for kind, table in store.tables.items() if kind is classes)
        assert table.unavailable
        # Nobody is woken by storage while no pod needs it.
        async with asyncio.timeout(30):
            while table.unavailable:
                await api.next_request()
        assert store.troubles() == {}


async def test_a_forbidden_list_of_a_starting_api_server_is_tried_again(api: FakeApi, connection: Connection) -> None:
    """It refuses everything for a moment, and whose pods belong to a JobSet would be told to grant a role."""
    api.put(JOBSETS.path, {"metadata": {"name": "train", "namespace": "team", "uid": "js-1"}, "spec": {}})
    async with watched(connection, JOBSETS) as store:
        (table,) = store.tables.values()
        for _ in range(reflector.REFUSALS_UNTIL_LOST - 1):
            api.answer("GET", JOBSETS.path, 403, REFUSAL)
        api.break_watches()
        async with asyncio.timeout(30):
            while table.lists < 2:
                assert store.snapshot().unwatched == {}
                assert set(store.snapshot().parents[JOBSETS.workload_kind]) == {"js-1"}
                await api.next_request()
        assert store.snapshot().unwatched == {}

        # But a role that was taken away is missed.
        for _ in range(reflector.REFUSALS_UNTIL_LOST):
            api.answer("GET", JOBSETS.path, 403, REFUSAL)
        api.break_watches()
        await until(store, lambda: store.snapshot().unwatched != {})
        await until(store, lambda: store.snapshot().unwatched == {})


async def test_kinds_that_gangs_are_read_from_need_not_be_served(api: FakeApi, connection: Connection) -> None:
    absent(api, *JOBSETS.paths)
    with structlog.testing.capture_logs() as logs:
        async with watched(connection, JOBSETS, timing=SOON) as store:
            assert store.snapshot().unwatched == {"JobSet.jobset.x-k8s.io": "the API server does not serve it"}
    assert logs == [], "most of these kinds are not served, which is nothing to tell"

    async with watched(connection, JOBSETS, timing=SOON) as store:
        api.put(JOBSETS.path, {"metadata": {"name": "train", "namespace": "team", "uid": "js-1"}, "spec": {}})
        api.answers.clear()
        await until(store, lambda: store.snapshot().unwatched == {})
        assert set(store.snapshot().parents[JOBSETS.workload_kind]) == {"js-1"}


async def test_a_webhook_does_not_watch_nodes_and_pods(api: FakeApi, connection: Connection) -> None:
    async with watched(connection, *watched_resources.ADMISSION) as store:
        assert store.synced

    assert not listed(api) & {"/api/v1/pods", "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices"}


def listed(api: FakeApi) -> set[str]:
    requests: Iterable[str] = (request.path for request in api.asked if "limit" in request.query)
    return set(requests)
