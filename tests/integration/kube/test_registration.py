"""The webhook configurations follow the queues and policies, and the CRDs are there first."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from admission import app
from admission.errors import ClusterUnavailableError, FixError, ForbiddenError
from admission.kube import crd_installer
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import pod_policy, registration as webhook_config_registration
from admission.kube.webhook_config.client_config import WebhookState
from admission.settings import Settings
from tests.integration.kube.fake_api import FakeApi
from tests.unit.kube.test_registration import CLIENT, OWN, REQUIRED, VISION, a_registration

ROOT = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{ROOT}/mutatingwebhookconfigurations/muster"
VALIDATING = f"{ROOT}/validatingwebhookconfigurations/muster"
MUSTER = "system:serviceaccount:muster-system:muster"


RULE = {"message": "m"}
READS_PODS = {
    "a rule": {"rules": [{**RULE, "cel": "pod.spec.priority > 0"}]},
    "a variable": {
        "variables": [{"name": "x", "expression": "pod.spec"}],
        "rules": [{**RULE, "cel": "has(variables.x)"}],
    },
}


@pytest.mark.parametrize("spec", READS_PODS.values(), ids=READS_PODS)
async def test_pods_are_reviewed_for_a_policy_that_reads_pods(
    api: FakeApi, connection: Connection, spec: dict[str, Any]
) -> None:
    store = Store((watched_resources.POLICIES,))
    store.tables[watched_resources.POLICIES].put(a_queue("p", "1", **selects("a"), **spec))

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(
            webhook_config_registration.keep(
                connection, store, WebhookState(CLIENT, proved=True), namespace="muster", controller="muster"
            )
        )
        assert await entries(api, 3) == {"a"}
        keeping.cancel()


async def test_claims_are_reviewed_for_policies_with_defaults_or_rules(api: FakeApi, connection: Connection) -> None:
    store = Store((watched_resources.POLICIES,))
    table = store.tables[watched_resources.POLICIES]
    table.put(a_queue("templates", "1", **selects("a"), templates=[{"name": "t", "spec": {}}]))
    table.put(a_queue("defaults", "1", **selects("b"), defaults=[{"labels": {"x": "y"}}]))

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(
            webhook_config_registration.keep(
                connection, store, WebhookState(CLIENT, proved=True), namespace="muster", controller=MUSTER
            )
        )
        assert await entries(api, 2) == {"b"}

        table.put(a_queue("defaults", "2", **selects("b"), defaults=[{}]))
        table.put(a_queue("rules", "3", **selects("c"), rules=[{"cel": "true", "message": "m"}]))
        assert await entries(api, 3) == {"b", "c"}, "a policy that cannot be read still has its namespaces"
        keeping.cancel()


async def test_both_webhook_configurations_are_registered_and_removed(api: FakeApi, connection: Connection) -> None:
    await webhook_config_registration.register(connection, a_registration(VISION))
    assert api.last("PATCH", MUTATING).body["kind"] == "MutatingWebhookConfiguration"
    assert api.last("PATCH", VALIDATING).query == {"fieldManager": "muster", "force": "true"}

    for _ in range(2):
        await webhook_config_registration.unregister(connection)
    assert api.count("DELETE", VALIDATING) == 2


async def test_the_policy_on_changes_of_pods_is_written_again_after_a_failure_and_removed(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_config_registration, "AGAIN_SECONDS", 0.01)
    policy, binding = (f"{ROOT}/{plural}/muster" for plural in pod_policy.KINDS.values())
    api.answer("PATCH", policy, 403)
    keeping = asyncio.create_task(pod_policy.keep(connection, namespace="muster-system", controller=MUSTER))
    async with asyncio.timeout(30):
        while api.count("PATCH", binding) < 2:
            await api.next_request()
    keeping.cancel()

    assert api.last("PATCH", policy).query == {"fieldManager": "muster", "force": "true"}
    assert api.last("PATCH", binding).body["spec"] == {"policyName": "muster", "validationActions": ["Deny"]}
    await pod_policy.remove(connection)
    assert api.count("DELETE", policy) == 1


async def test_where_only_the_policy_that_adds_gates_may_not_be_written_that_is_what_the_log_says(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with roles of an earlier release."""
    monkeypatch.setattr(webhook_config_registration, "AGAIN_SECONDS", 0.01)
    gates = f"{ROOT}/mutatingadmissionpolicies/muster"
    api.answer("PATCH", gates, 403)
    with structlog.testing.capture_logs() as logged:
        keeping = asyncio.create_task(pod_policy.keep(connection, namespace="muster-system", controller=MUSTER))
        async with asyncio.timeout(30):
            while api.count("PATCH", gates) < 2:
                await api.next_request()
        keeping.cancel()

    assert [line["event"] for line in logged if line["log_level"] == "warning"] == [
        "the policy that adds gates to pods of Jobs is not written, so the webhook adds them"
    ]


def a_queue(name: str, version: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}


