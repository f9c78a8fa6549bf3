"""Who may talk to a test's API server: users with static tokens, the kubeconfigs they use, and a signing key.

Tokens are drawn anew for each control plane, so a kubeconfig left lying about opens nothing.
"""

import base64
import csv
import io
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.clients import Client

ADMIN = "admin"
SCHEDULER = "system:kube-scheduler"
CONTROLLER_MANAGER = "system:kube-controller-manager"
KWOK = "kwok"

# User name -> groups. `muster` has no rights until a test grants some, nor have alice and bob: that is their use.
USERS: Mapping[str, tuple[str, ...]] = {
    ADMIN: ("system:masters",),
    KWOK: ("system:masters",),
    SCHEDULER: (),
    CONTROLLER_MANAGER: (),
    "muster": ("muster",),
    "alice": ("team-a",),
    "bob": ("team-b",),
}

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The users of one control plane and their tokens."""

    groups: Mapping[str, tuple[str, ...]]
    tokens: Mapping[str, str] = field(repr=False)

    @classmethod
    def drawn(cls, extra: Mapping[str, tuple[str, ...]]) -> "Users":
        groups = {**USERS, **extra}
        return cls(groups=groups, tokens={user: secrets.token_urlsafe(24) for user in groups})

    def token_file(self) -> str:
        """Render what kube-apiserver's --token-auth-file reads: token, user, uid, groups."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        for user, groups in self.groups.items():
            rows.writerow([self.tokens[user], user, f"uid-{user}", ",".join(groups)])
        return text.getvalue()

    def token(self, user: str) -> str:
        if user not in self.tokens:
            msg = f"no user {user!r}: name it in ControlPlane(users=…), or take one of {', '.join(self.tokens)}"
            raise LookupError(msg)
        return self.tokens[user]


def kubeconfig(*, client: Client, user: str, authority: str, namespace: str = "default") -> str:
    """Render a kubeconfig that verifies the server; JSON, which is YAML, so that no library is needed."""
    cluster = {"server": client.server, "certificate-authority-data": base64.b64encode(authority.encode()).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "controlplane", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": client.token}}],
        "contexts": [{"name": user, "context": {"cluster": "controlplane", "user": user, "namespace": namespace}}],
        "current-context": user,
    }
    return json.dumps(document, indent=2) + "\n"


def signing_key() -> str:
    """Draw the P-256 key that signs service account tokens, in the PEM that Go reads (SEC 1, RFC 5915).

    Written by hand because the standard library makes no keys and the `openssl` command is not on every machine. The
    optional public half is left out; Go computes it.
    """
    secret = secrets.randbelow(P256_ORDER - 1) + 1
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    body = bytes.fromhex("0201010420") + secret.to_bytes(32, "big") + curve
    encoded = base64.encodebytes(bytes([0x30, len(body)]) + body).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{encoded}-----END EC PRIVATE KEY-----\n"


def write_secret(path: Path, text: str) -> Path:
    """Write a file that only its owner may read, from its first byte on."""
    path.touch(mode=0o600)
    path.write_text(text)
    return path
