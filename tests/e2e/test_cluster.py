"""The adapters against a real API server, also while it restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission import resources as admission_resources
from admission.api.kubernetes import pods
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Condition, ConditionStatus, Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport, Phase, PlannedClaim, PlannedPod
from admission.api.muster.status_reports import ConditionReport, EventType, MeterUse, Notice, QueueReport
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import EventReason, Hold, HoldReason
from admission.api.values.selectors import LabelSelector, Requirement, Taint
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import ForbiddenError, GoneError, RetryError
from admission.kube import crd_installer
from admission.kube.cache import reflector, watched_resources
from admission.kube.cache.store import Store
from admission.kube.client.connection import ONCE, Connection, PatchKind
from admission.kube.client.credentials import ClusterSelection
from admission.kube.leader_election import Durations, Lease
from admission.kube.server_version import Versions
from admission.kube.webhook_config import namespace_selectors, registration as webhook_config_registration
from admission.kube.webhook_config.client_config import ClientConfig
from admission.kube.webhook_config.registration import Registration
from admission.kube.writers import events as writers_events
from admission.kube.writers.pods import PodWriter
from admission.kube.writers.status import Reporter
from admission.podpolicy.pod_view import MIRROR
from tests.controlplane import ApiError, ControlPlane, building, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import PATIENCE, eventually

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
async def connection(control_plane: ControlPlane) -> AsyncIterator[Connection]:
    async with Connection(ClusterSelection(kubeconfig=control_plane.kubeconfig)) as opened:
        await crd_installer.install(opened, sorted((admission_resources.config() / "crds").glob("*.yaml")))
        yield opened


async def until(store: Store, true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        with store.subscribe() as changed:
            while not true():
                await changed.next()


async def troubled(store: Store, *, is_so: bool) -> None:
    """Wait until some watch has a trouble, or until none has."""
    async with asyncio.timeout(PATIENCE):
        while bool(store.troubles()) is not is_so:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.1)


async def gone(namespace: Namespace, path: str, *, within: float = PATIENCE) -> None:
    async with asyncio.timeout(within):
        while namespace.client.find(path) is not None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)


def made(namespace: Namespace, name: str, *gates: str, **more: Any) -> Pod:
    path = f"/api/v1/namespaces/{namespace.name}/pods"
    return pods.decode(namespace.client.create(path, workloads.pod(name, gates=gates or (names.GATE,), **more)))


def now_is(namespace: Namespace, name: str) -> Any:
    return namespace.client.get(f"/api/v1/namespaces/{namespace.name}/pods/{name}")


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


async def test_the_api_server_says_who_we_are_and_what_it_is(
    connection: Connection, control_plane: ControlPlane
) -> None:
    assert await connection.who_am_i() == "admin"
    assert await connection.version() == tuple(map(int, control_plane.version.split(".")[:2]))


async def test_a_missing_role_is_named(control_plane: ControlPlane) -> None:
    async with Connection(ClusterSelection(kubeconfig=control_plane.kubeconfig_for("bob"))) as bob:
        with pytest.raises(ForbiddenError, match="grant verb list on resource nodes of API group core in the whole"):
            await bob.get("/api/v1/nodes")


async def test_all_kinds_are_watched_through_restarts_of_the_api_server(
    connection: Connection, control_plane: ControlPlane, namespace: Namespace
) -> None:
    store = Store()

    def present() -> set[str]:
        return {pod.meta.name for pod in store.snapshot().pods.values() if pod.meta.namespace == namespace.name}

    async with asyncio.TaskGroup() as group:
        watch = group.create_task(reflector.watch(connection, store), name="watch")
        await store.wait_synced(within=PATIENCE)
        for name in ("a", "b"):
            await asyncio.to_thread(made, namespace, name)
        await until(store, lambda: present() == {"a", "b"})

        for hard in (True, False):
            await asyncio.to_thread(control_plane.stop_program, "kube-apiserver", hard=hard)
            await troubled(store, is_so=True)
            assert present() == {"a", "b"}, "and what was known is kept"
            await asyncio.to_thread(control_plane.start_program, "kube-apiserver")
            await asyncio.to_thread(namespace.client.delete, f"/api/v1/namespaces/{namespace.name}/pods/b")
            await until(store, lambda: present() == {"a"})
            await asyncio.to_thread(made, namespace, "b")
            await until(store, lambda: present() == {"a", "b"})
        await troubled(store, is_so=False)
        watch.cancel()


async def test_one_patch_opens_the_gate_and_pins_the_pod(connection: Connection, namespace: Namespace) -> None:
    plain = made(namespace, "plain")
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    choosy = made(namespace, "choosy", names.GATE, "other/gate", affinity=required({"matchExpressions": [zone]}))

    for pod in (plain, choosy):
        await PodWriter(connection).open_gate(pod, NodeName("n1"))
        await PodWriter(connection).open_gate(pod, NodeName("n1"))

    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    spec = now_is(namespace, "plain")["spec"]
    assert "schedulingGates" not in spec
    assert spec["affinity"] == required({"matchFields": [here]})
    spec = now_is(namespace, "choosy")["spec"]
    assert spec["schedulingGates"] == [{"name": "other/gate"}]
    assert spec["affinity"] == required({"matchExpressions": [zone], "matchFields": [here]})


async def test_an_affinity_that_was_added_meanwhile_is_kept(connection: Connection, namespace: Namespace) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    disk = {"key": "disk", "operator": "Exists"}
    seen = made(namespace, "a", affinity=required({"matchExpressions": [zone]}))
    affinity = {"spec": {"affinity": required({"matchExpressions": [zone, disk]})}}
    namespace.client.merge_patch(f"/api/v1/namespaces/{namespace.name}/pods/a", affinity)

    await PodWriter(connection).open_gate(seen, NodeName("n1"))

    terms = now_is(namespace, "a")["spec"]["affinity"]
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert terms == required({"matchExpressions": [zone, disk], "matchFields": [here]})


async def test_another_pod_of_the_name_is_neither_let_in_nor_evicted(
    connection: Connection, namespace: Namespace
) -> None:
    old = made(namespace, "a")
    namespace.client.delete(f"/api/v1/namespaces/{namespace.name}/pods/a")
    await gone(namespace, f"/api/v1/namespaces/{namespace.name}/pods/a")
    made(namespace, "a")

    with pytest.raises(GoneError, match="another has its name"):
        await PodWriter(connection).open_gate(old, NodeName("n1"))
    await PodWriter(connection).evict(old, "a test")

    still = now_is(namespace, "a")
    assert still["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert "deletionTimestamp" not in still["metadata"]


async def test_a_pod_is_evicted_and_then_gone(connection: Connection, namespace: Namespace) -> None:
    pod = made(namespace, "a")

    await PodWriter(connection).evict(pod, "a test")

    await gone(namespace, f"/api/v1/namespaces/{namespace.name}/pods/a")
    await PodWriter(connection).evict(pod, "a test")
    with pytest.raises(GoneError):
        await PodWriter(connection).open_gate(pod, NodeName("n1"))


def a_report(namespace: Namespace, workload: Owner, **more: Any) -> GangReport:
    values: dict[str, Any] = {"size": 2, "phase": Phase.PENDING, "queue": QueueName("q")} | more
    return GangReport(uid=GangUid(workload.uid), namespace=namespace.name, name="train", workload=workload, **values)


async def test_a_gang_is_made_reported_and_collected_with_its_workload(
    connection: Connection, namespace: Namespace
) -> None:
    pod = made(namespace, "train")
    workload = Owner(api_version="v1", kind="Pod", name="train", uid=pod.meta.uid, controller=True)
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace.name}/gangs/train"
    clock = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n) for n in range(100))
    reporter = Reporter(connection, clock=lambda: next(clock))
    hold = Hold(HoldReason.QUOTA_EXCEEDED, "3 left", {"meter": "gpus", "left": "3", "names": ["a"], "n": 1})
    waiting = a_report(namespace, workload, pods=1, hold=hold, position=1)

    await reporter.gang(waiting)
    first = namespace.client.get(path)
    await reporter.gang(waiting)
    assert namespace.client.get(path)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert first["status"]["hold"]["since"] == "2026-01-01T00:00:00Z"
    assert first["status"]["hold"]["details"] == {"meter": "gpus", "left": "3", "names": ["a"], "n": 1}
    assert first["metadata"]["ownerReferences"][0]["uid"] == pod.meta.uid

    device = RequestDevice(request="gpu", device=DeviceId("gpu.example.com", "n1", "gpu-0"))
    claim = PlannedClaim(uid=Uid("c"), claim=f"{namespace.name}/train-gpu", devices=(device,))
    plan = (PlannedPod(uid=pod.meta.uid, pod=f"{namespace.name}/train", node=NodeName("n1"), claims=(claim,)),)
    admitted = a_report(
        namespace, workload, pods=2, size=3, phase=Phase.ADMITTED, plan=plan, charges={MeterName("gpus"): 2**41},
        placement="Pin", queued_since=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    # A successor knows nothing and finds the times in the object.
    await Reporter(connection, clock=lambda: next(clock)).gang(admitted)
    after = namespace.client.get(path)
    assert after["spec"]["size"] == 3
    assert "hold" not in after["status"]
    assert after["status"]["charges"] == {"gpus": "2Ti"}
    conditions = {c["type"]: c for c in after["status"]["conditions"]}
    assert conditions["Running"]["lastTransitionTime"] == "2026-01-01T00:00:00Z", "its status did not change"
    assert conditions["Admitted"]["lastTransitionTime"] > "2026-01-01T00:00:00Z"

    namespace.client.delete(f"/api/v1/namespaces/{namespace.name}/pods/train")
    # The garbage collector looks every half minute for kinds that are new or gone, and waits for the watches of all.
    await gone(namespace, path, within=2 * PATIENCE)


async def test_queues_and_meters_show_their_status(connection: Connection, control_plane: ControlPlane) -> None:
    client = control_plane.client()
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "reported"}, "spec": {}}
    meter = {
        "apiVersion": names.API_VERSION,
        "kind": "Meter",
        "metadata": {"name": "reported"},
        "spec": {"unit": "GPU", "sources": [{"deviceClasses": ["gpu.example.com"], "count": {}}]},
    }
    client.apply(f"/apis/{names.API_VERSION}/queues/reported", queue)
    client.apply(f"/apis/{names.API_VERSION}/meters/reported", meter)
    good = Condition(type="Active", status=ConditionStatus.TRUE, reason="Active", message="it admits")
    reporter = Reporter(connection)
    use = {MeterName("gpus"): MeterUse(nominal=8, used=2048, pending=3)}

    await reporter.queue(QueueReport(name=QueueName("reported"), generation=1, conditions=(good,), meters=use))
    await reporter.conditions(ConditionReport(plural="meters", name="reported", generation=1, conditions=(good,)))
    await reporter.queue(QueueReport(name=QueueName("nobody")))

    status = client.get(f"/apis/{names.API_VERSION}/queues/reported")["status"]
    assert status["meters"][0] | {"used": "2Ki"} == status["meters"][0]
    assert status["gangs"] == dict.fromkeys(("pending", "reserved", "admitted", "running", "evicted"), 0)
    assert client.get(f"/apis/{names.API_VERSION}/meters/reported")["status"]["observedGeneration"] == 1
    for plural in ("queues", "meters"):
        client.delete(f"/apis/{names.API_VERSION}/{plural}/reported")


async def test_events_are_published_and_repeated_ones_counted(
    connection: Connection, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = made(namespace, "a")
    held = Notice(
        api_version="v1",
        kind="Pod",
        namespace=namespace.name,
        name="a",
        uid=pod.meta.uid,
        type=EventType.NORMAL,
        reason=EventReason.WRITE_FAILED,
        message="é" * 3000,
    )
    reporter = Reporter(connection)

    await reporter.notify(held)
    await reporter.notify(held)
    monkeypatch.setattr(writers_events, "REPEAT_SECONDS", 0)
    await reporter.notify(held)

    events = namespace.client.items(f"/api/v1/namespaces/{namespace.name}/events")
    [event] = [event for event in events if event["reason"] == "WriteFailed"]
    assert event["count"] == 3


async def test_a_lease_passes_from_one_to_the_next_with_a_larger_epoch(connection: Connection) -> None:
    durations = Durations(lease=4, renew=3, retry=0.2)
    first, second = (Lease(connection, namespace="default", name="muster-test", durations=durations) for _ in range(2))
    async with asyncio.timeout(PATIENCE):
        async with first.lead() as term:
            await asyncio.sleep(durations.renew)
            assert term.leads, "it is renewed"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await second._acquire()
        async with second.lead() as after:
            assert after.epoch == term.epoch + 1


async def test_the_lease_of_a_leader_that_was_killed_passes_when_its_time_is_over(connection: Connection) -> None:
    durations = Durations(lease=2, renew=1.5, retry=0.2)
    killed, heir = (Lease(connection, namespace="default", name="muster-test", durations=durations) for _ in range(2))
    term = await killed._acquire()  # and never renewed, nor given back
    began = asyncio.get_running_loop().time()

    async with asyncio.timeout(PATIENCE), heir.lead() as after:
        assert asyncio.get_running_loop().time() - began >= 2
        assert not term.leads
        assert after.epoch == term.epoch + 1


async def test_a_leader_that_cannot_reach_the_api_server_stops_in_time(
    connection: Connection, control_plane: ControlPlane
) -> None:
    durations = Durations(lease=8, renew=2, retry=0.2)
    lease = Lease(connection, namespace="default", name="muster-test", durations=durations)
    async with lease.lead() as term:
        await asyncio.to_thread(control_plane.stop_program, "kube-apiserver", hard=True)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(PATIENCE):
            await term.lost.wait()
        # Its loop may be late, but not by what is between giving up and the end of the lease.
        assert asyncio.get_running_loop().time() - began < durations.lease - durations.retry
        assert not term.leads
    await asyncio.to_thread(control_plane.start_program, "kube-apiserver")
    async with asyncio.timeout(PATIENCE), lease.lead() as again:
        assert again.epoch == term.epoch + 1


@pytest.fixture
async def registered(connection: Connection, namespace: Namespace) -> AsyncIterator[Registration]:
    """The webhooks for one namespace, at an address where nobody listens."""
    by_name = Requirement(key="kubernetes.io/metadata.name", operator="In", values=(namespace.name,))
    registration = Registration(
        client=ClientConfig(authority=b"", url="https://127.0.0.1:9"),
        selectors=(LabelSelector(requirements=(by_name,)),),
        namespace="muster",
        controller="",
    )
    yield registration
    await webhook_config_registration.unregister(connection)
    await webhook_config_registration.unregister(connection)


async def test_the_webhooks_are_registered_and_stale_entries_go(
    connection: Connection, control_plane: ControlPlane, registered: Registration
) -> None:
    client = control_plane.client()
    more = LabelSelector(requirements=(Requirement(key="team", operator="Exists"),))
    both = Registration(
        client=registered.client, selectors=(*registered.selectors, more), namespace="muster", controller=""
    )

    def entries() -> dict[str, set[str]]:
        plurals = webhook_config_registration.KINDS.values()
        found = {plural: client.get(f"{CONFIGURATIONS}/{plural}/muster")["webhooks"] for plural in plurals}
        return {plural: {webhook["name"] for webhook in webhooks} for plural, webhooks in found.items()}

    await webhook_config_registration.register(connection, registered)
    before = entries()
    await webhook_config_registration.register(connection, both)
    for plural, present in entries().items():
        added = present - before[plural]
        assert added
        assert before[plural] <= present
        assert all(namespace_selectors.digest(more) in name for name in added), added
    await webhook_config_registration.register(connection, registered)
    assert entries() == before


async def test_while_muster_is_down_queued_namespaces_are_closed_and_others_open(
    connection: Connection, control_plane: ControlPlane, namespace: Namespace, registered: Registration
) -> None:
    running = made(namespace, "before")
    labelled = made(namespace, "labelled", labels={names.QUEUE: "q", "app": "x"})
    await webhook_config_registration.register(connection, registered)
    path = f"/api/v1/namespaces/{namespace.name}/pods"

    await _wait_closed(namespace, "labelled")
    client = control_plane.client()
    outside = client.create("/api/v1/namespaces/default/pods", workloads.pod("o", labels={names.QUEUE: "q"}))
    client.delete(f"/api/v1/namespaces/default/pods/{outside['metadata']['name']}")

    harmless: list[dict[str, Any]] = [
        {"metadata": {"labels": {"app": "y"}}},
        {"metadata": {"annotations": {"seen": "yes"}}},
        {"metadata": {"labels": {"app": None}, "annotations": None}},
    ]
    status = {"status": {"conditions": [{"type": "Seen", "status": "True"}]}}
    for pod in (running, labelled):
        for change in harmless:
            client.merge_patch(f"{path}/{pod.meta.name}", change)
            client.merge_patch(f"{path}/{pod.meta.name}/status", change | status)
    for change in (
        {"metadata": {"labels": {names.QUEUE: "other"}}},
        {"metadata": {"labels": {names.QUEUE: None}}},
        {"metadata": {"annotations": {names.RUNTIME: "1h"}}},
        {"spec": {"schedulingGates": []}},
    ):
        assert await _is_refused_change(connection, f"{path}/labelled", change), change
    for change in (
        {"metadata": {"labels": {names.QUEUE: "other"}}},
        {"metadata": {"annotations": {names.GANG: "g"}}},
    ):
        assert await _is_refused_change(connection, f"{path}/labelled/status", change), change
    into = {"metadata": {"labels": {names.QUEUE: "q"}}}
    assert await _is_refused_change(connection, f"{path}/before", into)
    assert await _is_refused_change(connection, f"{path}/before/status", into)


async def test_a_kubelet_shows_its_static_pods_while_muster_is_down(
    connection: Connection, namespace: Namespace, registered: Registration
) -> None:
    made(namespace, "labelled", labels={names.QUEUE: "q"})
    await webhook_config_registration.register(connection, registered)
    path = f"/api/v1/namespaces/{namespace.name}/pods"
    await _wait_closed(namespace, "labelled")

    mirror = workloads.pod("static", annotations={MIRROR: "hash"}, nodeName="node-1")
    assert not await _is_refused(connection, path, mirror)
    assert await _is_refused(connection, path, workloads.pod("annotated", annotations={MIRROR: "hash"}))
    assert await _is_refused(connection, path, workloads.pod("bypassing", annotations={"a": "b"}, nodeName="node-1"))


async def _wait_closed(namespace: Namespace, pod: str) -> None:
    """Wait until the API server asks both webhooks: one about new pods, the other about changes of a queued one.

    It comes to know one after the other.
    """
    client, change = namespace.client, {"metadata": {"annotations": {names.GANG: "g"}}}
    asks: tuple[Callable[[], object], ...] = (
        lambda: client.create(f"{namespace.pods}?dryRun=All", workloads.pod("late")),
        lambda: client.merge_patch(f"{namespace.pods}/{pod}?dryRun=All", change),
    )

    def is_closed() -> bool:
        said = []
        for ask in asks:
            try:
                ask()
            except ApiError as error:
                said.append("failed calling webhook" in error.message)
        return said == [True, True]

    await asyncio.to_thread(eventually, is_closed, what="both webhooks are asked")


async def _is_refused(connection: Connection, path: str, body: Any) -> bool:
    try:
        await connection.post(path, body, retry_policy=ONCE)
    except RetryError as error:
        return "failed calling webhook" in str(error)
    return False


async def _is_refused_change(connection: Connection, path: str, change: Any) -> bool:
    try:
        await connection.patch(path, change, PatchKind.MERGE, retry_policy=ONCE)
    except RetryError as error:
        return "failed calling webhook" in str(error)
    return False


async def test_the_profile_is_that_of_the_cluster(connection: Connection, kubernetes: str) -> None:
    versions = Versions()
    await versions.probe(connection)

    assert versions.profile == compatibility.profile(Release(kubernetes))


async def test_every_kind_that_is_watched_can_be_listed(connection: Connection, kubernetes: str) -> None:
    for kind in watched_resources.ALL:
        if kind.optional and kind is not watched_resources.TAINT_RULES:
            continue  # the CRDs of workloads are there only where somebody has installed them
        if kind is watched_resources.TAINT_RULES and kubernetes in building.ON_DEMAND:
            continue  # these serve them in v1alpha3 alone, if at all
        served = kind.paths[0] if kubernetes != "1.36" or kind is not watched_resources.TAINT_RULES else kind.paths[1]
        assert "items" in await connection.get(served)


@pytest.mark.since("1.36", "DeviceTaintRules are served in v1alpha3 alone, if at all")
async def test_taint_rules_are_seen_where_they_are_served(connection: Connection, control_plane: ControlPlane) -> None:
    client, store = control_plane.client(), Store([watched_resources.TAINT_RULES])
    task = asyncio.create_task(reflector.watch(connection, store), name="watch")
    try:
        await store.wait_synced(within=PATIENCE)
        path = next(path for path in watched_resources.TAINT_RULES.paths if client.find(path))
        spec = {
            "deviceSelector": {"driver": "taint.example.com", "pool": "a/b"},
            "taint": {"key": "example.com/unhealthy", "value": "yes", "effect": "NoSchedule"},
        }
        client.create(path, {"metadata": {"name": "unhealthy"}, "spec": spec})
        await until(store, lambda: "unhealthy" in store.snapshot().taint_rules)
        rule = store.snapshot().taint_rules["unhealthy"]
        assert (rule.driver, rule.pool, rule.device, rule.selects) == ("taint.example.com", "a/b", None, True)
        assert rule.taint == Taint(key="example.com/unhealthy", value="yes", effect="NoSchedule")

        client.delete(f"{path}/unhealthy")
        await until(store, lambda: store.snapshot().taint_rules == {})
    finally:
        task.cancel()
