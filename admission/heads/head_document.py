"""Kept heads as text: of the ConfigMap, of a file that heads were appended to, of `muster ledger heads`, or of logs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.errors import FixError
from admission.heads import key_history, signed_head
from admission.heads.key_history import PublicKey
from admission.heads.signed_head import SignedHead

HEADS, KEYS = "heads.jsonl", "keys.json"
"""Entries of the ConfigMap: a head on each line, and the history of public keys."""

MOST = 1_000_000
"""Heads that are read at most: one a minute for almost two years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHeads:
    """Heads as they were kept, and the public keys that were kept beside them; no signature is checked yet."""

    heads: tuple[SignedHead, ...] = ()
    keys: tuple[PublicKey, ...] = ()


def to_entries(kept: KeptHeads) -> dict[str, bytes]:
    """Return the entries of the ConfigMap."""
    lines = b"".join(map(signed_head.to_line, kept.heads))
    return {HEADS: lines, KEYS: json.dumps(key_history.to_json(kept.keys), indent=1).encode()}


def from_entries(entries: Mapping[str, bytes]) -> KeptHeads:
    """Read the entries of the ConfigMap. Raises FixError."""
    try:
        keys = key_history.from_json(json.loads(entries.get(KEYS) or b"[]"))
        return KeptHeads(heads=tuple(_of_lines(entries.get(HEADS, b"").decode())), keys=keys)
    except ValueError as error:
        raise FixError(f"{HEADS} or {KEYS} is not JSON: {error}") from error


def to_json(kept: KeptHeads) -> dict[str, Any]:
    """Return heads and keys as one JSON object."""
    return {"heads": [signed_head.to_json(signed) for signed in kept.heads], "keys": key_history.to_json(kept.keys)}


def from_text(text: str) -> KeptHeads:
    """Read heads from the JSON of `to_json` or of a ConfigMap, or from lines, each a head or a logged one.

    Raises FixError, which names the line.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return KeptHeads(heads=tuple(_of_lines(text)))
    match document:
        case {"kind": "ConfigMap", "data": dict(data)}:
            return from_entries({str(name): str(value).encode() for name, value in data.items()})
        case {"heads": list(heads), **rest}:
            keys = key_history.from_json(rest.get("keys") or [])
            return KeptHeads(heads=tuple(_bounded(map(signed_head.from_json, heads))), keys=keys)
        case _:
            return KeptHeads(heads=tuple(_of_lines(text)))


def keys_from_text(text: str) -> tuple[PublicKey, ...]:
    """Read public keys from what has them beside heads, or from their JSON array alone. Raises FixError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise FixError(f"it is not JSON: {error}") from error
    if isinstance(document, list):
        return key_history.from_json(document)
    keys = from_text(text).keys
    if not keys:
        raise FixError("it has no public keys; `muster ledger heads --format json` prints them")
    return keys


def _of_lines(text: str) -> Iterator[SignedHead]:
    return _bounded(_heads_in(text.splitlines()))


def _heads_in(lines: Sequence[str]) -> Iterator[SignedHead]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            logged = document.get("head") if isinstance(document, dict) else None
            # Other lines of a log tell of no head.
            if isinstance(document, dict) and "event" in document and not isinstance(logged, dict):
                continue
            yield signed_head.from_json(logged if isinstance(logged, dict) else document)
        except (ValueError, FixError) as error:
            raise FixError(f"line {number}: {error}") from error


def _bounded(heads: Iterator[SignedHead]) -> Iterator[SignedHead]:
    for number, signed in enumerate(heads):
        if number == MOST:
            raise FixError(f"there are more than {MOST} heads; pass the newest ones")
        yield signed
