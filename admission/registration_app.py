"""The composition of the webhook's registration, a part of the composition root.

A process with the role `controller` writes the authorities of the webhook's certificate, the secret segment of its
paths and the webhook configurations, so that a webhook in a process of its own, which other pods can reach, needs no
right to write. Every controller does, leading or not: a leader needs the ledger, and the namespaces of new queues have
to be covered by the webhook while the database is down. All controllers write the same; a new leader writes once more,
so that after an upgrade the configurations are those of the newer release.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from admission import webhook_identity
from admission.errors import FixError, MusterError
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.webhook_config import dry_run_probe, pod_policy, registration
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.settings import Settings
from admission.webhook.tls import rotation

log = structlog.get_logger(__name__)

Value = TypeVar("Value")

AGAIN_SECONDS = 2.0
"""Seconds before authorities or paths are read again after a failure."""


class Registrar:
    """The registration of the webhook by one process, which may run the webhook itself.

    user: the name of Muster's user at the API server.
    """

    def __init__(self, settings: Settings, connection: Connection, store: Store, *, user: str) -> None:
        self.secret_kept = asyncio.Event()
        """Set once the Secret has the authorities of the webhook's certificate and the segments of its paths."""
        self._settings = settings
        self._connection = connection
        self._store = store
        self._user = user
        self._port = settings.webhook.port
        self._listening = asyncio.Event()
        self._state: WebhookState | None = None

    def check(self) -> None:
        """Raise FixError if the settings do not say where the webhook is, or name another user as the controller."""
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
        """Record the port on which the webhook of this process listens."""
        self._port = port
        self._listening.set()
        if self._state is not None:
            client = self._state.client
            self._state.move(self._client(client.authority, client.segment))

    def rewrite(self) -> None:
        """Request that the configurations are written again."""
        if self._state is not None:
            self._state.request_rewrite()

    async def keep(self, ready: Callable[[], Awaitable[object]]) -> None:
        """Keep authorities, paths and configurations up to date until cancelled.

        ready: waits until configurations may be written.
        """
        register = self._settings.webhook.register
        source = webhook_identity.authorities(self._settings, self._connection)
        # The paths are written first, since a webhook starts once it finds the authorities.
        registered = webhook_identity.registered_segment(self._settings, self._connection) if register else None
        segment = await _first(registered) if registered is not None else ""
        bundle = await _first(source) if source is not None else None
        self.secret_kept.set()
        if register and self._has_webhook:
            await self._listening.wait()
        self._state = state = WebhookState(self._client(bundle, segment))

        async def trust(authority: bytes) -> None:
            state.trust(authority)

        async def call_by(segment: str) -> None:
            state.call_by(segment)

        async with asyncio.TaskGroup() as tasks:
            if source is not None and bundle is not None:
                failure = "the webhook's authorities are not renewed"
                rotating = rotation.keep(source, bundle, use=trust, failure=failure)
                tasks.create_task(rotating, name="keep the webhook's authorities")
            if registered is not None:
                failure = "the webhook's paths are not renewed"
                rotating = rotation.keep(registered, segment, use=call_by, failure=failure)
                tasks.create_task(rotating, name="keep the webhook's paths")
                await ready()
                await self._register(state)
            await asyncio.Event().wait()

    async def _register(self, state: WebhookState) -> None:
        """Keep the webhook configurations and the policy up to date, and probe the webhook by dry runs."""
        namespace = self._settings.lease.namespace
        async with asyncio.TaskGroup() as tasks:
            proving = dry_run_probe.keep(self._connection, state, namespace=namespace)
            tasks.create_task(proving, name="prove the webhook")
            policy = pod_policy.keep(self._connection, namespace=namespace, controller=self._user)
            tasks.create_task(policy, name="keep the policy on changes of pods")
            await registration.keep(self._connection, self._store, state, namespace=namespace, controller=self._user)

    def _client(self, bundle: bytes | None, segment: str) -> ClientConfig:
        """Return the client config by which the API server calls the webhook."""
        webhook = self._settings.webhook
        return ClientConfig(
            authority=bundle,
            inject=webhook.inject or "",
            url=None if webhook.service else webhook.url or f"https://{webhook.host}:{self._port}",
            service=webhook.service,
            segment=segment,
        )

    @property
    def _has_webhook(self) -> bool:
        """Whether the webhook runs in this process."""
        return "webhook" in self._settings.roles


async def _first(source: rotation.Source[Value]) -> Value:
    """Return the first value of a source. Errors are logged and retried, so that the controller runs meanwhile."""
    while True:
        try:
            return await source.current()
        except MusterError as error:
            log.warning("the webhook has no authorities or no paths, and is not registered", error=str(error))
        await asyncio.sleep(AGAIN_SECONDS)
