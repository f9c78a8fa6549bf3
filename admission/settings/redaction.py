"""Masking of passwords, tokens and keys in settings and logs, by their form."""

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
    """Return the patterns of the two forms of a password in a URL. letter: a pattern of its characters.

    `://user:password@` extends to the last `@`, since the password may contain characters that delimit other parts.
    """
    return (
        re.compile(rf"(?P<start>://[^\s:/@?'\"]*:){letter}*@"),
        re.compile(rf"(?P<start>\b(?:ssl)?password=)(?:(?![&#]){letter})+", re.IGNORECASE),
    )


_IN_A_URL = _passwords(r"[\s\S]")
_IN_TEXT = (_KEY, *_passwords(r"[^\s'\"]"), *_TOKENS)


def format_value(field: Field, value: Any) -> Any:
    """Return a value, with its password masked if the setting may contain one."""
    if not field.secret or not isinstance(value, str):
        return value
    return _mask(_IN_A_URL, value)


def masked(text: str) -> str:
    """Return a text with everything masked that has the form of a password, token or key."""
    return _mask(_IN_TEXT, text)


def _mask(forms: Sequence[re.Pattern[str]], text: str) -> str:
    for form in forms:
        text = form.sub(_mask_match, text)
    return text


def _mask_match(found: re.Match[str]) -> str:
    return found["start"] + MASK + ("@" if found[0].endswith("@") else "")
