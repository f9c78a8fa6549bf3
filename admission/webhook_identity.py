"""The identity of the webhook towards the API server: the sources of its certificates and paths.

A controller writes the certificate authorities and the secret segments of the paths into one Secret; a webhook reads
them there.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from admission.errors import RetryError
from admission.kube.client.connection import Connection
from admission.kube.secret_store import SecretStore
from admission.kube.webhook_config import registered_paths
from admission.settings import Settings
from admission.webhook.known_paths import KnownPaths
from admission.webhook.path_rotation import RegisteredSegment, SharedSegments
from admission.webhook.tls import ca_rotation, rotation
from admission.webhook.tls.certificate import Certificate

_now = partial(datetime.now, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The paths that a webhook serves.

    segments: the source of the secret segments, and those that were read from it; None if Muster does not write the
    webhook configurations, so that there are no segments.
    """

    known: KnownPaths
    segments: tuple[SharedSegments, tuple[str, ...]] | None = None

    async def keep(self) -> None:
        """Serve changed segments as soon as they are read, until cancelled."""

        async def know(segments: tuple[str, ...]) -> None:
            self.known.replace(segments)

        if self.segments is not None:
            await rotation.keep(*self.segments, use=know, failure="the webhook's paths are not read again")


async def paths(settings: Settings, connection: Connection) -> Paths:
    """Return the paths that a webhook serves at its start.

    Raises:
        RetryError: no controller has written a segment yet and no plain path is registered, so no call would succeed.
        FixError: the Secret cannot be read.
    """
    if not settings.webhook.register:
        return Paths(known=KnownPaths())
    source = SharedSegments(_secret(settings, connection), _lifetimes(settings))
    segments = await source.current()
    known = KnownPaths(segments, is_plain_registered=partial(registered_paths.is_plain_named, connection))
    if not segments and not await known.knows_plain():
        raise RetryError("a controller has yet to make the webhook's paths")
    return Paths(known=known, segments=(source, segments))


def registered_segment(settings: Settings, connection: Connection) -> RegisteredSegment:
    """Return the source of the segment with which a controller registers the webhook."""
    named = partial(registered_paths.named, connection)
    return RegisteredSegment(_secret(settings, connection), _lifetimes(settings), _now, named=named)


def certificates(settings: Settings, connection: Connection) -> rotation.Source[Certificate]:
    """Return the source of the webhook's certificates: files, or Muster's own authorities in a Secret."""
    webhook = settings.webhook
    if webhook.certificate and webhook.key:
        authority = Path(webhook.authority) if webhook.authority else None
        return rotation.CertificateFiles(Path(webhook.certificate), Path(webhook.key), authority)
    return rotation.OwnCertificates(_secret(settings, connection), webhook.all_names, _lifetimes(settings), _now)


def authorities(settings: Settings, connection: Connection) -> rotation.Source[bytes] | None:
    """Return the source of the authorities that the API server has to trust; None if others configure them."""
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
