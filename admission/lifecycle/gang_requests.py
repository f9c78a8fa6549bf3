"""Requests of users about a gang: to take it back, to try it again at once, or to change its rank while it waits.

A request is a field of the Gang (`spec.request`), so the API server says who may write it. It is answered once: its
`id` is in the status then, by which the next leader knows it. `answer` says what is done; `cycle.steps.evict` does it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from admission.api import suggestions
from admission.api.muster.gang_requests import Action, AnsweredRequest, GangRequest
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request. is_granted: whether anything is done; otherwise outcome says why not."""

    request: GangRequest
    outcome: str
    is_granted: bool

    def recorded(self, group: Group, at: datetime) -> AnsweredRequest:
        """Return what the status says of it. The priority class of an earlier request goes on to count."""
        request, before = self.request, group.record.answered if group.record is not None else None
        is_ranked = self.is_granted and request.action is Action.PRIORITIZE
        return AnsweredRequest(
            id=request.id,
            action=request.action,
            by=request.by,
            reason=request.reason,
            outcome=self.outcome,
            at=at,
            priority_class=request.priority_class if is_ranked else before.priority_class if before else "",
        )


def unanswered(groups: Iterable[Group], answered: Mapping[GangUid, AnsweredRequest]) -> list[tuple[Group, GangRequest]]:
    """Return the requests that have no answer yet. answered: those that this leader has answered, by gang."""
    found = []
    for group in groups:
        record = group.record
        if record is None or record.request is None:
            continue
        known = (answered.get(group.uid), record.answered)
        if not any(one is not None and one.id == record.request.id for one in known):
            found.append((group, record.request))
    return found


def answer(group: Group, request: GangRequest, queue: Queue | None, *, is_ending: bool) -> Answer:
    """Return the answer to a request. is_ending: whether the gang is being taken back already."""
    why_not = _objection(group, request, queue, is_ending=is_ending)
    done = {
        Action.EVICT: "it is taken back, and tried again after a back-off",
        Action.REQUEUE: "its back-off is forgotten, and it is tried again now",
        Action.PRIORITIZE: f"it waits with priority class {request.priority_class}",
    }
    outcome = f"nothing is done: {why_not}" if why_not else done[request.action]
    return Answer(request=request, outcome=outcome, is_granted=not why_not)


def _objection(group: Group, request: GangRequest, queue: Queue | None, *, is_ending: bool) -> str:
    """Return why nothing is done about a request; empty if it is granted."""
    waits = group.placement is None or not group.placement.seats
    match request.action:
        case Action.EVICT:
            return "it is being taken back already" if is_ending else "it waits, and holds nothing" if waits else ""
        case Action.REQUEUE:
            return "" if waits else "it does not wait"
        case Action.PRIORITIZE:
            return _unranked(request.priority_class, queue) if waits else "it keeps the priority that it started by"
        case _:
            assert_never(request.action)


def _unranked(name: str, queue: Queue | None) -> str:
    """Return why a gang of a queue cannot have a priority class; empty if it can."""
    if queue is None:
        return "its queue is gone"
    if queue.has_priority_class(name):
        return ""
    known = suggestions.listed(name, (one.name for one in queue.priority_classes))
    return f"queue {queue.name} has no priority class {name}; {f'it has {known}' if known else 'it has none'}"
