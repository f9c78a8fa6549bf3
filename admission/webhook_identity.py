"""What the API server knows the webhook by: the sources of its certificates and of its paths."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from admission.kube.client.connection import Connection
from admission.kube.secret_store import SecretStore
from admission.kube.webhook_config import registered_paths
from admission.kube.webhook_config.client_config import ClientConfig, WebhookState
from admission.settings import Settings
from admission.webhook import path_rotation
from admission.webhook.known_paths import KnownPaths
from admission.webhook.path_rotation import PathSegments, ServedPaths
from admission.webhook.tls import ca_rotation, rotation

_now = partial(datetime.now, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The paths that the webhook knows, and the segment of those to register, as of the start.

    segments: where they come from; None where others write the webhook configurations, so that nobody knows a segment.
    """

    known: KnownPaths
    registered: str = ""
    segments: PathSegments | None = None

    async def keep(self, state: WebhookState) -> None:
        """Know and register every change of the segments, until cancelled."""

        def serve(served: ServedPaths) -> None:
            self.known.replace(served.known)
            state.call_by(served.registered)

        if self.segments is not None:
            await path_rotation.keep(self.segments, serve)


async def paths(settings: Settings, connection: Connection) -> Paths:
    """Return the paths, from the Secret and the webhook configurations that there are."""
    if not settings.webhook.register:
        return Paths(known=KnownPaths())
    named = await registered_paths.named(connection)
    segments = PathSegments(_secret_store(settings, connection), _lifetimes(settings), _now, named=named)
    served = await segments.current()
    is_plain_registered = partial(registered_paths.is_plain_named, connection)
    known = KnownPaths(served.known, is_plain_registered=is_plain_registered)
    return Paths(known=known, registered=served.registered, segments=segments)


def certificates(settings: Settings, connection: Connection) -> rotation.Source:
    """Return where the webhook's certificates come from: files, or authorities of our own in a Secret."""
    webhook = settings.webhook
    if webhook.certificate and webhook.key:
        authority = Path(webhook.authority) if webhook.authority else None
        return rotation.Files(Path(webhook.certificate), Path(webhook.key), authority)
    return rotation.OwnAuthorities(_secret_store(settings, connection), webhook.all_names, _lifetimes(settings), _now)


def client_config(settings: Settings, bundle: bytes | None, port: int, paths: Paths) -> ClientConfig:
    """Return how the API server reaches the webhook."""
    webhook = settings.webhook
    return ClientConfig(
        authority=bundle,
        inject=webhook.inject or "",
        url=None if webhook.service else webhook.url or f"https://{webhook.host}:{port}",
        service=webhook.service,
        segment=paths.registered,
    )


def _secret_store(settings: Settings, connection: Connection) -> SecretStore:
    return SecretStore(connection, namespace=settings.lease.namespace, name=settings.webhook.secret)


def _lifetimes(settings: Settings) -> ca_rotation.Lifetimes:
    webhook = settings.webhook
    return ca_rotation.Lifetimes(
        authority=timedelta(days=webhook.authority_days), leaf=timedelta(hours=webhook.leaf_hours)
    )
