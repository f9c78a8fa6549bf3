"""Which paths of the webhook stand in the configurations, and that a segment is not shown."""

import asyncio
from typing import Any

import pytest

from admission.errors import ClusterUnavailableError
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import registered_paths, registration
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.kube.webhook_config.registered_paths import PLAIN
from admission.kube.webhook_config.registration import Registration
from tests.integration.kube.fake_api import FakeApi

SEGMENT = "5e9" * 13 + "5"
GROUP = "/apis/admissionregistration.k8s.io/v1"


def a_client(segment: str = SEGMENT, **address: str) -> ClientConfig:
    return ClientConfig(authority=b"PEM", segment=segment, **(address or {"service": "muster-system/muster-webhook"}))


def written(api: FakeApi, client: ClientConfig) -> None:
    """Put the configurations where the API server has them."""
    wanted = Registration(client=client, selectors=(), namespace="muster-system", controller="muster")
    for encode, plural in zip(
        (registration.mutating, registration.validating), registration.KINDS.values(), strict=True
    ):
        api.put(f"{GROUP}/{plural}", encode(wanted))


CLIENTS = {
    "a Service": a_client(),
    "a URL": a_client(url="https://muster.example.com:8443"),
    "a URL with a path of its own": a_client(url="https://muster.example.com/muster/"),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
async def test_the_segment_of_all_endpoints_is_found(
    api: FakeApi, connection: Connection, client: ClientConfig
) -> None:
    written(api, client)

    assert await registered_paths.named(connection) == {SEGMENT}
    assert not await registered_paths.is_plain_named(connection)


@pytest.mark.parametrize("url", ["https://muster:8443", "https://muster:8443/muster"])
async def test_plain_paths_are_found(api: FakeApi, connection: Connection, url: str) -> None:
    written(api, a_client("", url=url))

    assert await registered_paths.named(connection) == {PLAIN}
    assert await registered_paths.is_plain_named(connection)


async def test_where_nothing_is_registered_nothing_is_named(connection: Connection) -> None:
    assert await registered_paths.named(connection) == set()


async def test_the_paths_of_both_webhook_configurations_are_read(api: FakeApi, connection: Connection) -> None:
    """As in the moment when one of them is written anew."""
    written(api, a_client())
    plain: dict[str, Any] = {
        "metadata": {"name": "muster"},
        "webhooks": [{"clientConfig": {"url": "https://m/validate"}}],
    }
    api.put(f"{GROUP}/validatingwebhookconfigurations", plain)

    assert await registered_paths.named(connection) == {SEGMENT, PLAIN}


async def test_while_the_api_server_is_away_a_review_does_not_wait_for_long(
    api: FakeApi, connection: Connection
) -> None:
    await api.stop()

    with pytest.raises(ClusterUnavailableError):
        await registered_paths.is_plain_named(connection)


def test_what_the_api_server_says_of_a_failed_call_is_shown_without_the_segment() -> None:
    said = (
        'failed calling webhook "proof.leases.muster.dev": failed to call webhook: Post'
        f' "https://muster-webhook.muster-system.svc:443/{SEGMENT}/prove?timeout=5s": context deadline exceeded'
    )

    assert registered_paths.masked(said) == said.replace(SEGMENT, "…")
    assert registered_paths.masked("nothing /of/ the kind") == "nothing /of/ the kind"


def test_another_segment_is_registered_at_once_and_shown_nowhere() -> None:
    woken: list[str] = []
    state = WebhookState(a_client(""))
    state.wake = lambda: woken.append(state.client.segment)

    state.call_by("")
    state.call_by(SEGMENT)
    state.call_by(SEGMENT)

    assert woken == [SEGMENT]
    assert state.client.config("/mutate")["service"]["path"] == f"/{SEGMENT}/mutate"
    assert SEGMENT not in repr(state.client)


async def test_a_process_of_before_writes_plain_paths_over_those_with_a_segment_when_it_starts(
    api: FakeApi, connection: Connection
) -> None:
    """As in a rollback: it knows no segment, and writes once although nothing changes."""
    written(api, a_client())
    state = WebhookState(a_client(""), proved=True)

    keeping = asyncio.create_task(
        registration.keep(connection, Store(), state, namespace="muster-system", controller="muster")
    )
    await state.written.wait()
    keeping.cancel()

    assert await registered_paths.named(connection) == {PLAIN}
