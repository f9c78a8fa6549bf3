"""Renewal of the webhook's certificate without closing a connection: from authorities in a Secret, or from files.

`app` gives the server its first certificate from a source's `current`, and runs `keep` beside it. New connections use
the new certificate; existing ones keep the one that they began with.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import structlog

from admission.errors import ConflictError, FixError, MusterError
from admission.webhook.tls import ca_rotation, certificate
from admission.webhook.tls.ca_rotation import Authorities, Lifetimes
from admission.webhook.tls.certificate import Certificate

log = structlog.get_logger(__name__)

TRIES = 4
"""How often a write is tried when other processes change the list meanwhile."""

CHECK_SECONDS = 600.0
"""The longest time between two reads of the shared list: it may have been deleted."""

FILES_SECONDS = 10.0
"""The time between two reads of the files. Kubernetes updates those of a mounted Secret within about a minute."""


Entries = Mapping[str, bytes]
"""Entries of a Secret."""


class SecretStore(Protocol):
    """The storage that all processes share: entries, and the version at which they were read."""

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        """Return the entries and their version; None if there are none yet."""

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        """Replace the entries of a version, or create them.

        Raises ConflictError if another client changed them first.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCertificate:
    """The leaf to serve, and the authorities as PEM for the API server; None if they are configured elsewhere."""

    certificate: Certificate
    bundle: bytes | None


class Source(Protocol):
    """A source of certificates. every: seconds between two calls."""

    every: float

    async def current(self) -> ServingCertificate:
        """Return the certificate to serve now."""


class OwnAuthorities:
    """Leaves of authorities that all processes share; the key of a leaf never leaves the process."""

    def __init__(
        self, secret_store: SecretStore, names: Sequence[str], lifetimes: Lifetimes, clock: Callable[[], datetime]
    ) -> None:
        lifetimes.check()
        self.every = min(CHECK_SECONDS, lifetimes.check_interval.total_seconds())
        self._secret_store = secret_store
        self._names = names
        self._lifetimes = lifetimes
        self._clock = clock
        self._authorities: Authorities = ()
        self._leaf: Certificate | None = None

    async def current(self) -> ServingCertificate:
        """Renew the shared list and the leaf if they are due. Raises FixError if the list cannot be read."""
        self._authorities = authorities = await self._rotate()
        now = self._clock()
        if self._leaf is None or ca_rotation.needs_renewal(self._leaf, authorities, self._lifetimes, now=now):
            signer = ca_rotation.signer(authorities, self._lifetimes, now=now)
            self._leaf = certificate.issue(signer, self._names, now=now, validity=self._lifetimes.leaf)
        return ServingCertificate(certificate=self._leaf, bundle=ca_rotation.bundle(authorities))

    async def _rotate(self) -> Authorities:
        before: Authorities = ()
        rotated: Authorities = ()

        def renewed(entries: Entries) -> Entries:
            nonlocal before, rotated
            # If the list was deleted, it is written again from memory, so that its authorities stay trusted.
            is_stored = ca_rotation.is_stored(entries)
            before = ca_rotation.read(entries) if is_stored else self._authorities
            rotated = ca_rotation.rotate(before, self._lifetimes, now=self._clock())
            return {} if is_stored and rotated == before else ca_rotation.encode(rotated)

        if await update(self._secret_store, renewed):
            log.info("the webhook's authorities are written", authorities=len(rotated), new=rotated[-1:] != before[-1:])
        return rotated


async def update(secret_store: SecretStore, renewed: Callable[[Entries], Entries]) -> bool:
    """Replace some entries of the Secret, which is made if there is none; return whether that was necessary.

    renewed: returns them, given the present entries; called again if another process writes meanwhile. Other entries
    stay as they are. Raises ConflictError if others do so all the time.
    """
    for attempt in range(1, TRIES + 1):
        stored = await secret_store.read()
        entries, version = stored if stored is not None else ({}, None)
        wanted = {**entries, **renewed(entries)}
        if wanted == entries:
            return False
        try:
            await secret_store.write(wanted, version)
        except ConflictError:
            if attempt == TRIES:
                raise
        else:
            return True
    raise AssertionError("the last try returns or raises")


class Files:
    """A certificate, its key and perhaps the authority's certificate, in files that another program renews."""

    every = FILES_SECONDS

    def __init__(self, certificate: Path, key: Path, authority: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._authority = authority

    async def current(self) -> ServingCertificate:
        """Read the files. Raises FixError if one cannot be read, or they do not match."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> ServingCertificate:
        bundle = _read(self._authority, "authority") if self._authority else None
        leaf = Certificate(
            certificate=_read(self._certificate, "certificate"), key=_read(self._key, "key"), authority=bundle or b""
        )
        certificate.check(leaf)
        return ServingCertificate(certificate=leaf, bundle=bundle)


async def keep(
    source: Source,
    served: ServingCertificate,
    *,
    serve: Callable[[Certificate], Awaitable[object]],
    publish: Callable[[bytes | None], None],
) -> None:
    """Serve and publish every change of the source, starting from `served`, until cancelled. Failures are retried."""
    while True:
        await asyncio.sleep(source.every)
        try:
            current = await source.current()
            if current.bundle != served.bundle:
                publish(current.bundle)
            if current.certificate != served.certificate:
                await serve(current.certificate)
                log.info("the webhook shows a new certificate", expires=current.certificate.expires.isoformat())
        except MusterError as error:
            log.warning("the webhook's certificate is not renewed", error=str(error))
        else:
            served = current


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FixError(f"webhook.{setting}: {path} cannot be read: {error.strerror}") from error
