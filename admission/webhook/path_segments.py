"""The rotation of the secret segment in the webhook's paths: which are served, and which one is registered; pure rules.

It follows that of the authorities (`tls.ca_rotation`): all processes share one list. A new segment is in the list for a
while before it is registered, so that every process has read it by then; an old one is served until it would have
expired as an authority.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.errors import FixError
from admission.webhook.tls.ca_rotation import Lifetimes

ENTRY = "paths"
"""Entry of the Secret with the list: a line for each segment, when it was made and the segment, the oldest first."""

PLAIN = ""
"""Stands for the plain paths that a version of Muster without segments registers."""

RANDOM_BYTES = 20
"""160 bits, as hexadecimal digits: the API server accepts only DNS labels as parts of a webhook's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment, and when it was made."""

    begins: datetime
    text: str = field(repr=False)


Segments = tuple[Segment, ...]
"""The oldest first."""


def rotate(segments: Segments, lifetimes: Lifetimes, *, now: datetime) -> Segments:
    """Return the list as of a time: without expired segments, with a new one once the newest is near its end."""
    valid = tuple(segment for segment in segments if now < segment.begins + lifetimes.authority)
    if valid and now < valid[-1].begins + lifetimes.authority - lifetimes.overlap:
        return valid
    return (*valid, _made(now))


def renewed_for_upgrade(segments: Segments, lifetimes: Lifetimes, *, now: datetime) -> Segments:
    """Return the list with a new segment, unless its newest is not ready yet: for a process that finds plain paths.

    An earlier version of Muster has registered them. Its processes read no list of segments, so the delay until a
    segment is registered begins again.
    """
    if segments and not _is_ready(segments[-1], lifetimes, now=now):
        return segments
    return (*segments, _made(now))


def union(segments: Iterable[Segment], others: Iterable[Segment]) -> Segments:
    """Return the segments of both lists. One of them may be written by a process that had not read the other."""
    by_text = {segment.text: segment for segment in (*segments, *others)}
    return tuple(sorted(by_text.values(), key=lambda segment: (segment.begins, segment.text)))


def registered(segments: Segments, lifetimes: Lifetimes, *, now: datetime, named: Collection[str]) -> str:
    """Return the segment to register, or `PLAIN`. named: in the webhook configurations.

    It is the newest that was in the list for long enough. Until there is one, the configurations are left as they are,
    since other processes may serve nothing else: those of an earlier version serve only plain paths.
    """
    ready = [segment.text for segment in segments if _is_ready(segment, lifetimes, now=now)]
    if PLAIN in named:
        return segments[-1].text if segments[-1].text in ready else PLAIN
    if ready:
        return ready[-1]
    kept = [segment.text for segment in segments if segment.text in named]
    return kept[-1] if kept else segments[0].text


def encode(segments: Segments) -> dict[str, bytes]:
    """Return the entry of a Secret."""
    lines = [f"{segment.begins.isoformat()} {segment.text}\n" for segment in segments]
    return {ENTRY: "".join(lines).encode()}


def read(data: Mapping[str, bytes]) -> Segments:
    """Read the entry of a Secret; nothing if there is none. Raises FixError if it is not as `encode` makes it."""
    try:
        return tuple(_segment(line) for line in data.get(ENTRY, b"").decode("ascii").splitlines())
    except ValueError as error:
        raise FixError(f"webhook.secret: {ENTRY} cannot be read; delete this entry, and another one is made") from error


def _made(now: datetime) -> Segment:
    return Segment(begins=now, text=secrets.token_hex(RANDOM_BYTES))


def _is_ready(segment: Segment, lifetimes: Lifetimes, *, now: datetime) -> bool:
    """Whether a segment was in the list for so long that every process has read it."""
    return now >= segment.begins + lifetimes.publication_delay


def _segment(line: str) -> Segment:
    begins, text = line.split()
    made = Segment(begins=datetime.fromisoformat(begins), text=text)
    if made.begins.tzinfo is None or len(text) != 2 * RANDOM_BYTES or not set(text) <= set("0123456789abcdef"):
        raise ValueError
    return made
