"""The dashboard as a process of its own, under the account that the chart gives it, and what visits it by https."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.controlplane import ControlPlane, users
from tests.controlplane.clients import Client
from tests.e2e import rights
from tests.e2e.musters import ROOT, Muster

MANIFEST = ROOT / "deploy" / "manifests" / "dashboard.yaml"
ACCOUNT = "/api/v1/namespaces/muster-system/serviceaccounts/muster-dashboard"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
HOST = "127.0.0.1"
LISTENS = "the dashboard listens"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A dashboard that listens. authority: PEM file of whoever has signed its certificate."""

    muster: Muster
    authority: Path

    @property
    def port(self) -> int:
        [line] = [line for line in self.muster.log.splitlines() if LISTENS in line]
        return int(line.partition("port=")[2].split()[0])

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def get(
        self, path: str, *, token: str = "", shows: "Pair | None" = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask for a page as a browser does. shows: a client certificate."""
        trusting = ssl.create_default_context(cafile=str(self.authority))
        if shows is not None:
            trusting.load_cert_chain(shows.certificate, shows.key)
        sent = {"Accept": "text/html", **(headers or {})}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = http.client.HTTPSConnection(HOST, self.port, context=trusting, timeout=30)
        try:
            connection.request("GET", path, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        finally:
            connection.close()


def grant(control_plane: ControlPlane) -> Client:
    """Make the account with the rights of deploy/manifests, and return what has them."""
    documents = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] in RIGHTS]
    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    return replace(control_plane.client(), token=rights.token(control_plane, ACCOUNT))


def settings(control_plane: ControlPlane, account: Client, folder: Path, signers: "Signers") -> dict[str, Any]:
    """Return the settings of a dashboard that serves TLS, and believes a proxy by its certificate."""
    text = users.kubeconfig(client=account, user="dashboard", authority=control_plane.authority)
    shown = signers.pages.leaf(folder / "pages", HOST)
    keys = users.write_secret(folder / "session-keys", "a secret that is long enough for this\n")
    return {
        "roles": ["dashboard"],
        "kubeconfig": str(users.write_secret(folder / "kubeconfig", text)),
        "dashboard": {
            "host": HOST,
            "port": 0,
            "certificate": str(shown.certificate),
            "key": str(shown.key),
            "session_keys": str(keys),
            "user_header": "X-Forwarded-User",
            "groups_header": "X-Forwarded-Groups",
            "authority": str(signers.proxies.certificate(folder / "proxies.crt")),
            "client_names": ["oauth2-proxy"],
        },
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key, PEM."""

    certificate: Path
    key: Path


class Signer:
    """An authority that signs certificates of servers and of clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        made = _begun(self._name, self._key, issuer=self._name).add_extension(constraints, critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())

    def certificate(self, path: Path) -> Path:
        """Write the authority's certificate."""
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def leaf(self, path: Path, name: str) -> Pair:
        """Write a certificate for an address, or for a client of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, issuer=self._name)
        if name == HOST:
            made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = made.add_extension(x509.ExtendedKeyUsage(purposes), critical=False).sign(self._key, hashes.SHA256())
        pair = Pair(path.with_suffix(".crt"), path.with_suffix(".key"))
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


class Signers:
    """Who signs what in one installation: the dashboard's certificate, and those of proxies."""

    def __init__(self) -> None:
        self.pages = Signer("pages")
        self.proxies = Signer("proxies")


def _begun(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )
