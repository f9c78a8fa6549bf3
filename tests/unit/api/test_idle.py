"""`spec.idle` of a Queue, and `status.idle` of a Gang."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.api.device_use.idle import IdleAction, IdleDevices, IdlePolicy
from admission.api.muster import queues, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.names import GangUid, QueueName
from admission.errors import MalformedObjectError
from admission.kube.writers import status_encoding

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no share": ({"belowPercent": 0}, "belowPercent", "0 is not a whole number from 1 to 100"),
    "more than all": ({"belowPercent": 101}, "belowPercent", "101 is not a whole number from 1 to 100"),
    "no number": ({"belowPercent": "5"}, "belowPercent", "integer"),
    "no time": ({"after": "0s"}, "after", "0s"),
    "longer than is read back": ({"after": "169h"}, "after", "is longer than 168h; shorten it"),
    "no action": ({"action": "Delete"}, "action", "'Delete' is not one of Report, PreemptFirst, Evict"),
}


def decode(idle: dict[str, Any]) -> IdlePolicy | None:
    return queues.decode({"metadata": {"name": "q"}, "spec": {"idle": idle}}).idle


@pytest.mark.parametrize(("idle", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_idle_is_named_with_its_field(idle: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        decode(idle)

    (problem,) = caught.value.problems
    assert problem.field == f"spec.idle.{field}"
    assert words in problem.message


def test_no_gang_is_idle_unless_its_queue_says_when_for_which_there_are_defaults() -> None:
    assert queues.decode({"metadata": {"name": "q"}, "spec": {}}).idle is None
    assert decode({}) == IdlePolicy(below_percent=5, after=timedelta(hours=2), action=IdleAction.REPORT)
    assert decode({"belowPercent": 1, "after": "168h", "action": "Evict"}) == IdlePolicy(
        below_percent=1, after=timedelta(hours=168), action=IdleAction.EVICT
    )


def test_the_status_of_a_gang_says_that_it_is_idle_and_since_when() -> None:
    idle = IdleDevices(since=NOON, queue=QueueName("q"), policy=IdlePolicy(action=IdleAction.EVICT))
    report = GangReport(
        uid=GangUid("g"), namespace="ns", name="g", queue=QueueName("q"), size=1, phase=Phase.RUNNING, idle=idle
    )
    status = status_encoding.gang_status(report, {}, now=NOON)

    assert status["idle"] == {"since": "2026-11-21T12:00:00Z", "belowPercent": 5, "after": "2h", "action": "Evict"}
    (condition,) = [one for one in status["conditions"] if one["type"] == "Idle"]
    assert (condition["status"], condition["reason"]) == ("True", "DevicesIdle")
    assert "less than 5 % of the time since 2026-11-21T12:00:00Z" in condition["message"]
    assert "gangs of this queue that are idle are evicted" in condition["message"]
    gang = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q"}, "status": status}
    assert status_views.gang(gang).idle == idle
