"""Renewal of the webhook's certificate and its authorities: in a Secret of Muster's own, or in files of others.

The webhook reads the authorities and signs a leaf; the controller writes and publishes them. `app` gives the server its
first certificate from a source's `current`, and runs `keep` beside it, as `registration_app` does with the authorities.
New connections use the new certificate; existing ones keep the one that they began with.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from admission.errors import ConflictError, FixError, MusterError, RetryError
from admission.webhook.tls import ca_rotation, certificate
from admission.webhook.tls.ca_rotation import Authorities, Lifetimes
from admission.webhook.tls.certificate import Certificate

log = structlog.get_logger(__name__)

Value = TypeVar("Value")
Given_co = TypeVar("Given_co", covariant=True)

TRIES = 4
"""How often a write is tried when other processes change the list meanwhile."""

CHECK_SECONDS = 600.0
"""The longest time between two reads of the shared list by a controller, since it may have been deleted."""

READ_SECONDS = 10.0
"""The longest time between two reads of the list by a webhook: if it was created again, no older leaf is trusted."""

WAIT_SECONDS = 0.5
"""The time between two reads by a webhook that has no certificate yet."""

FILES_SECONDS = 10.0
"""The time between two reads of the files. Kubernetes updates those of a mounted Secret within about a minute."""


Entries = Mapping[str, bytes]
"""Entries of a Secret."""


class SecretReader(Protocol):
    """The storage that all processes share: entries, and the version at which they were read."""

    async def read(self) -> tuple[Entries, str] | None:
        """Return the entries and their version; None if there are none yet."""


class SecretStore(SecretReader, Protocol):
    """The same storage with the right to write, for the controller."""

    async def write(self, entries: Entries, version: str | None) -> None:
        """Replace the entries of a version, or create them.

        Raises ConflictError if another client changed them first.
        """


class Source(Protocol[Given_co]):
    """A source of certificates or authorities. every: seconds between two calls."""

    every: float

    async def current(self) -> Given_co:
        """Return the current value."""


class OwnCertificates:
    """Leaves that this process signs with the shared authorities, which it only reads; their keys never leave it."""

    def __init__(
        self, secret: SecretReader, names: Sequence[str], lifetimes: Lifetimes, clock: Callable[[], datetime]
    ) -> None:
        lifetimes.check()
        self.every = min(READ_SECONDS, lifetimes.check_interval.total_seconds())
        self._secret = secret
        self._names = names
        self._lifetimes = lifetimes
        self._clock = clock
        self._authorities: Authorities = ()
        self._leaf: Certificate | None = None

    async def current(self) -> Certificate:
        """Return the leaf, which is renewed if it is due.

        Raises RetryError while there are no authorities, FixError if their list cannot be read.
        """
        stored = await self._secret.read()
        now = self._clock()
        # If the list was deleted, the last known one is used until a controller has written it again.
        is_stored = stored is not None and ca_rotation.is_stored(stored[0])
        known = ca_rotation.read(stored[0]) if stored is not None and is_stored else self._authorities
        self._authorities = authorities = ca_rotation.valid(known, now=now)
        if not authorities:
            raise RetryError("a controller has yet to make the authorities of the webhook's certificate")
        if self._leaf is None or ca_rotation.needs_renewal(self._leaf, authorities, self._lifetimes, now=now):
            signer = ca_rotation.signer(authorities, self._lifetimes, now=now)
            self._leaf = certificate.issue(signer, self._names, now=now, validity=self._lifetimes.leaf)
        return self._leaf


class OwnAuthorities:
    """The authorities that all processes share, as the controller keeps them; as PEM for the API server."""

    def __init__(self, secret_store: SecretStore, lifetimes: Lifetimes, clock: Callable[[], datetime]) -> None:
        lifetimes.check()
        self.every = min(CHECK_SECONDS, lifetimes.check_interval.total_seconds())
        self._secret_store = secret_store
        self._lifetimes = lifetimes
        self._clock = clock
        self._authorities: Authorities = ()

    async def current(self) -> bytes:
        """Renew the shared list if that is due, and return all of it. Raises FixError if it cannot be read."""
        self._authorities = await self._rotate()
        return ca_rotation.bundle(self._authorities)

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


class CertificateFiles:
    """A certificate, its key and perhaps the authority's certificate, in files that another program renews."""

    every = FILES_SECONDS

    def __init__(self, certificate: Path, key: Path, authority: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._authority = authority

    async def current(self) -> Certificate:
        """Read the files. Raises FixError if one cannot be read, or they do not match."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Certificate:
        leaf = Certificate(
            certificate=_read(self._certificate, "certificate"),
            key=_read(self._key, "key"),
            authority=_read(self._authority, "authority") if self._authority else b"",
        )
        certificate.check(leaf)
        return leaf


class AuthorityFile:
    """The authorities that the API server has to trust, in a file that another program renews."""

    every = FILES_SECONDS

    def __init__(self, authority: Path) -> None:
        self._authority = authority

    async def current(self) -> bytes:
        """Read the file. Raises FixError if it cannot be read."""
        return await asyncio.to_thread(_read, self._authority, "authority")


async def first(current: Callable[[], Awaitable[Value]], what: str) -> Value:
    """Return the first value of a source, once what it depends on is there. what: the value, in words for the log."""
    failed = 0
    while True:
        try:
            return await current()
        except RetryError as error:
            failed += 1
            # Warns only after 1, 2, 4, 8 … failures, so as not to fill the log.
            log_failure = log.warning if failed.bit_count() == 1 else log.debug
            log_failure(f"the webhook waits for {what}", error=str(error))
        await asyncio.sleep(WAIT_SECONDS)


async def keep(source: Source[Value], used: Value, *, use: Callable[[Value], Awaitable[object]], failure: str) -> None:
    """Use every change of the source, starting from `used`, until cancelled.

    Failures are retried, and logged by the words in `failure`.
    """
    while True:
        await asyncio.sleep(source.every)
        try:
            current = await source.current()
            if current != used:
                await use(current)
        except MusterError as error:
            log.warning(failure, error=str(error))
        else:
            used = current


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FixError(f"webhook.{setting}: {path} cannot be read: {error.strerror}") from error
