"""Events: their JSON, and a filter of repetitions and bursts. It does no I/O; `status` sends them."""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from admission.api.muster.status_reports import Notice
from admission.api.values import names

REPORTER = "muster.dev/controller"

REPEAT_SECONDS = 300.0
"""A repetition about the same object within this time is counted and not sent."""

BURST = 50.0
PER_SECOND = 5.0
"""Token bucket of Events: the burst and the rate, so that a broken cluster is not flooded with Events."""

MOST_REMEMBERED = 10_000
LONGEST_NOTE = 1024
LONGEST_NAME = 230


@dataclass(slots=True)
class RecentEvent:
    """An Event: its name, how often it occurred, and when it was sent last, in seconds of a monotonic clock."""

    name: str
    sent: float
    count: int = 1


@dataclass(slots=True)
class EventFilter:
    """The recent Events, and the token bucket."""

    _recent: dict[tuple[str, ...], RecentEvent] = field(default_factory=dict)
    _tokens: float = BURST
    _at: float = 0.0

    def admit(self, notice: Notice, *, now: float) -> RecentEvent | None:
        """Return the Event to send for a notice, None for no Event; a count over 1 marks a repetition."""
        key = _key(notice)
        recent = self._recent.get(key)
        if recent is not None:
            recent.count += 1
            if now - recent.sent < REPEAT_SECONDS:
                return None
        if not self._try_acquire(now):
            return None
        if recent is None:
            recent = RecentEvent(_name(notice, now), now)
            self._remember(key, recent)
        recent.sent = now
        return recent

    def restart_series(self, notice: Notice, *, now: float) -> RecentEvent:
        """Return a new Event for a notice whose Event has expired in the cluster."""
        recent = RecentEvent(_name(notice, now), now)
        self._remember(_key(notice), recent)
        return recent

    def _remember(self, key: tuple[str, ...], recent: RecentEvent) -> None:
        self._recent.pop(key, None)
        self._recent[key] = recent
        if len(self._recent) > MOST_REMEMBERED:
            del self._recent[next(iter(self._recent))]

    def _try_acquire(self, now: float) -> bool:
        self._tokens = min(BURST, self._tokens + max(0.0, now - self._at) * PER_SECOND)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def event(notice: Notice, name: str, *, instance: str, at: datetime) -> dict[str, Any]:
    """Return an Event of events.k8s.io/v1."""
    annotations = {"annotations": {names.GANG_UID: notice.gang_uid}} if notice.gang_uid else {}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace(notice), **annotations},
        "eventTime": micro_time(at),
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
        "action": notice.action[:128],
        "reason": notice.reason[:128],
        "regarding": {
            "apiVersion": notice.api_version,
            "kind": notice.kind,
            "name": notice.name,
            "uid": str(notice.uid),
            **({"namespace": notice.namespace} if notice.namespace else {}),
        },
        "note": _cut_bytes(notice.message),
        "type": str(notice.type),
    }


def series(count: int, *, at: datetime) -> dict[str, Any]:
    """Return the patch of an Event for a repetition."""
    return {"series": {"count": count, "lastObservedTime": micro_time(at)}}


def namespace(notice: Notice) -> str:
    """Return the namespace of the Event; those about cluster-scoped objects are in `default`."""
    return notice.namespace or "default"


def micro_time(moment: datetime) -> str:
    """Return a time as metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _key(notice: Notice) -> tuple[str, ...]:
    return (notice.kind, notice.namespace, notice.name, notice.uid, notice.reason, notice.message)


def _name(notice: Notice, now: float) -> str:
    digest = hashlib.sha256("\0".join((*_key(notice), repr(now))).encode()).hexdigest()
    return f"{notice.name[:LONGEST_NAME]}.{digest[:16]}"


def _cut_bytes(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= LONGEST_NOTE else raw[: LONGEST_NOTE - 3].decode(errors="ignore") + "…"
