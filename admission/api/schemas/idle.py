"""The schemas of `spec.idle` of a Queue, and of `status.idle` of a Gang."""

from admission.api.device_use.idle import IdleAction
from admission.api.schemas import fields
from admission.api.schemas.fields import Schema


def policy() -> Schema:
    """Return the schema of the Queue's."""
    return fields.record(
        """When a gang of the queue that holds devices counts as idle, by what is recorded of their use
        (usage.prometheus): it gets the condition Idle and an Event, and the alert MusterGangsIdle tells of it. What was
        not measured counts as use. Absent: no gang does.""",
        {
            "belowPercent": fields.integer(
                """The devices of each claim have been in use for less than so many percent of each recorded time.
                Default: 5.""",
                minimum=1,
                maximum=100,
                default=5,
            ),
            "after": fields.duration(
                "For so long, of at most 168h. Whole recorded times count (usage.interval). Default: 2h.", default="2h"
            ),
            "action": fields.choice(
                """What else follows. Report: nothing. PreemptFirst: where gangs are evicted to make room, those that
                are idle go before others. Evict: it is evicted as a whole, and waits again after a back-off, as requeue
                says. Default: Report.""",
                *IdleAction,
                default=IdleAction.REPORT,
            ),
        },
        rules=(
            fields.rule(
                "!has(self.after) || duration(self.after) <= duration('168h')",
                "after must not be longer than 168h: shorten it",
                fieldPath=".after",
            ),
        ),
    )


def status() -> Schema:
    """Return the schema of the Gang's."""
    return fields.record(
        "That its devices are idle, by spec.idle of its queue. Absent if they are not, or if that is not known.",
        {
            "since": fields.time("Since when they have been in so little use."),
            "belowPercent": fields.integer("In use for less than so many percent of the time.", minimum=1),
            "after": fields.text("For how long the queue allows that.", maxLength=32),
            "action": fields.choice("What else follows.", *IdleAction),
        },
        required=("since",),
    )