def selects(team: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"team": team}}}


def _of_others(api: FakeApi) -> list[dict[str, Any]]:
    """Return the entries for pods and claims: not those of Muster's own objects and of workloads."""
    webhooks: list[dict[str, Any]]
    *webhooks, own = api.last("PATCH", VALIDATING).body["webhooks"]
    assert own["name"] == OWN
    others = (".podtemplates.muster.dev", ".workloads.muster.dev", REQUIRED)
    return [webhook for webhook in webhooks if not webhook["name"].endswith(others)]


async def entries(api: FakeApi, wanted: int) -> set[str]:
    """Wait for a configuration of so many entries; return the teams that it closes."""
    async with asyncio.timeout(30):
        while not api.count("PATCH", VALIDATING) or len(webhooks := _of_others(api)) != wanted:
            await api.next_request()
    found = (webhook["namespaceSelector"]["matchExpressions"][0] for webhook in webhooks)
    return {value for expression in found if expression["key"] == "team" for value in expression["values"]}


async def test_the_entries_follow_the_queues(api: FakeApi, connection: Connection) -> None:
    store = Store((watched_resources.QUEUES,))
    table = store.tables[watched_resources.QUEUES]
    table.put(a_queue("a", "1", **selects("a")))
    table.put(a_queue("also-a", "1", **selects("a")))
    table.put(a_queue("root", "1"))
    api.answer("PATCH", MUTATING, 400, {"message": "not now"})

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(
            webhook_config_registration.keep(
                connection, store, WebhookState(CLIENT, proved=True), namespace="muster", controller=MUSTER
            )
        )
        assert await entries(api, 3) == {"a"}

        table.put(a_queue("b", "2", **selects("b")))
        assert await entries(api, 5) == {"a", "b"}

        broken = a_queue("b", "3", placement="Nowhere", **selects("b"))
        table.put(broken)
        table.put(a_queue("c", "4", **selects("c")))
        assert await entries(api, 7) == {"a", "b", "c"}, "a queue that cannot be read stays closed"

        table.drop(broken)
        assert await entries(api, 5) == {"a", "c"}
        keeping.cancel()


CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.muster.dev}
---
apiVersion: v1
kind: ConfigMap
"""
CRD_PATH = f"{crd_installer.COLLECTION}/queues.muster.dev"


def established(holds: str, **names: str) -> dict[str, Any]:
    accepted = {"type": "NamesAccepted", "status": "True"} | names
    return {"status": {"conditions": [{"type": "Established", "status": holds}, accepted]}}


@pytest.fixture
def crd(tmp_path: Path) -> Path:
    path = tmp_path / "crd.yaml"
    path.write_text(CRD)
    return path


async def test_crds_are_applied_and_waited_for(
    api: FakeApi, connection: Connection, crd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crd_installer, "POLL_SECONDS", 0.01)
    api.answer("GET", CRD_PATH, 200, established("False"))
    api.answer("GET", CRD_PATH, 200, established("True"))

    await crd_installer.install(connection, [crd])

    assert api.count("PATCH", CRD_PATH) == 1
    assert api.count("GET", CRD_PATH) == 2


@pytest.mark.parametrize("refusals", [0, 2])
async def test_a_start_waits_for_an_api_server_that_has_yet_to_read_its_roles(
    api: FakeApi, connection: Connection, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ROLES_PAUSE", 0.01)
    path = "/api/v1/namespaces/muster-system"
    for _ in range(refusals):
        api.answer("GET", path, 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})
    api.answer("GET", path, 200, {"metadata": {"name": "muster-system"}})

    await app.prepare(connection, Settings(install_crds=False))

    assert api.count("GET", path) == refusals + 1


async def test_a_right_that_stays_away_ends_the_start(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ROLES_READ_WITHIN", 0.0)
    message = 'namespaces "muster-system" is forbidden: User "u" cannot get resource "namespaces" in API group ""'
    refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
    api.answer("GET", "/api/v1/namespaces/muster-system", 403, refusal)

    with pytest.raises(ForbiddenError, match="grant verb get"):
        await app.prepare(connection, Settings(install_crds=False))


async def test_a_crd_that_is_never_served_is_named(api: FakeApi, connection: Connection, crd: Path) -> None:
    api.answer("GET", CRD_PATH, 200, established("False"))

    with pytest.raises(ClusterUnavailableError, match=r"queues\.muster\.dev"):
        await crd_installer.install(connection, [crd], within=0.05)


async def test_a_name_that_is_taken_is_said(api: FakeApi, connection: Connection, crd: Path) -> None:
    api.answer("GET", CRD_PATH, 200, established("False", status="False", message="mq is taken"))

    with pytest.raises(FixError, match="mq is taken"):
        await crd_installer.install(connection, [crd])


async def test_crds_that_cannot_be_read_are_named(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(FixError, match="nowhere"):
        await crd_installer.install(connection, [tmp_path / "nowhere"])
