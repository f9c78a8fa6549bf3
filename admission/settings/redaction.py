"""What nobody may read in a setting or a log: passwords, tokens and keys, known by their form."""

import re
from collections.abc import Sequence
from typing import Any

from admission.settings.schema import Field

MASK = "***"

_TOKENS = (
    # RFC 7235, with or without the header's name in front.
    re.compile(r"(?P<start>\b(?:bearer|authorization['\"]?\s*[:=]\s*['\"]?\w+)\s+)[^\s'\",;]+", re.IGNORECASE),
    # RFC 7519: header, payload and signature in base64url, of which the header begins with `{"`. Encrypted ones: five.
    re.compile(r"(?P<start>)\beyJ[\w-]+(?:\.[\w-]*)+"),
)
_KEY = re.compile(r"(?P<start>)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def _passwords(letter: str) -> tuple[re.Pattern[str], ...]:
    """Return the two forms of a password in a URL. letter: what it may hold.

    `://user:password@` reaches to the last `@`, since it may hold what ends others.
    """
    return (
        re.compile(rf"(?P<start>://[^\s:/@?'\"]*:){letter}*@"),
        re.compile(rf"(?P<start>\b(?:ssl)?password=)(?:(?![&#]){letter})+", re.IGNORECASE),
    )


_IN_A_URL = _passwords(r"[\s\S]")
_IN_TEXT = (_KEY, *_passwords(r"[^\s'\"]"), *_TOKENS)


def shown(field: Field, value: Any) -> Any:
    """Return a value, with the password masked where the setting may hold one."""
    if not field.secret or not isinstance(value, str):
        return value
    return _without(_IN_A_URL, value)


def masked(text: str) -> str:
    """Return a text with the mask in place of what has the form of a password, token or key."""
    return _without(_IN_TEXT, text)


def _without(forms: Sequence[re.Pattern[str]], text: str) -> str:
    for form in forms:
        text = form.sub(_leave_the_start, text)
    return text


def _leave_the_start(found: re.Match[str]) -> str:
    return found["start"] + MASK + ("@" if found[0].endswith("@") else "")
