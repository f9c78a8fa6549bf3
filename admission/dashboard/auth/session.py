"""Sessions: the visitor's own token, sealed in a cookie that only this dashboard can open.

The server keeps nothing, so any replica with the same secrets answers. Whoever steals the cookie has what the token
gives until the session or the token ends, so the cookie never leaves TLS (or this machine), and no script reads it.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from aiohttp import web
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from admission.errors import FixError

COOKIE = "__Host-muster-session"
"""The prefix has browsers refuse it unless it is Secure and of this host alone (RFC 6265bis, 4.1.3.2). They take such a
cookie from http://localhost, too."""

LONGEST_COOKIE = 4_000
"""Characters; browsers keep 4096 of name, value and attributes."""

SHORTEST_SECRET = 32
LONGEST_TOKEN = 16_384

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""RFC 6750 allows less; nothing that is refused here is a token."""


class TooLongError(Exception):
    """The token does not fit into a cookie."""


class Sessions:
    """Seals and opens sessions. secrets: the first seals, each opens."""

    def __init__(self, secrets: Sequence[str], lasting: timedelta) -> None:
        self._fernet = MultiFernet([Fernet(_key(secret)) for secret in secrets])
        self._lasting = lasting

    def begin(self, response: web.StreamResponse, token: str) -> None:
        """Have the browser keep a token. Raises TooLongError."""
        sealed = self._fernet.encrypt(token.encode()).decode()
        if len(sealed) > LONGEST_COOKIE:
            raise TooLongError
        # Lax, so that a link to a gang in a chat opens it; nothing changes by a GET.
        response.set_cookie(
            COOKIE,
            sealed,
            max_age=int(self._lasting.total_seconds()),
            path="/",
            secure=True,
            httponly=True,
            samesite="Lax",
        )

    def end(self, response: web.StreamResponse) -> None:
        """Have the browser forget it."""
        response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Lax")

    def token(self, request: web.Request) -> str | None:
        """Return the token of the session of a request; None where there is none, or none that holds any more."""
        sealed = request.cookies.get(COOKIE)
        if not sealed:
            return None
        try:
            return self._fernet.decrypt(sealed.encode(), ttl=int(self._lasting.total_seconds())).decode()
        except (InvalidToken, UnicodeError):
            return None


def is_token(text: str) -> bool:
    """Return whether a text may be a bearer token at all."""
    return len(text) <= LONGEST_TOKEN and _TOKEN.fullmatch(text) is not None


def read_secrets(path: Path) -> list[str]:
    """Return the secrets of a file, one a line. Raises FixError when it holds none, or one that is too short."""
    setting = f"settings: dashboard.session_keys: {path}"
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FixError(f"{setting}: {getattr(error, 'strerror', None) or error}") from error
    found = [line for line in lines if line]
    if not found or min(map(len, found)) < SHORTEST_SECRET:
        raise FixError(
            f"{setting}: needs at least one line of {SHORTEST_SECRET} characters or more: `openssl rand -base64 32`"
        )
    return found


def _key(secret: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(b"muster dashboard session\n" + secret.encode()).digest())
