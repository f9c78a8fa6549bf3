"""Nothing is closed before the API server is seen to reach the webhook, and nothing is opened afterwards."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from admission.api.kubernetes.admission_review import Review
from admission.api.values import names
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.client import backoff
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import dry_run_probe, registration as webhook_config_registration
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.webhook import handler
from tests.integration.kube.fake_api import FakeApi

LEASES = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster"
QUEUE = {"metadata": {"name": "q", "resourceVersion": "1"}, "spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}
REACHED = {"metadata": {"annotations": {names.PROOF: names.SEEN}}}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "backoff", lambda *_, **__: 0.001)


def a_client() -> ClientConfig:
    return ClientConfig(authority=b"PEM", url="https://muster:8443")


def policies(configuration: Mapping[str, Any]) -> dict[str, str]:
    return {webhook["name"].partition("-")[0]: webhook["failurePolicy"] for webhook in configuration["webhooks"]}


class Keeping:
    """Registering and proving, side by side as in `app`."""

    def __init__(self, api: FakeApi, connection: Connection, *, proved: bool = False) -> None:
        self.api = api
        self.state = WebhookState(a_client(), proved=proved)
        store = Store((watched_resources.QUEUES,))
        store.tables[watched_resources.QUEUES].put(QUEUE)
        self._tasks = [
            asyncio.create_task(
                webhook_config_registration.keep(
                    connection, store, self.state, namespace="muster-system", controller="muster"
                )
            ),
            asyncio.create_task(dry_run_probe.keep(connection, self.state, namespace="muster-system")),
        ]

    async def until(self, *, writes: int = 0, looks: int = 0) -> None:
        async with asyncio.timeout(30):
            while self.api.count("PATCH", VALIDATING) < writes or self.api.count("POST", LEASES) < looks:
                await self.api.next_request()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_namespaces_are_closed_once_a_dry_run_comes_back_with_the_webhooks_mark(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("POST", LEASES, 201, {"metadata": {"name": "x"}})
    api.answer("POST", LEASES, 500, {"message": "no endpoints available for service"})
    api.answer("POST", LEASES, 201, REACHED)
    keeping = Keeping(api, connection)

    await keeping.until(writes=1)
    assert set(policies(api.last("PATCH", MUTATING).body).values()) == {"Ignore"}
    assert set(policies(api.last("PATCH", VALIDATING).body).values()) == {"Ignore"}
    await keeping.until(writes=2)
    await keeping.end()

    assert keeping.state.proved
    assert api.last("POST", LEASES).query == {"dryRun": "All"}
    assert api.last("POST", LEASES).body["metadata"]["labels"] == {names.PROOF: ""}
    assert policies(api.last("PATCH", VALIDATING).body)["queued"] == "Fail"
    assert policies(api.last("PATCH", MUTATING).body)["queued"] == "Fail"
    assert policies(api.last("PATCH", MUTATING).body)["proof.leases.muster.dev"] == "Ignore"


async def test_a_closed_namespace_stays_closed_when_another_process_starts(
    api: FakeApi, connection: Connection
) -> None:
    """A process that is new, and not proved yet, finds what another one has closed."""
    registration = webhook_config_registration.Registration(
        client=a_client(), selectors=(), namespace="muster-system", controller="muster"
    )
    await webhook_config_registration.register(connection, registration)
    keeping = Keeping(api, connection)

    await keeping.until(writes=2, looks=1)
    await keeping.end()

    assert policies(api.last("PATCH", VALIDATING).body)["queued"] == "Fail"


async def test_a_webhook_that_is_no_longer_reached_is_said_and_stays_closed(
    api: FakeApi, connection: Connection
) -> None:
    with capture_logs() as logs:
        keeping = Keeping(api, connection, proved=True)
        await keeping.until(looks=dry_run_probe.FAILURES_UNTIL_WARNING + 4)
        await keeping.end()

    [warning] = [entry for entry in logs if entry["event"] == "the API server does not reach the webhook"]
    assert warning["closed"] is True
    assert policies(api.last("PATCH", VALIDATING).body)["queued"] == "Fail"


async def test_a_webhook_that_is_no_longer_reached_is_registered_again(api: FakeApi, connection: Connection) -> None:
    """Somebody has written another address, such as a process that was overtaken and has gone since."""
    keeping = Keeping(api, connection, proved=True)

    await keeping.until(writes=2)
    looks = api.count("POST", LEASES)
    await keeping.end()

    assert looks > dry_run_probe.FAILURES_UNTIL_WARNING
    first, again, *_ = (asked.body for asked in api.asked if (asked.method, asked.path) == ("PATCH", VALIDATING))
    assert again == first


def test_the_annotation_that_the_webhook_adds_is_the_one_that_the_probe_expects() -> None:
    verdict = handler.prove(
        Review(uid="u", group="", version="v1", kind="Lease", resource="leases", operation="CREATE", obj={})
    )

    assert verdict.denial is None
    assert verdict.patch == ({"op": "add", "path": "/metadata/annotations", "value": {names.PROOF: names.SEEN}},)


async def test_the_ca_bundle_is_left_to_cert_manager_where_injection_is_set(
    api: FakeApi, connection: Connection
) -> None:
    client = ClientConfig(authority=None, inject="muster-system/webhook", url="https://muster:8443")
    registration = webhook_config_registration.Registration(
        client=client, selectors=(), namespace="muster-system", controller="muster"
    )

    await webhook_config_registration.register(connection, registration)

    written = api.last("PATCH", MUTATING).body
    assert written["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "muster-system/webhook"}
    assert all("caBundle" not in webhook["clientConfig"] for webhook in written["webhooks"])


async def test_new_authorities_are_written_at_once(api: FakeApi, connection: Connection) -> None:
    keeping = Keeping(api, connection, proved=True)
    await keeping.until(writes=1)

    keeping.state.trust(b"OLD AND NEW")
    await keeping.until(writes=2)
    await keeping.end()

    bundles = {webhook["clientConfig"]["caBundle"] for webhook in api.last("PATCH", VALIDATING).body["webhooks"]}
    assert bundles == {"T0xEIEFORCBORVc="}
