"""Events: their JSON, and a filter of repetitions and bursts. It does no I/O; `status` sends them.

They are Events of v1, as kubelets and kube-controller-manager write them, since `kubectl describe` and `kubectl get
events --sort-by=.lastTimestamp` order them by `lastTimestamp`, which events.k8s.io/v1 does not let its clients write.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from admission.api.muster.status_reports import Notice
from admission.api.values import names, reasons
from admission.api.values.reasons import HoldReason

REPORTER = "muster.dev/controller"

REPEAT_SECONDS = 300.0
"""A repetition about the same object within this time is counted and not sent."""

BURST = 50.0
PER_SECOND = 5.0
"""Token bucket of Events: the burst and the rate, so that a broken cluster is not flooded with Events."""

MOST_REMEMBERED = 10_000
LONGEST_MESSAGE = 1024
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

    def admit(self, notice: Notice, *, now: float, at: datetime) -> RecentEvent | None:
        """Return the Event to send for a notice, None for no Event; a count over 1 marks a repetition.

        now: in seconds of a monotonic clock. at: the same by the calendar.
        """
        key = _key(notice)
        recent = self._recent.get(key)
        if recent is not None:
            recent.count += 1
            if now - recent.sent < REPEAT_SECONDS:
                return None
        if not self._try_acquire(now):
            return None
        if recent is None:
            recent = RecentEvent(_name(notice, at), now)
            self._remember(key, recent)
        recent.sent = now
        return recent

    def restart_series(self, notice: Notice, *, now: float, at: datetime) -> RecentEvent:
        """Return a new Event for a notice whose Event has expired in the cluster."""
        recent = RecentEvent(_name(notice, at), now)
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
    """Return an Event."""
    time = _time(at)
    annotations = {"annotations": {names.GANG_UID: notice.gang_uid}} if notice.gang_uid else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace(notice), **annotations},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": instance[:128],
        "action": notice.action[:128],
        "reason": notice.reason[:128],
        "involvedObject": {
            "apiVersion": notice.api_version,
            "kind": notice.kind,
            "name": notice.name,
            "uid": str(notice.uid),
            **({"namespace": notice.namespace} if notice.namespace else {}),
        },
        "message": _cut_bytes(notice.message),
        "type": str(notice.type),
    }


def repetition(notice: Notice, count: int, *, at: datetime) -> dict[str, Any]:
    """Return the patch of an Event for a repetition."""
    return {"count": count, "lastTimestamp": _time(at), "message": _cut_bytes(notice.message)}


def namespace(notice: Notice) -> str:
    """Return the namespace of the Event; those about cluster-scoped objects are in `default`."""
    return notice.namespace or "default"


def _time(moment: datetime) -> str:
    """Return a time as metav1.Time, in seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(notice: Notice) -> tuple[str, ...]:
    """Return what makes an Event a repetition: a hold repeats whatever its numbers, of which the last are shown."""
    is_hold = isinstance(notice.reason, HoldReason)
    message = reasons.without_numbers(notice.message) if is_hold else notice.message
    return (notice.kind, notice.namespace, notice.name, notice.uid, notice.reason, message)


def _name(notice: Notice, at: datetime) -> str:
    """Return a name with the time, as client-go gives it: `kubectl describe` shows those of one second in its order."""
    nanoseconds = round(at.timestamp() * 1_000_000) * 1000
    digest = hashlib.sha256("\0".join(_key(notice)).encode()).hexdigest()
    return f"{notice.name[:LONGEST_NAME]}.{nanoseconds:016x}{digest[:4]}"


def _cut_bytes(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= LONGEST_MESSAGE else raw[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"
