"""Of which changes whom the stream of events tells."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from aiohttp import web

from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.muster.observed import ObservedObjects
from admission.dashboard.auth.rbac import CachedReviewer, Rights
from admission.dashboard.pages import event_stream
from admission.dashboard.pages.event_stream import MOST_OF_A_VISITOR, Streams
from tests import dashboard_clusters, dashboards
from tests.dashboards import ADMIN, MEMBER, NOBODY, Reviews


def a_change(what: str) -> tuple[ObservedObjects, ObservedObjects]:
    """Return two observations that differ in a gang's hold, a gang's plan, a queue, a node or a claim."""
    before = dashboard_clusters.a_cluster().observe()
    kind, _, key = what.partition(" ")
    objects = dict(getattr(before, kind))
    if key.endswith(" replanned"):
        key = key.removesuffix(" replanned")
        objects[key] = replace(objects[key], report=replace(objects[key].report, plan=()))
    elif key.endswith(" given back"):
        key = key.removesuffix(" given back")
        objects[key] = replace(objects[key], allocation=None)
    else:
        objects[key] = replace(objects[key])
    return before, replace(before, **{kind: objects})


GETS_ONE = "token-of-gil"

CASES = {
    "a gang, to who may see it": (ADMIN, "gangs", "gangs team-c/secret", True),
    "a gang, to who may see its namespace": (MEMBER, "gangs", "gangs team-a/train", True),
    "a gang of another namespace": (MEMBER, "gangs", "gangs team-c/secret", False),
    "a gang's page, of that gang": (MEMBER, "gangs/team-a/train", "gangs team-a/train", True),
    "a gang's page, of another gang": (MEMBER, "gangs/team-a/bigger", "gangs team-a/train", False),
    "a gang's page, to who may get it alone": (GETS_ONE, "gangs/team-a/train", "gangs team-a/train", True),
    "a gang's page that may not be seen": (MEMBER, "gangs/team-c/secret", "gangs team-c/secret", False),
    "a queue, on the tree": (MEMBER, "queues", "queues vision", True),
    "a queue, on the tree, without the right": (NOBODY, "queues", "queues vision", False),
    "a queue's page, to who may get it alone": (GETS_ONE, "queues/vision", "queues vision", True),
    "a queue's page, of another queue": (GETS_ONE, "queues/vision", "queues lab", False),
    "a queue's page without the right": (NOBODY, "queues/vision", "queues vision", False),
    "a node": (MEMBER, "devices", "nodes node-1", True),
    "a node, without the right": (NOBODY, "devices", "nodes node-1", False),
    "a plan, which takes devices": (MEMBER, "devices", "gangs team-b/inference replanned", True),
    "a gang whose plan is the same": (MEMBER, "devices", "gangs team-b/inference", False),
    "a claim's devices": (MEMBER, "devices", "claims team-a/train-0 given back", True),
    "a claim whose devices are the same": (MEMBER, "devices", "claims team-a/train-0", False),
    "one of several topics": (MEMBER, "queues/lost,gangs,devices", "nodes node-1", True),
    "no topic that there is": (ADMIN, "pods,,gangs/a/b/c", "gangs team-a/train", False),
}


@pytest.mark.parametrize(("token", "topics", "what", "told"), CASES.values(), ids=CASES)
async def test_only_changes_of_a_pages_topics_that_its_visitor_may_see_are_told(
    token: str, topics: str, what: str, told: bool
) -> None:
    gets = {Question("get", "queues", name="vision"), Question("get", "gangs", namespace="team-a", name="train")}
    reviews = Reviews(dashboards.people() | {GETS_ONE: ("gil", frozenset(gets))})
    rights = Rights(UserInfo(name=reviews.known[token][0]), CachedReviewer(reviews, lambda: 0.0))
    before, after = a_change(what)

    assert await event_stream.has_visible_change(rights, topics.split(","), event_stream.between(before, after)) is told
    assert not await event_stream.has_visible_change(rights, topics.split(","), event_stream.between(after, after))


def a_connection(*, left: bool = False) -> web.RequestHandler:
    connection = Mock(spec=web.RequestHandler)
    connection.transport.is_closing.return_value = left
    return connection


def test_a_visitor_and_a_process_have_so_many_streams_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_STREAMS", MOST_OF_A_VISITOR + 2)
    streams = Streams()
    places = [streams.place("ada", a_connection()) for _ in range(MOST_OF_A_VISITOR)]
    for place in places:
        place.__enter__()

    with pytest.raises(web.HTTPTooManyRequests), streams.place("ada", a_connection()):
        pass
    with (
        streams.place("ben", a_connection(left=True)),
        streams.place("ben", a_connection()),
        pytest.raises(web.HTTPTooManyRequests),
        streams.place("eve", a_connection()),
    ):
        pass
    places[0].__exit__(None, None, None)
    with streams.place("ada", a_connection()):
        pass
