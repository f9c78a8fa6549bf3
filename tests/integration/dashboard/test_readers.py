"""What a visitor who may see one namespace reads of another one on any page, and what one who may see all of them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import pytest

from admission.api.kubernetes.access_review import Question
from admission.api.muster import observed, status_views
from admission.api.muster.ledger_entries import Entry
from admission.api.muster.observed import ObservedMeter, ObservedObjects, ObservedQueue
from admission.api.values.names import MeterName, QueueName
from admission.dashboard.ledger_queries import Amounts, Line, Statement, Window
from tests import dashboards, teams
from tests.dashboard_books import Books
from tests.dashboard_clusters import Cluster
from tests.dashboards import ADMIN, MEMBER
from tests.teams import OURS, SECRETS, Scene

NOTHING = Amounts(0, 0, 0, 0)


class TeamsView:
    """The port `View` of a scene: what is stored in the cluster, through the decoders."""

    synced = True

    def __init__(self, scene: Scene) -> None:
        self._cluster = scene.cluster

    def observe(self) -> ObservedObjects:
        snapshot = self._cluster.snapshot()
        reports = {
            name: status_views.queue({"metadata": {"name": name}, "status": status})
            for name, status in self._cluster.queue_objects.items()
        }
        return ObservedObjects(
            queues={
                name: ObservedQueue(meta=queue.meta, queue=queue, report=reports[name])
                for name, queue in snapshot.queues.items()
            },
            gangs={key: observed.decode_gang(obj) for key, obj in self._cluster.stored.items()},
            meters={name: ObservedMeter(meta=meter.meta, meter=meter) for name, meter in snapshot.meters.items()},
            classes=snapshot.classes,
            nodes=snapshot.nodes,
            slices=snapshot.slices,
            claims=snapshot.claims,
        )


class TeamsBooks(Books):
    """The books of a scene, with a statement of all that moved."""

    async def statement(self, queue: QueueName, window: Window) -> Statement:
        lines = [_line(one.sequence, one.entry) for one in self.entries if one.entry.gang]
        return Statement(queue=queue, window=window, opening={}, lines=lines, closing={})


def _line(sequence: int, entry: Entry) -> Line:
    return Line(
        sequence=sequence,
        at=entry.at,
        kind=entry.kind,
        gang=entry.gang,
        user=entry.user,
        reason=entry.reason,
        meter=MeterName("gpus"),
        change=NOTHING,
        balance=NOTHING,
    )


def rights() -> dashboards.Reviews:
    """Return reviews by which a member may see all but the gangs of the other namespace."""
    slices = Question("list", "resourceslices", group="resource.k8s.io")
    common = {Question("list", "queues"), Question("list", "ledgers"), slices}
    return dashboards.Reviews(
        {
            ADMIN: ("ada", frozenset(common | {Question("list", "gangs")})),
            MEMBER: ("ben", frozenset(common | {Question("list", "gangs", namespace=OURS)})),
        }
    )


@asynccontextmanager
async def visited(scene: Scene, token: str) -> AsyncIterator[dict[str, str]]:
    """Visit every page that a visitor finds a link to, and those of the books; give their texts by path."""
    found: dict[str, str] = {}
    left = ["/", "/ledger?from=2026-11-20", "/ledger/use", "/past?at=2026-11-21T12:00:30", "/devices/a"]
    left += [f"/ledger/statements/{queue}?from=2026-11-20" for queue in ("shared", "left", "right")]
    cluster = cast("Cluster", TeamsView(scene))
    books = TeamsBooks(scene.play.ledger.entries)
    async with (
        dashboards.a_site(cluster=cluster, reviews=rights(), books=books) as site,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
    ):
        while left:
            path = left.pop()
            if path in found or path.startswith(("/static", "/logout")):
                continue
            async with session.get(f"{site.url}{path}", allow_redirects=False) as answer:
                found[path] = await answer.text()
            async with session.get(
                f"{site.url}{path}", headers={"Accept": "application/json"}, allow_redirects=False
            ) as answer:
                found[f"{path} as JSON"] = await answer.text()
            left += [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"]*)"', found[path])]
        yield found


@pytest.mark.parametrize("scene", teams.SCENES)
async def test_a_visitor_of_one_namespace_reads_no_name_of_another_on_any_page(scene: str) -> None:
    happened = await teams.SCENES[scene]()

    async with visited(happened, MEMBER) as pages:
        leaks = [path for path, text in pages.items() for secret in SECRETS[OURS] if secret in text]

    assert not leaks
    assert {"/", "/gangs", "/queues", "/devices", "/devices/a"} <= pages.keys()
    assert any(path.startswith(f"/gangs/{OURS}/") for path in pages)


NAMED = {
    "busy": "in use by claim hidden-ns/merger-with-acme-first-0-gpus of gang hidden-ns/merger-with-acme-first-",
    "strict": "gang hidden-ns/merger-with-acme-large-",
    "unknown_ends": "nobody says how long gang hidden-ns/merger-with-acme-endless-",
    "preempted_for_quota": "gang hidden-ns/merger-with-acme-low-",
    "tolerated": "claim hidden-ns/merger-with-acme-stray tolerates",
}


@pytest.mark.parametrize(("scene", "named"), NAMED.items(), ids=NAMED)
async def test_who_may_see_all_gangs_reads_the_names_on_the_page_of_a_gang(scene: str, named: str) -> None:
    happened = await teams.SCENES[scene]()

    async with visited(happened, ADMIN) as pages:
        gangs = [text for path, text in pages.items() if path.startswith(f"/gangs/{OURS}/")]

    assert any(named in text for text in gangs)


async def test_the_books_name_those_whom_a_gang_made_room_for_only_to_who_may_see_them() -> None:
    happened = await teams.SCENES["reclaimed"]()
    [victim] = [key for key, obj in happened.cluster.stored.items() if obj["status"].get("evicted")]

    async with visited(happened, ADMIN) as pages:
        assert "Reclaimed: gang plain-ns/our-work-owns-" in pages[f"/gangs/{victim}"]
        assert "Reclaimed: gang plain-ns/our-work-owns-" in pages["/ledger?from=2026-11-20"]


async def test_a_deleted_queue_names_its_gangs_only_to_who_may_see_them() -> None:
    happened = await teams.SCENES["deleted"]()

    async with visited(happened, ADMIN) as pages:
        assert "gang hidden-ns/merger-with-acme-runs-" in pages["/queues/shared"]
        assert "gang hidden-ns/merger-with-acme-runs-" in pages["/"]
    async with visited(happened, MEMBER) as pages:
        assert "has given its devices back: a gang of queue shared" in pages["/queues/shared"]
