"""Certificates of the webhook: own authorities and their leaves, as the API server's TLS client (Go) accepts them.

Go checks only the leaf's subject alternative names, requires serverAuth in the extended key usage, and an issuer with
basicConstraints CA:TRUE that may sign certificates. OpenSSL in strict mode also requires both key identifiers.
"""

import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from admission.errors import FixError

CLOCK_SKEW = timedelta(minutes=5)
"""How far the API server's clock may be behind when a new certificate is first used."""

VALIDITY = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A leaf with its key, and the authority that clients have to trust; all PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes

    @property
    def expires(self) -> datetime:
        """Return when the leaf is no longer valid."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def authority_expires(self) -> datetime | None:
        """Return when the authority that signed the leaf expires; None if its certificate is not known here."""
        return max((signer.not_valid_after_utc for signer in _signers(self)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority with its key; both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)

    @property
    def begins(self) -> datetime:
        """Return when it was made."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_before_utc + CLOCK_SKEW

    @property
    def expires(self) -> datetime:
        """Return when it expires; nothing that it signed is trusted after that."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


def authority(*, now: datetime, validity: timedelta) -> Authority:
    """Make an authority that may sign only leaves."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _authority(key, now - CLOCK_SKEW, now + validity)
    return Authority(certificate=pem(made), key=_pem(key))


def issue(signer: Authority, names: Sequence[str], *, now: datetime, validity: timedelta) -> Certificate:
    """Make a leaf for these DNS names and IP addresses. It expires no later than the authority that signs it.

    Raises FixError if there is no name, or if the authority's key cannot be used.
    """
    if not names:
        raise FixError("the webhook's certificate needs at least one DNS name or IP address")
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(signer.certificate)
    end = min(now + validity, signer.expires)
    leaf = _leaf(key, issuer, names).not_valid_before(now - CLOCK_SKEW).not_valid_after(end)
    return Certificate(
        certificate=pem(leaf.sign(_signing_key(signer), hashes.SHA256())),
        key=_pem(key),
        authority=signer.certificate,
    )


def self_made(names: Sequence[str], *, now: datetime, validity: timedelta = VALIDITY) -> Certificate:
    """Make a leaf with an authority of its own, whose key is discarded."""
    return issue(authority(now=now, validity=validity), names, now=now, validity=validity)


def server_context() -> ssl.SSLContext:
    """Return an empty context for the server: TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a certificate into a context, for new connections. Raises FixError if key and leaf do not match.

    `ssl` reads only files, so the key is in a private directory for that moment.
    """
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        chain, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for path, pem in ((chain, certificate.certificate), (key, certificate.key)):
            path.touch(mode=0o600)
            path.write_bytes(pem)
        try:
            context.load_cert_chain(chain, key)
        except ssl.SSLError as error:
            raise FixError(f"the webhook's certificate or key cannot be used: {error}") from error


def check(certificate: Certificate) -> None:
    """Raise FixError if a leaf cannot be read or does not match its key: one file may be replaced before the other."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate.certificate)
        key = serialization.load_pem_private_key(certificate.key, None)
    except (ValueError, TypeError) as error:
        raise FixError(f"the webhook's certificate or key cannot be read: {error}") from error
    if key.public_key() != leaf.public_key():
        raise FixError("the webhook's certificate and key do not belong together")


def _signers(certificate: Certificate) -> Iterator[x509.Certificate]:
    """Yield the bundle's certificates that signed the leaf: several, if the authority was renewed with the same key."""
    leaf = x509.load_pem_x509_certificate(certificate.certificate)
    with suppress(ValueError):  # no valid bundle: the API server's trust is configured elsewhere
        for issuer in x509.load_pem_x509_certificates(certificate.authority):
            with suppress(InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
                leaf.verify_directly_issued_by(issuer)
                yield issuer


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def checked(signer: Authority) -> Authority:
    """Return the authority if its key matches its certificate. Raises FixError otherwise."""
    _signing_key(signer)
    return signer


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _signing_key(signer: Authority) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(signer.key, None)
    except (ValueError, TypeError) as error:
        raise FixError(f"the key of the webhook's authority cannot be read: {error}") from error
    issuer = x509.load_pem_x509_certificate(signer.certificate)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuer.public_key():
        raise FixError("the key of the webhook's authority is not that of its certificate")
    return key


def _authority(key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime) -> x509.Certificate:
    name = _named("Muster webhook authority")
    return (
        _builder(key.public_key(), subject=name, issuer=name)
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, names: Sequence[str]
) -> x509.CertificateBuilder:
    issuer_key = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(key.public_key(), subject=_named("Muster webhook"), issuer=authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    )


def _builder(key: ec.EllipticCurvePublicKey, *, subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise FixError(f"{name!r} is neither a DNS name nor an IP address") from error


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
