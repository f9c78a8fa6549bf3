"""The keys that sign heads: the one in use, and the public parts of all that were in use before.

A key is in use from one time to another. When it is old, or its Secret was deleted, another one takes its place; its
private part is then gone, and its public part stays, so that the heads of its time can be checked for good.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from admission.errors import FixError
from admission.heads import signed_head
from admission.heads.signed_head import Head, SignedHead

PRIVATE, PUBLIC = "private.pem", "public.json"
"""Entries of the Secret: the key in use as PKCS #8, and the history of public keys."""

MOST_KEYS = 1_000
"""Public keys of a history at most: a key a day for almost three years."""

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two leaders may differ: a head may be so much older or younger than its key's time."""

_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, binascii.Error)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A public key, and the time in which it signs. until: None for the one in use."""

    raw: bytes
    since: datetime
    until: datetime | None = None

    @property
    def id(self) -> str:
        """Return the first 16 digits of the SHA-256 of its 32 bytes."""
        return hashlib.sha256(self.raw).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """The private key in use, and all public keys, the oldest first; the last one is that of the private key."""

    private: Ed25519PrivateKey
    keys: tuple[PublicKey, ...]


def rotated(ring: KeyRing | None, known: Iterable[PublicKey], *, lifetime: timedelta, now: datetime) -> KeyRing:
    """Return the keys for this time: a new one where there is none, or the one in use is older than `lifetime`.

    known: further public keys of the past, which are kept.
    """
    if ring is not None and now < ring.keys[-1].since + lifetime:
        return replace(ring, keys=_merged(ring.keys[:-1], known, ring.keys[-1]))
    private = Ed25519PrivateKey.generate()
    before = ring.keys if ring is not None else ()
    return KeyRing(private=private, keys=_merged(before, known, PublicKey(raw=_raw(private), since=now)))


def _merged(before: Iterable[PublicKey], known: Iterable[PublicKey], last: PublicKey) -> tuple[PublicKey, ...]:
    """Return former keys in their order, each until the next one begins, and the key in use."""
    former = {key.id: key for key in (*known, *before) if key.id != last.id}
    ordered = sorted(former.values(), key=lambda key: (key.since, key.id))
    followers = [*ordered[1:], last]
    ended = [
        key if key.until is not None else replace(key, until=max(key.since, follower.since))
        for key, follower in zip(ordered, followers, strict=False)
    ]
    return (*ended[-(MOST_KEYS - 1) :], last)


def sign(head: Head, ring: KeyRing) -> SignedHead:
    """Sign a head with the key in use."""
    key = ring.keys[-1].id
    return SignedHead(head=head, key=key, signature=ring.private.sign(signed_head.signed_bytes(head, key)))


def problem(signed: SignedHead, keys: Iterable[PublicKey]) -> str | None:
    """Return why a signature does not count; None if it does."""
    key = next((key for key in keys if key.id == signed.key), None)
    if key is None:
        return f"no key of the history is {signed.key}, which it names"
    try:
        public = Ed25519PublicKey.from_public_bytes(key.raw)
        public.verify(signed.signature, signed_head.signed_bytes(signed.head, signed.key))
    except InvalidSignature:
        return f"it is not signed by the key {signed.key}, which it names"
    if signed.head.at < key.since - CLOCK_SKEW or (key.until is not None and signed.head.at > key.until + CLOCK_SKEW):
        until = "" if key.until is None else f" to {signed_head.instant(key.until)}"
        return f"key {signed.key} was in use from {signed_head.instant(key.since)}{until}"
    return None


def to_secret(ring: KeyRing) -> dict[str, bytes]:
    """Return the entries of the Secret."""
    private = ring.private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {PRIVATE: private, PUBLIC: json.dumps(to_json(ring.keys), indent=1).encode()}


def from_secret(entries: Mapping[str, bytes]) -> KeyRing:
    """Read the entries of the Secret. Raises FixError if they are not as `to_secret` makes them."""
    try:
        private = serialization.load_pem_private_key(entries[PRIVATE], password=None)
        keys = from_json(json.loads(entries[PUBLIC]))
    except (*_MALFORMED, FixError) as error:
        raise FixError(f"its entries {PRIVATE} and {PUBLIC} are no keys of heads: {error!r}") from error
    if not isinstance(private, Ed25519PrivateKey) or not keys or keys[-1].raw != _raw(private):
        raise FixError(f"its entry {PRIVATE} is not the Ed25519 key of the last entry in {PUBLIC}")
    return KeyRing(private=private, keys=keys)


def to_json(keys: Sequence[PublicKey]) -> list[dict[str, Any]]:
    """Return public keys as JSON: id, public (base64 of its 32 bytes), since, until."""
    return [
        {
            "id": key.id,
            "public": base64.b64encode(key.raw).decode(),
            "since": signed_head.instant(key.since),
            "until": None if key.until is None else signed_head.instant(key.until),
        }
        for key in keys
    ]


def from_json(document: object) -> tuple[PublicKey, ...]:
    """Return the public keys of a JSON array, in its order. Raises FixError."""
    try:
        if not isinstance(document, list) or len(document) > MOST_KEYS:
            raise FixError(f"keys of heads: an array of {MOST_KEYS} at most is expected")
        return tuple(_public_key(item) for item in document)
    except _MALFORMED as error:
        raise FixError(f"keys of heads: each has id, public, since and until: {error!r}") from error


def _public_key(item: dict[str, Any]) -> PublicKey:
    until = item["until"]
    key = PublicKey(
        raw=base64.b64decode(item["public"], validate=True),
        since=_moment(item["since"]),
        until=None if until is None else _moment(until),
    )
    Ed25519PublicKey.from_public_bytes(key.raw)
    if key.id != item["id"]:
        raise ValueError(f"key {item['id']} has the id {key.id}")
    return key


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} says no time zone")
    return at.astimezone(UTC)


def _raw(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
