"""The pods and Events on a gang's page: who sees them, how many, and how often the API server is asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from admission.api.kubernetes.access_review import Question
from admission.dashboard import gang_listings
from admission.dashboard.pages import gang_objects
from admission.errors import ClusterUnavailableError
from tests import dashboard_clusters, dashboards
from tests.dashboards import ADMIN, MEMBER, Listings, Site

PAGE = "/gangs/team-a/train"
PODS = Question("list", "pods", group="", namespace="team-a")
EVENTS = PODS._replace(resource="events")


class Visitor:
    """Somebody who looks at the page of team-a/train."""

    def __init__(self, site: Site, session: aiohttp.ClientSession) -> None:
        self.site, self._session = site, session

    async def see(self, token: str = ADMIN, query: str = "") -> str:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.get(f"{self.site.url}{PAGE}{query}", headers=headers) as answer:
            assert answer.status == 200
            return await answer.text()

    async def json(self, query: str = "", token: str = ADMIN) -> Any:
        return json.loads(await self.see(token, f"?format=json{query}"))

    def grant(self, *rights: Question) -> None:
        name, known = self.site.reviews.known[MEMBER]
        self.site.reviews.known[MEMBER] = (name, known | set(rights))


@pytest.fixture
async def visitor() -> AsyncIterator[Visitor]:
    async with dashboards.a_site() as site, aiohttp.ClientSession() as session:
        yield Visitor(site, session)


GRANTS = {
    "neither": ((), [], []),
    "pods": ((PODS,), ["train-1", "train-0"], []),
    "Events": ((EVENTS,), [], ["Admitted", "SuccessfulCreate"]),
    "both": ((PODS, EVENTS), ["train-1", "train-0"], ["BackOff", "Failed", "Admitted", "SuccessfulCreate"]),
}


@pytest.mark.parametrize(("rights", "pods", "events"), GRANTS.values(), ids=GRANTS)
async def test_a_visitor_sees_what_kubernetes_lets_them_list(
    visitor: Visitor, rights: tuple[Question, ...], pods: list[str], events: list[str]
) -> None:
    visitor.grant(*rights)

    found, page = await visitor.json(token=MEMBER), await visitor.see(MEMBER)

    assert [one["name"] for one in found["pods"]] == pods
    assert [one["reason"] for one in found["events"]] == events
    missing = [str(one) for one in (PODS, EVENTS) if one not in rights]
    assert [right for right in missing if f"you need the right to {right}" not in page] == []
    assert len(missing) == page.count("you need the right to list ")
    assert ("CrashLoopBackOff" in page) == (PODS in rights)
    asked = {what.partition(" ")[0] for what in visitor.site.listings.asked}
    assert asked == {one.resource for one in rights}, "nothing is read that nobody may see"


async def test_a_pod_is_shown_with_its_devices_and_what_was_warned_of_last(visitor: Visitor) -> None:
    found = await visitor.json()

    assert found["pods"][0] == {
        "name": "train-1",
        "ready": "0/1",
        "status": "CrashLoopBackOff",
        "restarts": "3 (2m ago)",
        "age": "20m",
        "node": "node-1",
        "devices": ["node-1/gpu-4", "node-1/gpu-5"],
        "warning": "Back-off restarting failed container main",
    }
    assert found["podStates"] == {"CrashLoopBackOff": 1, "Running": 1}
    assert "stranger-0" not in json.dumps(found)


async def test_each_list_is_read_once_for_all_who_look_within_some_seconds(visitor: Visitor) -> None:
    await asyncio.gather(*(visitor.see() for _ in range(5)))
    first = list(visitor.site.listings.asked)
    visitor.site.clock.seconds = gang_listings.KEPT_SECONDS + 1
    await visitor.see()

    assert first == [
        "pods team-a batch.kubernetes.io/controller-uid=uid-train",
        "events team-a involvedObject.kind=Gang,involvedObject.name=train",
        "events team-a involvedObject.kind=Job,involvedObject.name=train",
        "events team-a involvedObject.kind=Pod",
    ]
    assert visitor.site.listings.asked == first * 2


async def test_the_page_is_shown_while_the_api_server_is_slow_and_says_so(visitor: Visitor) -> None:
    visitor.site.listings.error = ClusterUnavailableError("list pods in namespace team-a: no answer")

    page = await visitor.see()

    assert "The pods cannot all be read now: list pods in namespace team-a: no answer." in page
    assert "The Events cannot all be read now" in page
    assert "node-1/gpu-0" in page, "the plan is in the Gang"


async def test_a_page_shows_fifty_events_and_says_where_earlier_ones_are() -> None:
    many = [dashboards.event("Gang", "train", "Told", f"number {number}", minutes=number) for number in range(120)]
    async with dashboards.a_site(listed=Listings(events=many)) as site, aiohttp.ClientSession() as session:
        visitor = Visitor(site, session)
        page, found = await visitor.see(), await visitor.json()

    assert [number for number in (49, 50) if f"number {number}<" in page] == [49]
    assert "50 earlier ones are in the" in page
    assert len(found["events"]) == gang_objects.EVENTS_SHOWN


async def test_thousands_of_pods_are_summed_and_come_in_pages_those_that_fail_first() -> None:
    running = [(f"train-{number}", "1/1", "Running", "0", "5m", "", "node-1") for number in range(3_999)]
    pods = [*running, ("train-3999", "0/1", "OOMKilled", "1", "5m", "", "node-1")]
    cluster = dashboard_clusters.a_cluster()
    cluster.change("team-a/train", plan=None)
    async with (
        dashboards.a_site(cluster=cluster, listed=Listings(pods)) as site,
        aiohttp.ClientSession() as session,
    ):
        visitor = Visitor(site, session)
        page, second, found = await visitor.see(), await visitor.see(query="?page=2"), await visitor.json("&size=1000")

    assert "50 of 4000 pods" in page
    assert page.index("train-3999") < page.index(">train-0<")
    assert ">Running</span> 3999" in page
    assert ">train-49<" in second
    assert len(found["pods"]) == 1_000
    assert found["podStates"] == {"OOMKilled": 1, "Running": 3_999}
