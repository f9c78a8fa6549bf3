"""Authorities and leaves over time: at every moment each leaf that is shown is trusted by the caBundle of then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from admission.errors import ConflictError, FixError, RetryError
from admission.webhook.tls import ca_rotation, certificate
from admission.webhook.tls.ca_rotation import Lifetimes
from admission.webhook.tls.certificate import Certificate
from admission.webhook.tls.rotation import TRIES, OwnAuthorities, OwnCertificates

NOW = datetime(2026, 8, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TERMS = Lifetimes()
NAMES = ["muster.muster-system.svc"]


@dataclass
class MemoryVault:
    """A Secret in memory. behind: how many of the next writes find that somebody else was faster."""

    entries: Mapping[str, bytes] | None = None
    version: int = 0
    behind: int = 0
    writes: int = 0

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        return None if self.entries is None else (self.entries, str(self.version))

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        if self.behind:
            self.behind -= 1
            raise ConflictError("the object has been modified")
        if version != (None if self.entries is None else str(self.version)):
            raise ConflictError("the object has been modified")
        self.entries, self.version, self.writes = entries, self.version + 1, self.writes + 1


@dataclass
class Clock:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Fleet:
    """Controllers and webhooks that share a Secret, each webhook with a leaf, and the caBundle that was written last.

    The first of the controllers keeps the authorities; the others have just started.
    """

    terms: Lifetimes
    vault: MemoryVault = field(default_factory=MemoryVault)
    clock: Clock = field(default_factory=Clock)
    controllers: list[OwnAuthorities] = field(default_factory=list)
    webhooks: list[OwnCertificates] = field(default_factory=list)
    shown: dict[int, Certificate] = field(default_factory=dict)
    bundle: bytes = b""

    async def start(self) -> None:
        """Start one more controller and one more webhook."""
        self.controllers.append(OwnAuthorities(self.vault, self.terms, self.clock))
        await self.keep(len(self.controllers) - 1)
        self.webhooks.append(OwnCertificates(self.vault, NAMES, self.terms, self.clock))
        await self.look(len(self.webhooks) - 1)

    async def keep(self, number: int = 0) -> None:
        """Have a controller look at the Secret, and publish what it has."""
        self.bundle = await self.controllers[number].current()

    async def look(self, number: int = 0) -> None:
        """Have a webhook look at the Secret."""
        self.shown[number] = await self.webhooks[number].current()

    async def current(self, number: int = 0) -> None:
        await self.keep(number)
        await self.look(number)

    def check(self) -> int:
        """Every leaf is trusted now. Return how many authorities are."""
        trusted = x509.load_pem_x509_certificates(self.bundle)
        for shown in self.shown.values():
            leaf = x509.load_pem_x509_certificate(shown.certificate)
            assert leaf.not_valid_before_utc <= self.clock.now < leaf.not_valid_after_utc
            [issuer] = [one for one in trusted if one.subject == leaf.issuer and _issued(leaf, one)]
            assert self.clock.now < issuer.not_valid_after_utc
            assert leaf.not_valid_after_utc <= issuer.not_valid_after_utc
        return len(trusted)


def _issued(leaf: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the key identifiers say so, and then the signature has to."""
    named = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    if named != issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest:
        return False
    leaf.verify_directly_issued_by(issuer)
    return True


async def test_a_new_authority_is_published_before_its_first_signature() -> None:
    fleet = Fleet(TERMS)
    await fleet.start()
    first = fleet.shown[0].authority
    fleet.clock.now = NOW + TERMS.authority - TERMS.overlap

    await fleet.current(0)
    assert fleet.check() == 2
    assert fleet.shown[0].authority == first
    fleet.clock.now += TERMS.publication_delay
    await fleet.current(0)

    assert fleet.shown[0].authority == first, "a leaf that is fresh stays"
    fleet.clock.now += TERMS.leaf / 2
    await fleet.current(0)
    assert fleet.shown[0].authority != first


async def test_processes_that_begin_at_the_same_time_agree() -> None:
    fleet = Fleet(TERMS)
    fleet.vault.behind = TRIES - 1

    await fleet.start()
    await fleet.start()

    assert fleet.vault.writes == 1
    assert fleet.check() == 1


async def test_a_process_that_is_always_too_late_says_so() -> None:
    fleet = Fleet(TERMS)
    fleet.vault.behind = TRIES

    with pytest.raises(ConflictError):
        await fleet.start()


async def test_trusted_authorities_stay_trusted_when_the_secret_is_deleted() -> None:
    fleet = Fleet(TERMS)
    await fleet.start()
    before = fleet.bundle
    fleet.vault.entries = None

    await fleet.current(0)

    assert fleet.bundle == before
    assert fleet.vault.entries is not None


async def test_a_leaf_of_an_authority_that_is_no_longer_shared_is_replaced_at_once() -> None:
    fleet, other = Fleet(TERMS), Fleet(TERMS)
    await fleet.start()
    await other.start()
    fleet.vault.entries = other.vault.entries

    await fleet.current(0)

    assert fleet.check() == 1


async def test_after_a_pause_longer_than_all_authorities_a_new_authority_signs() -> None:
    fleet = Fleet(TERMS)
    await fleet.start()
    fleet.clock.now += 2 * TERMS.authority

    await fleet.current(0)

    assert fleet.check() == 1


async def test_a_webhook_waits_for_a_controller_to_make_the_authorities_and_makes_none() -> None:
    vault = MemoryVault()
    webhook = OwnCertificates(vault, NAMES, TERMS, Clock())

    with pytest.raises(RetryError, match="a controller has yet to make"):
        await webhook.current()

    assert vault.entries is None


async def test_a_webhook_neither_renews_nor_uses_authorities_that_have_expired() -> None:
    fleet = Fleet(TERMS)
    await fleet.start()
    fleet.clock.now += TERMS.authority

    with pytest.raises(RetryError):
        await fleet.look()

    assert fleet.vault.writes == 1


async def test_a_webhook_goes_on_with_what_it_knows_while_the_secret_is_gone() -> None:
    fleet = Fleet(TERMS)
    await fleet.start()
    fleet.vault.entries = None
    fleet.clock.now += TERMS.leaf

    await fleet.look()

    assert fleet.check() == 1
    assert fleet.vault.entries is None


def test_the_list_of_authorities_survives_a_round_trip() -> None:
    known = tuple(certificate.authority(now=NOW, validity=DAY) for _ in range(2))

    assert ca_rotation.read(ca_rotation.encode(known)) == known


A, B = (ca_rotation.encode((certificate.authority(now=NOW, validity=DAY),)) for _ in range(2))
WRONG = {
    "nothing": ({}, "cannot be read"),
    "no certificate": (A | {"ca.crt": b"x"}, "cannot be read"),
    "no key": (A | {"ca.key": b""}, "1 certificates in ca.crt, 0 keys"),
    "the key of another": (A | {"ca.key": B["ca.key"]}, "not that of its certificate"),
    "a broken key": (
        A | {"ca.key": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"},
        "key of the webhook's authority cannot be read",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_secret_that_is_no_list_of_authorities_is_refused(data: dict[str, bytes], message: str) -> None:
    with pytest.raises(FixError, match=message):
        ca_rotation.read(data)


def test_a_leaf_that_outlives_the_overlap_is_refused_with_what_would_do() -> None:
    with pytest.raises(FixError, match="leaf_hours of at most 648"):
        Lifetimes(leaf=28 * DAY).check()
