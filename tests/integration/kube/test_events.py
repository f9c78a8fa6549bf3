"""Events: on which object, and which are repetitions of others."""

from datetime import timedelta
from typing import Any

import pytest
import structlog

from admission.api.muster.status_reports import EventType, Notice
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import EventReason, HoldReason
from admission.kube.cache import watched_resources
from admission.kube.writers import events
from admission.kube.writers.status import Reporter
from tests.integration.kube.fake_api import FakeApi, status
from tests.integration.kube.reports import START, a_report

EVENTS = "/api/v1/namespaces/team/events"
GANGS = watched_resources.GANGS.path


def a_notice(message: str = "3 left", **more: Any) -> Notice:
    values: dict[str, Any] = {
        "kind": "Gang",
        "namespace": "team",
        "name": "train",
        "reason": "Held",
        "uid": Uid("g"),
    } | more
    return Notice(api_version=names.API_VERSION, type=EventType.NORMAL, message=message, **values)


async def test_an_event_is_published_on_its_object(api: FakeApi, reporter: Reporter) -> None:
    await reporter.notify(a_notice())

    body = api.last("POST", EVENTS).body
    assert body["involvedObject"] == {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "name": "train",
        "uid": "g",
        "namespace": "team",
    }
    assert (body["reason"], body["message"], body["type"], body["action"]) == ("Held", "3 left", "Normal", "Admission")
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert body["source"]["component"] == body["reportingComponent"] == events.REPORTER


async def test_an_event_about_a_cluster_scoped_object_is_in_default(api: FakeApi, reporter: Reporter) -> None:
    await reporter.notify(a_notice(kind="Queue", namespace=""))

    body = api.last("POST", "/api/v1/namespaces/default/events").body
    assert "namespace" not in body["involvedObject"]


async def test_an_event_on_an_object_of_unknown_uid_is_published_unless_it_is_a_gang(
    api: FakeApi, reporter: Reporter
) -> None:
    await reporter.notify(a_notice(kind="ConfigMap", uid=Uid("")))

    assert api.last("POST", EVENTS).body["involvedObject"]["kind"] == "ConfigMap"


async def test_an_event_on_a_gang_that_was_just_created_has_its_uid(api: FakeApi, reporter: Reporter) -> None:
    await reporter.notify(a_notice(uid=Uid("")))
    assert api.count("POST", EVENTS) == 0

    await reporter.gang(a_report())
    await reporter.notify(a_notice(uid=Uid("")))
    about = api.last("POST", EVENTS).body["involvedObject"]
    assert about["uid"] == api.objects[GANGS]["team/train"]["metadata"]["uid"]


async def test_an_event_repeated_at_once_is_dropped(api: FakeApi, reporter: Reporter) -> None:
    for message in ("3 left", "3 left", "2 left"):
        await reporter.notify(a_notice(message))

    assert api.count("POST", EVENTS) == 2


@pytest.mark.parametrize(("reason", "sent"), [(HoldReason.QUOTA_EXCEEDED, 2), (EventReason.ADMITTED, 3)])
async def test_a_hold_that_comes_back_with_other_numbers_is_a_repetition(
    api: FakeApi, reporter: Reporter, reason: HoldReason | EventReason, sent: int
) -> None:
    for message in ("3 left", "busy", "2 left", "busy"):
        await reporter.notify(a_notice(message, reason=reason))

    assert api.count("POST", EVENTS) == sent


async def test_an_event_repeated_later_is_counted(
    api: FakeApi, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reporter.notify(a_notice())
    await reporter.notify(a_notice())
    monkeypatch.setattr(events, "REPEAT_SECONDS", 0)
    name = api.last("POST", EVENTS).body["metadata"]["name"]

    await reporter.notify(a_notice())
    assert api.last("PATCH", f"{EVENTS}/{name}").body == {
        "count": 3,
        "lastTimestamp": "2026-01-01T00:02:00Z",
        "message": "3 left",
    }

    api.answer("PATCH", f"{EVENTS}/{name}", 404, status(404, "NotFound", "expired", name=name))
    await reporter.notify(a_notice())
    assert api.count("POST", EVENTS) == 2, "an Event that expired is made anew"


async def test_a_failure_to_publish_is_logged_and_no_more(api: FakeApi, reporter: Reporter) -> None:
    api.answer("POST", EVENTS, 403, status(403, "Forbidden", "no"))

    with structlog.testing.capture_logs() as logs:
        await reporter.notify(a_notice())

    assert logs[0]["event"] == "an Event was not published"


def test_a_flood_of_news_is_thinned_out() -> None:
    event_filter = events.EventFilter()

    sent = [event_filter.admit(a_notice(str(number)), now=1000.0, at=START) for number in range(200)]
    later = [event_filter.admit(a_notice(f"later {number}"), now=1002.0, at=START) for number in range(200)]

    assert sum(said is not None for said in sent) == events.BURST
    assert sum(said is not None for said in later) == 2 * events.PER_SECOND


def test_events_of_one_second_are_named_in_their_order() -> None:
    """As `kubectl describe` shows them, which knows seconds."""
    event_filter = events.EventFilter()
    moments = (START + timedelta(microseconds=at) for at in (0, 1, 2, 999_999))

    sent = [event_filter.admit(a_notice(str(9 - at)), now=float(at), at=moment) for at, moment in enumerate(moments)]

    named = [said.name for said in sent if said is not None]
    assert len(named) == len(sent)
    assert named == sorted(named)


def test_an_event_carries_the_uid_of_its_gang() -> None:
    of_a_gang = events.event(a_notice(gang_uid="job-train"), "n", instance="i", at=START)
    of_none = events.event(a_notice(), "n", instance="i", at=START)

    assert of_a_gang["metadata"]["annotations"] == {"muster.dev/gang-uid": "job-train"}
    assert "annotations" not in of_none["metadata"]


def test_a_long_message_is_cut_in_bytes() -> None:
    body = events.event(a_notice("é" * 3000), "n", instance="i", at=START)

    assert len(body["message"].encode()) <= events.LONGEST_MESSAGE
    assert body["message"].endswith("…")
