"""The wiring of the webhook's registration: a page of the composition root.

A process with the role `controller` keeps the authorities of the webhook's certificate and the webhook configurations,
so a webhook that runs apart, which others can reach, writes nothing. Every controller does, leading or not: a leader
needs the ledger, and new queues have to be closed while its database is away. All of them write the same; one that
begins to lead writes again, so that after an upgrade the last word is not an older release's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from admission.errors import FixError, MusterError
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.secret_store import SecretStore
from admission.kube.webhook_config import dry_run_probe, registration
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.settings import Settings
from admission.webhook.tls import ca_rotation, rotation
from admission.webhook.tls.certificate import Certificate

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 2.0
"""Seconds before authorities that could not be read or made are tried again."""

_now = partial(datetime.now, UTC)


class Registrar:
    """The registration of one process, and what a webhook of the same process tells it.

    user: Muster's, as the API server knows it.
    """

    def __init__(self, settings: Settings, connection: Connection, store: Store, *, user: str) -> None:
        self.authorities_kept = asyncio.Event()
        """Set once the authorities of the webhook's certificate are there."""
        self._settings = settings
        self._connection = connection
        self._store = store
        self._user = user
        self._port = settings.webhook.port
        self._listening = asyncio.Event()
        self._state: WebhookState | None = None

    def check(self) -> None:
        """Raise FixError if the webhook could not be found, or would not know this controller."""
        webhook, known = self._settings.webhook, self._settings.controller.user
        if known not in (None, self._user):
            raise FixError(
                f"settings: controller.user: the webhook takes {known} for the controller, and the API server knows"
                f" this one as {self._user}; change the setting, or the account"
            )
        if webhook.register and not (self._has_webhook or webhook.service or webhook.url or webhook.port):
            raise FixError(
                "settings: webhook.url: a controller registers the webhook, which runs in another process here; set"
                " webhook.service or webhook.url, or webhook.register = false if others register it"
            )

    def listens(self, port: int) -> None:
        """Note that the webhook of this process listens there."""
        self._port = port
        self._listening.set()
        if self._state is not None:
            self._state.move(self._client(self._state.client.authority))

    def rewrite(self) -> None:
        """Have the configurations written again."""
        if self._state is not None:
            self._state.request_rewrite()

    async def keep(self, ready: Callable[[], Awaitable[object]]) -> None:
        """Keep authorities and configurations until cancelled. ready: waits until configurations may be written."""
        source = authorities(self._settings, self._connection)
        bundle: bytes | None = None
        if source is not None:
            bundle = await _first(source)
        self.authorities_kept.set()
        if self._settings.webhook.register and self._has_webhook:
            await self._listening.wait()
        self._state = state = WebhookState(self._client(bundle))

        async def trust(authority: bytes) -> None:
            state.trust(authority)

        async with asyncio.TaskGroup() as tasks:
            if source is not None and bundle is not None:
                failure = "the webhook's authorities are not renewed"
                rotating = rotation.keep(source, bundle, use=trust, failure=failure)
                tasks.create_task(rotating, name="keep the webhook's authorities")
            if self._settings.webhook.register:
                await ready()
                await self._register(state)
            await asyncio.Event().wait()

    async def _register(self, state: WebhookState) -> None:
        """Keep the webhook configurations true, and prove the webhook."""
        namespace = self._settings.lease.namespace
        async with asyncio.TaskGroup() as tasks:
            proving = dry_run_probe.keep(self._connection, state, namespace=namespace)
            tasks.create_task(proving, name="prove the webhook")
            await registration.keep(self._connection, self._store, state, namespace=namespace, controller=self._user)

    def _client(self, bundle: bytes | None) -> ClientConfig:
        """Return how the API server reaches the webhook."""
        webhook = self._settings.webhook
        return ClientConfig(
            authority=bundle,
            inject=webhook.inject or "",
            url=None if webhook.service else webhook.url or f"https://{webhook.host}:{self._port}",
            service=webhook.service,
        )

    @property
    def _has_webhook(self) -> bool:
        """Whether the webhook runs in this process."""
        return "webhook" in self._settings.roles


async def _first(source: rotation.Source[bytes]) -> bytes:
    """Return the authorities once they are there. Whatever is wrong with them, the controller goes on meanwhile."""
    while True:
        try:
            return await source.current()
        except MusterError as error:
            log.warning("the webhook has no authorities, and is not registered", error=str(error))
        await asyncio.sleep(AGAIN_SECONDS)


def certificates(settings: Settings, connection: Connection) -> rotation.Source[Certificate]:
    """Return where the webhook's certificates come from: files, or authorities of our own in a Secret."""
    webhook = settings.webhook
    if webhook.certificate and webhook.key:
        authority = Path(webhook.authority) if webhook.authority else None
        return rotation.CertificateFiles(Path(webhook.certificate), Path(webhook.key), authority)
    return rotation.OwnCertificates(_secret(settings, connection), webhook.all_names, _lifetimes(settings), _now)


def authorities(settings: Settings, connection: Connection) -> rotation.Source[bytes] | None:
    """Return where the authorities come from that the API server has to trust; None if others tell it."""
    webhook = settings.webhook
    if webhook.authority:
        return rotation.AuthorityFile(Path(webhook.authority))
    if webhook.certificate:
        return None
    return rotation.OwnAuthorities(_secret(settings, connection), _lifetimes(settings), _now)


def _secret(settings: Settings, connection: Connection) -> SecretStore:
    return SecretStore(connection, namespace=settings.lease.namespace, name=settings.webhook.secret)


def _lifetimes(settings: Settings) -> ca_rotation.Lifetimes:
    webhook = settings.webhook
    return ca_rotation.Lifetimes(
        authority=timedelta(days=webhook.authority_days), leaf=timedelta(hours=webhook.leaf_hours)
    )
