"""Pods come as the rows that kubectl prints, Events as objects; both in one request each, which is not tried again."""

from typing import Any

import pytest

from admission.errors import ClusterUnavailableError, ForbiddenError, MalformedObjectError
from admission.kube.client.connection import Connection
from admission.kube.listing_reader import ListingReader
from tests.integration.kube.fake_api import FakeApi, status

PODS, EVENTS = "/api/v1/namespaces/ns/pods", "/api/v1/namespaces/ns/events"
COLUMNS = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node"]
TABLE = {
    "kind": "Table",
    "metadata": {"continue": "more"},
    "columnDefinitions": [{"name": name} for name in COLUMNS],
    "rows": [
        {"cells": ["a-0", "1/1", "Running", 2, "5m", "10.0.0.1", "node-1", "<none>"]},
        {"cells": ["a-1", "0/1", "SchedulingGated", "0", "5m", "<none>", "<none>", "<none>"]},
    ],
}


async def test_pods_are_asked_for_as_a_table(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", PODS, 200, TABLE)

    found = await ListingReader(connection).pods("ns", labels="job=a", fields="", limit=7)

    assert [tuple(row) for row in found.rows] == [
        ("a-0", "1/1", "Running", "2", "5m", "node-1"),
        ("a-1", "0/1", "SchedulingGated", "0", "5m", ""),
    ]
    assert not found.complete
    sent = api.last("GET", PODS)
    assert sent.accept.startswith("application/json;as=Table;")
    assert dict(sent.query) == {"limit": "7", "includeObject": "None", "labelSelector": "job=a"}


TIMES: dict[str, dict[str, Any]] = {
    "of events.k8s.io": {"eventTime": "2026-11-22T12:00:00.000000Z", "lastTimestamp": None},
    "of a series": {
        "eventTime": "2026-11-22T11:00:00.000000Z",
        "series": {"count": 3, "lastObservedTime": "2026-11-22T12:00:00.000000Z"},
    },
    "of v1": {"lastTimestamp": "2026-11-22T12:00:00Z", "count": 3},
    "of its metadata alone": {"metadata": {"creationTimestamp": "2026-11-22T12:00:00Z"}},
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
async def test_an_event_was_last_seen_as_it_says(api: FakeApi, connection: Connection, times: dict[str, Any]) -> None:
    event = {"involvedObject": {"kind": "Pod", "name": "a-0"}, "reason": "BackOff", "type": "Warning", **times}
    api.answer("GET", EVENTS, 200, {"metadata": {}, "items": [event]})

    found = await ListingReader(connection).events("ns", fields="involvedObject.kind=Pod", limit=7)

    [read] = found.events
    assert str(read.at) == "2026-11-22 12:00:00+00:00"
    assert read.count == (3 if "count" in str(times) else 1)
    assert found.complete
    assert dict(api.last("GET", EVENTS).query) == {"limit": "7", "fieldSelector": "involvedObject.kind=Pod"}


async def test_what_is_no_list_of_its_kind_is_refused_with_the_place_that_is_wrong(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("GET", PODS, 200, {"columnDefinitions": [{"name": "Name"}], "rows": [{"cells": "a-0"}]})
    api.answer("GET", EVENTS, 200, {"items": [{"reason": 7}]})
    reader = ListingReader(connection)

    with pytest.raises(MalformedObjectError, match=r"Table of the API server: rows\[0\]\.cells: Expected `array`"):
        await reader.pods("ns", labels="job=a", fields="", limit=7)
    with pytest.raises(MalformedObjectError, match=r"EventList of the API server: items\[0\]\.reason: Expected `str`"):
        await reader.events("ns", fields="", limit=7)


async def test_a_row_of_pods_may_be_shorter_than_its_heading_and_a_list_may_be_null(
    api: FakeApi, connection: Connection
) -> None:
    api.answer("GET", PODS, 200, {**TABLE, "metadata": {}, "rows": [{"cells": ["a-0", "1/1"]}]})
    api.answer("GET", EVENTS, 200, {"metadata": {}, "items": None})
    reader = ListingReader(connection)

    pods = await reader.pods("ns", labels="job=a", fields="", limit=7)

    assert [tuple(row) for row in pods.rows] == [("a-0", "1/1", "", "", "", "")]
    assert pods.complete
    assert (await reader.events("ns", fields="", limit=7)).events == []


async def test_a_list_is_asked_for_once_though_the_api_server_fails(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", PODS, 503, status(503, "ServiceUnavailable", "busy"))
    api.answer("GET", EVENTS, 403, status(403, "Forbidden", 'User "d" cannot list resource "events" in API group ""'))
    reader = ListingReader(connection)

    with pytest.raises(ClusterUnavailableError):
        await reader.pods("ns", labels="job=a", fields="", limit=7)
    with pytest.raises(ForbiddenError, match="grant verb list on resource events of API group core in namespace ns"):
        await reader.events("ns", fields="", limit=7)

    assert len(api.asked) == 2
