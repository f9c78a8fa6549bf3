import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from admission.errors import FixError
from admission.webhook.tls import certificate

NOW = datetime(2026, 8, 1, tzinfo=UTC)
NAMES = ["muster.muster-system.svc", "127.0.0.1", "::1"]


@pytest.fixture(scope="module")
def made() -> certificate.Certificate:
    return certificate.self_made(NAMES, now=NOW)


@pytest.fixture(scope="module")
def leaf(made: certificate.Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made.certificate)


@pytest.fixture(scope="module")
def authority(made: certificate.Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made.authority)


def test_the_leaf_carries_every_name(leaf: x509.Certificate) -> None:
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["muster.muster-system.svc"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]


def test_the_leaf_may_serve_and_nothing_else(leaf: x509.Certificate) -> None:
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert uses(usage) == {"digital_signature"}
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_authority_may_sign_leaves_and_no_authorities(authority: x509.Certificate) -> None:
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage)

    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert usage.critical
    assert uses(usage.value) == {"key_cert_sign", "crl_sign"}


def uses(usage: x509.KeyUsage) -> set[str]:
    """Return what a key may be used for. Where keys do not agree on others, there is no one-way agreement either."""
    assert not usage.key_agreement
    named = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    return {name for name in (*named, "key_cert_sign", "crl_sign") if getattr(usage, name)}


def test_the_leaf_is_signed_by_the_authority(leaf: x509.Certificate, authority: x509.Certificate) -> None:
    leaf.verify_directly_issued_by(authority)
    issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value

    assert issuer.key_identifier == own.digest


def test_keys_are_on_the_curve_p_256(leaf: x509.Certificate) -> None:
    key = leaf.public_key()

    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


def test_validity_starts_early_enough_for_a_clock_that_is_behind(leaf: x509.Certificate) -> None:
    assert leaf.not_valid_before_utc == NOW - certificate.CLOCK_SKEW
    assert leaf.not_valid_after_utc == NOW + certificate.VALIDITY


def test_two_self_made_certificates_never_share_a_key_or_an_authority(made: certificate.Certificate) -> None:
    other = certificate.self_made(NAMES, now=NOW)

    assert other.key != made.key
    assert other.authority != made.authority


def test_the_key_is_not_shown(made: certificate.Certificate) -> None:
    assert "PRIVATE" not in repr(made)


@pytest.mark.parametrize(("names", "message"), [([], "at least one"), (["bücher.example"], "neither a DNS name")])
def test_names_that_cannot_be_used_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(FixError, match=message):
        certificate.self_made(names, now=NOW)


def test_a_key_of_another_certificate_is_refused(made: certificate.Certificate) -> None:
    other = certificate.self_made(NAMES, now=NOW)
    mixed = certificate.Certificate(certificate=made.certificate, key=other.key, authority=made.authority)

    with pytest.raises(FixError, match="cannot be used"):
        certificate.load(certificate.server_context(), mixed)


def test_the_key_file_is_private_and_gone_afterwards(made: certificate.Certificate) -> None:
    seen: list[tuple[Path, int, int]] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, *files: object, **_rest: object) -> None:
            path = Path(str(files[1]))
            seen.append((path, path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777))

    certificate.load(Context(ssl.PROTOCOL_TLS_SERVER), made)

    ((path, file_mode, folder_mode),) = seen
    assert (file_mode, folder_mode) == (0o600, 0o700)
    assert not path.parent.exists()


def test_tls_before_1_2_is_not_spoken() -> None:
    assert certificate.server_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_certificate_has_its_expiry_time(made: certificate.Certificate) -> None:
    assert made.expires - NOW == timedelta(days=365)


def test_of_a_bundle_the_end_of_that_authority_counts_which_signed_the_leaf() -> None:
    short, long = (certificate.authority(now=NOW, validity=timedelta(days=days)) for days in (30, 90))
    leaf = certificate.issue(short, NAMES, now=NOW, validity=timedelta(days=7))

    def ends(bundle: bytes) -> datetime | None:
        return replace(leaf, authority=bundle).authority_expires

    assert ends(short.certificate + long.certificate) == short.expires
    assert ends(long.certificate) is None
    assert ends(b"no certificate") is None
    assert ends(b"") is None
