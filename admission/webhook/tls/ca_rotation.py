"""The rotation of the webhook's authorities: which are trusted, which one signs, when to add one; pure rules over time.

All processes share one list of authorities; controllers write it, and publish all of it as caBundle. A new authority is
in the list for a while before it signs, so that it is in the caBundle before any process serves a leaf of it; an old
one stays until it expires, and no leaf outlives its authority. So every leaf is trusted at every moment, whichever
process serves it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from admission.errors import FixError
from admission.webhook.tls import certificate
from admission.webhook.tls.certificate import Authority, Certificate

CERTIFICATES, KEYS = "ca.crt", "ca.key"
"""Entries of the Secret with the list: PEM, the oldest first, in the same order in both."""

_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)

_HOW_TO_FIX = "delete the Secret, and another one is made"

Authorities = tuple[Authority, ...]
"""The oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Lifetimes. Leaves are renewed at half of theirs."""

    authority: timedelta = timedelta(days=90)
    leaf: timedelta = timedelta(days=7)

    @property
    def overlap(self) -> timedelta:
        """How long before an authority expires the next one is added."""
        return self.authority / 3

    @property
    def publication_delay(self) -> timedelta:
        """How long a new authority is published before it signs. All processes must have read it by then."""
        return self.authority / 30

    @property
    def check_interval(self) -> timedelta:
        """How often each process reads the shared list and checks the age of its own leaf."""
        return min(self.publication_delay, self.leaf) / 8

    def check(self) -> None:
        """Raise FixError if an authority could expire before the last leaf that it signs."""
        if not timedelta(0) < self.leaf <= self.overlap - self.publication_delay:
            most = self.overlap - self.publication_delay
            raise FixError(
                f"settings: webhook: leaves that last {self.leaf} do not go with authorities that last"
                f" {self.authority}; choose leaf_hours of at most {most / timedelta(hours=1):g}, or more authority_days"
            )


def rotate(authorities: Authorities, lifetimes: Lifetimes, *, now: datetime) -> Authorities:
    """Return the list for this time: without expired authorities, with a new one once the newest is near its end."""
    left = valid(authorities, now=now)
    if left and now < left[-1].expires - lifetimes.overlap:
        return left
    return (*left, certificate.authority(now=now, validity=lifetimes.authority))


def valid(authorities: Authorities, *, now: datetime) -> Authorities:
    """Return those that have not expired."""
    return tuple(authority for authority in authorities if now < authority.expires)


def signer(authorities: Authorities, lifetimes: Lifetimes, *, now: datetime) -> Authority:
    """Return the newest authority that has been published long enough to be trusted; if there is none, the oldest."""
    published = [authority for authority in authorities if now >= authority.begins + lifetimes.publication_delay]
    return published[-1] if published else authorities[0]


def bundle(authorities: Authorities) -> bytes:
    """Return all certificates as PEM: the caBundle."""
    return b"".join(authority.certificate for authority in authorities)


def needs_renewal(leaf: Certificate, authorities: Authorities, lifetimes: Lifetimes, *, now: datetime) -> bool:
    """Whether a leaf has to be replaced: half of its lifetime is over, or its authority is no longer in the list."""
    return now >= leaf.expires - lifetimes.leaf / 2 or leaf.authority not in [
        authority.certificate for authority in authorities
    ]


def encode(authorities: Authorities) -> dict[str, bytes]:
    """Return the entries of a Secret."""
    return {CERTIFICATES: bundle(authorities), KEYS: b"".join(authority.key for authority in authorities)}


def is_stored(data: Mapping[str, bytes]) -> bool:
    """Whether a Secret has a list, readable or not; it may have other entries alone."""
    return CERTIFICATES in data or KEYS in data


def read(data: Mapping[str, bytes]) -> Authorities:
    """Read the entries of a Secret. Raises FixError if they are not a list as `encode` makes it."""
    keys = _KEY.findall(data.get(KEYS, b""))
    try:
        found = x509.load_pem_x509_certificates(data.get(CERTIFICATES, b""))
    except ValueError as error:
        raise FixError(f"webhook.secret: {CERTIFICATES} cannot be read: {error}; {_HOW_TO_FIX}") from error
    if len(keys) != len(found):
        raise FixError(f"webhook.secret: {len(found)} certificates in {CERTIFICATES}, {len(keys)} keys; {_HOW_TO_FIX}")
    return tuple(
        certificate.checked(Authority(certificate=certificate.pem(loaded), key=key))
        for loaded, key in zip(found, keys, strict=True)
    )
