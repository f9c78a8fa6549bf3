"""What a user asks of a gang in its spec (`request`), and what became of it (`status.request`)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from admission.api.values.decoding import Reader


class Action(StrEnum):
    """What is asked."""

    EVICT = "Evict"
    REQUEUE = "Requeue"
    PRIORITIZE = "Prioritize"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """A request. id: tells it from earlier ones. by: the user; the webhook refuses the name of anybody else."""

    id: str
    action: Action
    by: str
    reason: str = ""
    priority_class: str = ""

    @property
    def text(self) -> str:
        """Return who asks, and why."""
        return f"{self.by} asked for it" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """The last request that the controller has answered. outcome: a sentence.

    priority_class: the one that counts for the gang, by this request or an earlier one; empty if its pods say it.
    """

    id: str
    action: Action
    by: str
    outcome: str
    at: datetime
    reason: str = ""
    priority_class: str = ""


def decode(reader: Reader) -> GangRequest | None:
    """Decode `spec.request`; None with a problem if it lacks what it needs."""
    identity, action, by = reader.required("id"), reader.required("action"), reader.required("by")
    if action and action not in set(Action):
        reader.problem("action", f"{action!r} is not one of {', '.join(Action)}")
    if not (identity and by and action in set(Action)):
        return None
    return GangRequest(
        id=identity,
        action=Action(action),
        by=by,
        reason=reader.text("reason"),
        priority_class=reader.text("priorityClass"),
    )


def decode_answered(reader: Reader) -> AnsweredRequest | None:
    """Decode `status.request`; None if its action is unknown, as one of another release may be."""
    action, at = reader.text("action"), reader.time("at")
    if action not in set(Action) or at is None:
        return None
    return AnsweredRequest(
        id=reader.text("id"),
        action=Action(action),
        by=reader.text("by"),
        outcome=reader.text("outcome"),
        at=at,
        reason=reader.text("reason"),
        priority_class=reader.text("priorityClass"),
    )
