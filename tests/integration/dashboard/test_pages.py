"""What each page shows, and to whom."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from admission.api.values import names
from admission.dashboard.auth.rbac import LEDGERS
from admission.errors import LedgerUnavailableError
from tests import dashboard_clusters, dashboards
from tests.dashboard_books import Books
from tests.dashboards import ADMIN, MEMBER, NOBODY, Site
from tests.integration import ledgers, lives
from tests.integration.test_dashboard_books import opened


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Reader:
    """Somebody who reads pages with a token."""

    site: Site
    session: aiohttp.ClientSession

    async def get(self, path: str, token: str = ADMIN, **headers: str) -> Answer:
        sent = {"Authorization": f"Bearer {token}", **headers} if token else headers
        url = f"{self.site.url}{path}"
        async with self.session.get(url, headers=sent, allow_redirects=False) as answer:
            return Answer(answer.status, await answer.text(), answer.headers)


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    books = Books(ledgers.a_history())
    async with dashboards.a_site(books=books) as site, aiohttp.ClientSession() as session:
        yield Reader(site, session)


PAGES = {
    "/": [
        "QuotaExceeded",
        "Never fits",
        "phase=NeverFits",
        "team-a/bigger",
        "1 h 30 min ago",
        "orphan",
        "there is no Queue lost",
        "Use in the last day",
        "Waiting in the last day",
        "research <b>3</b>",
    ],
    "/queues": ["lab", "research", "orphan", "2 below", "8 of 18 taken"],
    "/queues?open=-": ["lab", "orphan", "8 of 18 taken"],
    "/queues?open=lab,research": ["production", "vision"],
    "/queues?parent=lab": ["research", "production", "50 h left"],
    "/queues?q=vis": ["vision", "in lab / research"],
    "/queues/vision": ["team-a/bigger", "team-a/train", "4 of 2 taken, 2 of it borrowed", "#1"],
    "/gangs": ["team-a/train", "team-b/inference", "team-c/whispered"],
    "/gangs?reason=DevicesBusy": ["team-c/whispered"],
    "/gangs?phase=NeverFits": ["team-a/monster", "24 gpus", "1 of 1 gangs"],
    "/gangs?phase=Pending": ["team-a/bigger", "4 gpus", "2 of 2 gangs"],
    "/gangs?phase=Waiting": ["3 of 3 gangs"],
    "/gangs?reason=NeverFits": ["team-a/monster", "1 of 1 gangs"],
    "/gangs/team-a/monster": [
        "Can never start as it is: QuotaExceeded",
        "waiting does not help: ask for at most 10 gpus",
        "at least gpus 24",
    ],
    "/gangs/team-a/bigger": [
        "Waits: QuotaExceeded",
        "4 more gpus have to become free in queue vision",
        "queue vision has 0 gpus left",
        "in 25 min",
        "when team-a/train is",
    ],
    "/gangs/team-a/train": [
        "kubectl describe job.batch train",
        "in 1 h 40 min",
        "Started",
        "PCIe root pci0000:00",
        "held by team-c/secret",
        "held by team-a/train",
        "node-1",
        ">CrashLoopBackOff</span> 1",
        "3 (2m ago)",
        "node-1/gpu-5",
        "Created pod: train-0",
        "2 pods may start",
    ],
    "/devices": ["node-1", "node-2", "unschedulable", "node-3"],
    "/heatmap": ["H100 80Gi", ">vision<", "node-2: 8 H100 80Gi; closed 8"],
    "/shapes": [
        "gpu-x8",
        "31.50",
        "45 min ago",
        "node node-9: 7 devices",
        "never",
        "of 16",
        "there is no NodePool cpu",
    ],
    "/capacity": ["What would fit", "Free devices", "node-1", "unschedulable", "2x4:gpu", "1xall:gpu", "Gang-hours"],
    "/capacity?pods=1&devices=2&class=gpu&queue=production": [
        "<b>",
        "of 1x2:gpu would start in",
        "For such gangs",
        "Moving no single gang makes room for more.",
    ],
    "/capacity?pods=0&devices=1&class=gpu": ["A gang has 1 to 1000 pods"],
    "/devices/node-1": ["held by team-b/inference, not allocated yet", "team-c/secret"],
    "/devices/node-3": ["gpu-0-half-0: held by team-c/secret", "1 of 2 free"],
    "/ledger?from=2026-03-01&to=2026-03-02": ["ns/one", "StartTimedOut", "used +3"],
    "/ledger/statements/team-a": ["Statement of team-a", "No movements"],
    "/ledger/use": ["Device-hours", "vision", "66.7 %"],
    "/ledger/use?last=month&top=3&hide=vision": ["not drawn", 'aria-current="true">Last month', "2026-10-23T12:00"],
    "/ledger/used?by=gang": ["Used hours", "team-c/dark", "75.0 %", "The emptiest gangs", "the first 3 of 5"],
    "/ledger/waiting?last=day": ["<h1>Waiting", "3 gang-hours", "research", 'aria-current="true">Last day'],
    "/past?at=2026-03-01T12:03": ["ns/two", "Who held what", "after transaction 4"],
}


@pytest.mark.parametrize(("path", "shown"), PAGES.items(), ids=PAGES)
async def test_a_dashboard_page_shows_the_expected_text(reader: Reader, path: str, shown: list[str]) -> None:
    answer = await reader.get(path)

    assert answer.status == 200
    assert [text for text in shown if text not in answer.text] == []


async def test_a_queue_that_holds_workloads_says_so_and_a_gang_how_many_pods_are_to_come() -> None:
    spec = {"holdAt": "Workload", "aliases": ["user-queue", "root.team-a"]}
    cluster = dashboard_clusters.Cluster().queue("q", spec=spec).gang("team-a/train", "q", pods=0, expected=4)
    async with dashboards.a_site(cluster=cluster) as site, aiohttp.ClientSession() as session:
        reader = Reader(site, session)
        queue, gang = await reader.get("/queues/q"), await reader.get("/gangs/team-a/train")

    assert "workloads as a whole" in queue.text
    assert "root.team-a, user-queue" in queue.text
    assert "4 to come when it starts" in gang.text


def autoscaled() -> dashboard_clusters.Cluster:
    """Return a cluster with one node of a shape, and gangs that asked for more, wait for more, or run."""
    held = {
        "reason": "NodesNeeded",
        "message": "needs 1 more node of shape x8",
        "details": {"nodes": 1, "plan": ["nodeshape/x8/1: wants-0, wants-1", "node-1: wants-2"]},
    }
    late = {"reason": "NodesNeeded", "message": "it runs", "details": {"nodes": 1}}
    earlier, joined = (names.node_to_come("x8", 1, datetime(2026, 11, day, tzinfo=UTC)) for day in (1, 2))
    return (
        dashboard_clusters.Cluster()
        .queue("q")
        .node("node-1", shape="x8")
        .shape("x8", most=6, up="NodesUp", pricePerHour="2")
        .gang("team-a/asks", "q", "Admitted", places=[("nodeshape/x8/1", []), ("nodeshape/x8/2", [])])
        .gang("team-b/reserved", "q", "Reserved", places=[("nodeshape/x8/1", []), ("nodeshape/x8/1", [])])
        .gang("team-a/runs", "q", "Running", places=[("nodeshape/x8/1", ["gpu-0"])])
        .gang("team-b/grows", "q", "Running", places=[(earlier, ["gpu-1"]), (joined, [])], hold=late)
        .gang("team-a/wants", "q", hold=held)
    )


async def test_shapes_say_which_nodes_are_expected_for_whom_and_a_gang_where_its_pods_would_go() -> None:
    async with dashboards.a_site(cluster=autoscaled()) as site, aiohttp.ClientSession() as session:
        reader = Reader(site, session)
        found = json.loads((await reader.get("/shapes?format=json")).text)["items"]
        (of_member,) = json.loads((await reader.get("/shapes?format=json", MEMBER)).text)["items"]
        page, gang = await reader.get("/shapes"), await reader.get("/gangs/team-a/wants")
        of_asking, grows = await reader.get("/gangs/team-a/asks"), await reader.get("/gangs/team-b/grows")
        refused = await reader.get("/shapes", NOBODY)

    expected = ["team-a/asks", "team-b/grows", "team-b/reserved"]
    assert [{key: found[0][key] for key in ("up", "most", "more", "expected", "gangs", "hidden")}] == [
        {"up": 1, "most": 6, "more": 1, "expected": 4, "gangs": expected, "hidden": 0}
    ]
    assert (found[0]["pricePerHour"], found[0].get("lastSeen"), found[0]["neverUp"]) == ("2.00", None, False)
    assert (of_member["gangs"], of_member["hidden"], of_member["expected"]) == (["team-a/asks"], 2, 4)
    assert ">team-b/reserved</a>" in page.text
    assert "Where its pods would go" in gang.text
    assert ">nodeshape/x8/1</th><td>wants-0, wants-1</td>" in gang.text
    assert '<a href="/shapes">nodeshape/x8/1</a>' in of_asking.text
    assert "Pods that join it wait: NodesNeeded" in grows.text
    assert refused.status == 403


async def test_a_gangs_life_begins_before_its_gang_is_made() -> None:
    cluster = dashboard_clusters.Cluster().queue("q").gang("ns/train", "q")
    books = Books([ledgers.a_gang("uid-train"), ledgers.a_gang("another")])
    async with dashboards.a_site(books=books, cluster=cluster) as site, aiohttp.ClientSession() as session:
        answer = await Reader(site, session).get("/gangs/ns/train")

    assert answer.text.count("kind-reserve") == 1


async def test_the_entries_of_a_gang_that_its_pods_name_are_shown() -> None:
    """The books know it by namespace and name, its Gang has a UID."""
    cluster = dashboard_clusters.Cluster().queue("q").gang("ns/train", "q")
    entries = [ledgers.a_gang(uid) for uid in ("ns/train", "ns/train-2")]
    books = Books([replace(one, gang=one.gang_uid, at=dashboard_clusters.NOW) for one in entries])
    async with dashboards.a_site(books=books, cluster=cluster) as site, aiohttp.ClientSession() as session:
        answer = await Reader(site, session).get("/gangs/ns/train")

    assert answer.text.count("kind-reserve") == 1


WITHOUT_CLAIMS = {
    "/queues": ["4 of 40 taken"],
    "/queues/q": ["4 of 40 taken", "nominal 40"],
    "/gangs": ["8 credits"],
    "/gangs/team/train": ["credits 8", ">train-0<"],
    "/ledger/statements/q?from=2026-11-21&to=2026-11-22": ["used +8", "8 of 40", "4 of 40", "spent +6.7 h"],
    "/ledger/use?queue=q&from=2026-11-21&to=2026-11-22": ["No device was used in this time."],
    "/past?at=2026-11-21T12:30": ["credits 8", ">40<"],
    "/past?at=2026-11-21T13:30": ["credits 4"],
}


async def test_pods_without_claims_are_shown_by_what_their_meter_counts(tmp_path: Path) -> None:
    url = await ledgers.a_ledger(tmp_path)
    cluster_in_books = await lives.posted(url, await lives.without_claims())
    quota, plan = {"meter": "credits", "nominal": "40"}, [{"pod": "train-0", "node": "a", "claims": []}]
    cluster = dashboard_clusters.Cluster().queue("q", spec={"quotas": [quota]}, use={**quota, "used": "4"})
    cluster.gang("team/train", "q", "Running", plan=plan, charges={"credits": "8"})
    async with (
        opened(url, cluster_in_books) as books,
        dashboards.a_site(books=books, cluster=cluster) as site,
        aiohttp.ClientSession() as session,
    ):
        pages = {path: (await Reader(site, session).get(path)).text for path in WITHOUT_CLAIMS}

    texts = {path: re.sub(r"</?(span|b)\b[^>]*>", "", text) for path, text in pages.items()}
    assert {path: [one for one in shown if one not in texts[path]] for path, shown in WITHOUT_CLAIMS.items()} == {
        path: [] for path in WITHOUT_CLAIMS
    }


async def test_a_gang_search_shows_matching_gangs_only(reader: Reader) -> None:
    answer = await reader.get("/gangs?reason=DevicesBusy")

    assert "team-a/bigger" not in answer.text


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith(("/ledger", "/past", "/queues/"))])
async def test_names_of_gangs_of_other_namespaces_are_not_shown(reader: Reader, path: str) -> None:
    answer = await reader.get(path, MEMBER)

    assert answer.status == 200
    assert [name for name in ("team-b", "team-c", "secret", "inference", "whispered") if name in answer.text] == []


async def test_devices_held_by_others_are_shown_as_held_without_a_name(reader: Reader) -> None:
    answer = await reader.get("/devices/node-1", MEMBER)

    assert "held by another namespace" in answer.text
    assert "held by team-a/train" in answer.text


CLOSED = ["/queues", "/queues/lab", "/gangs/team-a/train", "/devices", "/devices/node-1", "/ledger", "/past"]


@pytest.mark.parametrize(
    "path",
    [*CLOSED, "/ledger/statements/vision", "/ledger/use", "/ledger/used", "/ledger/waiting", "/ledger?queue=vision"],
)
async def test_who_has_no_right_sees_no_page(reader: Reader, path: str) -> None:
    answer = await reader.get(path, NOBODY)

    assert answer.status == 403


async def test_the_missing_right_is_named(reader: Reader) -> None:
    answer = await reader.get("/gangs/team-c/secret", MEMBER)

    assert "get gangs.muster.dev secret in namespace team-c" in answer.text


async def test_a_gang_that_is_not_there_and_one_that_may_not_be_seen_look_alike(reader: Reader) -> None:
    there = await reader.get("/gangs/team-c/secret", MEMBER)
    gone = await reader.get("/gangs/team-c/nothing", MEMBER)

    assert there.text.replace("secret", "nothing") == gone.text
    assert there.status == gone.status == 403


async def test_a_page_of_a_missing_object_is_not_found(reader: Reader) -> None:
    for path in ("/gangs/team-a/none", "/queues/none", "/devices/none", "/queues?parent=none", "/nothing"):
        assert (await reader.get(path)).status == 404, path


async def test_the_books_may_be_away_and_the_gang_is_shown(reader: Reader) -> None:
    assert isinstance(reader.site.books, Books)
    reader.site.books.error = LedgerUnavailableError("the database does not answer")

    gang, ledger, overview = [await reader.get(path) for path in ("/gangs/team-a/train", "/ledger", "/")]

    assert gang.status == 200
    assert "The books cannot be read now: the database does not answer" in gang.text
    assert "Use and waiting over time cannot be read now: the database does not answer" in overview.text
    assert ledger.status == 503


async def test_what_waited_for_longest_is_read_once_a_minute_for_all_who_look(reader: Reader) -> None:
    assert isinstance(reader.site.books, Books)

    pages = [await reader.get("/capacity?page=1"), await reader.get("/capacity"), await reader.get("/capacity", MEMBER)]

    assert ["Gang-hours" in page.text for page in pages] == [True, True, False]
    assert len(reader.site.books.waited_read) == 1


async def test_before_the_cluster_was_read_nothing_is_shown(reader: Reader) -> None:
    reader.site.cluster.synced = False

    answer = await reader.get("/")

    assert answer.status == 503
    assert "team-a" not in answer.text


async def test_what_others_have_written_is_escaped() -> None:
    evil = '<script>alert("1")</script>'
    hold = {"reason": "DevicesBusy", "message": evil, "details": {evil: evil}}
    cluster = dashboard_clusters.Cluster().queue("q").gang("team-a/evil", "q", hold=hold)
    async with dashboards.a_site(cluster=cluster) as site, aiohttp.ClientSession() as session:
        reader = Reader(site, session)
        pages = [await reader.get(path) for path in ("/", "/gangs", "/gangs/team-a/evil", f"/queues?q={evil}")]

    assert [page.status for page in pages] == [200] * 4
    assert all("<script>alert" not in page.text and "&lt;script&gt;" in page.text.lower() for page in pages)


async def test_the_address_says_which_branches_are_open(reader: Reader) -> None:
    """So that a link to a tree shows what its sender saw, also where scripts are off."""
    seen = {path: (await reader.get(path)).text for path in ("/queues", "/queues?open=-", "/queues?open=lab,research")}

    assert {path: text.count(" data-level=") for path, text in seen.items()} == {
        "/queues": 4,
        "/queues?open=-": 2,
        "/queues?open=lab,research": 5,
    }
    assert 'href="?open=lab"' in seen["/queues?open=-"]
    assert 'href="?open=-"' in seen["/queues"]
    assert 'href="?open=lab"' in seen["/queues?open=lab,research"], "closes research and leaves lab open"


ORDERS = {
    "/gangs?sort=gang": ["team-a/bigger", "team-a/monster", "team-a/train", "team-b/inference"],
    "/gangs?sort=-gang": ["team-c/whispered", "team-c/secret", "team-b/inference"],
    "/gangs?sort=-asks": ["team-a/monster", "team-a/train", "team-b/inference"],
    "/gangs?sort=since": ["team-a/bigger", "team-a/train"],
    "/gangs?sort=start": ["team-a/bigger", "team-a/train"],
    "/queues?open=lab,research&sort=-waiting": [">lab<", ">research<", ">vision<", ">production<", ">orphan<"],
    "/queues?open=lab&sort=use": [">orphan<", ">lab<", ">production<", ">research<"],
    "/devices?sort=-free": [">node-2<", ">node-1<", ">node-3<"],
    "/devices?sort=nothing": [">node-1<", ">node-2<", ">node-3<"],
}


@pytest.mark.parametrize(("path", "names"), ORDERS.items(), ids=ORDERS)
async def test_columns_sort(reader: Reader, path: str, names: list[str]) -> None:
    text = (await reader.get(path)).text
    rows = text[text.index("<tbody") :]

    assert [rows.index(name) for name in names] == sorted(rows.index(name) for name in names)
    assert text.count("aria-sort") == (0 if "nothing" in path else 1)


async def test_pages_are_cut_and_counted() -> None:
    cluster = dashboard_clusters.Cluster().queue("q")
    for number in range(120):
        cluster.gang(f"team-a/g-{number:03}", "q", minutes=number)
    async with dashboards.a_site(cluster=cluster) as site, aiohttp.ClientSession() as session:
        last = await Reader(site, session).get("/gangs?page=3")
        beyond = await Reader(site, session).get("/gangs?page=99&phase=Pending")

    assert "120 of 120 gangs" in last.text
    assert "120 of 120 gangs" in beyond.text


async def test_the_books_hide_the_gangs_of_other_namespaces(reader: Reader) -> None:
    _, rights = reader.site.reviews.known[MEMBER]
    reader.site.reviews.known[MEMBER] = ("ben", rights | {LEDGERS})
    day = "from=2026-03-01&to=2026-03-02"
    pages = [await reader.get(path, MEMBER) for path in (f"/ledger?{day}", "/past?at=2026-03-01T12:03")]

    assert [page.status for page in pages] == [200, 200]
    assert all("of another namespace" in page.text for page in pages)
    assert [
        name for name in ("ns/one", "ns/two", "it fits", "Job ns/train") for page in pages if name in page.text
    ] == []


@pytest.mark.parametrize("condition", ["gang=on", "user=ada", "namespace=ns"])
async def test_a_search_by_name_needs_a_right_to_the_namespace(reader: Reader, condition: str) -> None:
    name, rights = reader.site.reviews.known[MEMBER]
    reader.site.reviews.known[MEMBER] = (name, rights | {LEDGERS})
    books = reader.site.books
    assert isinstance(books, Books)

    refused = await reader.get(f"/ledger?{condition}", MEMBER)
    asked = books.wanted
    allowed = await reader.get(f"/ledger?{condition}&namespace=team-a", MEMBER)

    assert asked is None
    assert "name a namespace whose gangs you may list" in refused.text
    assert condition == "namespace=ns" or "name a namespace" not in allowed.text


async def test_a_user_may_see_the_account_of_a_single_queue(reader: Reader) -> None:
    name, rights = reader.site.reviews.known[MEMBER]
    own = LEDGERS._replace(verb="get", name="team-a")
    reader.site.reviews.known[MEMBER] = (name, rights | {own})

    found = {
        path: (await reader.get(path, MEMBER)).status
        for path in (
            "/ledger?queue=team-a",
            "/ledger?queue=team-b",
            "/ledger/statements/team-a",
            "/ledger/statements/team-b",
            "/ledger/use?queue=team-a",
            "/ledger/use",
            "/past?at=2026-03-01T12:03",
        )
    }

    assert [path for path, status in found.items() if status == 200] == [
        "/ledger?queue=team-a",
        "/ledger/statements/team-a",
        "/ledger/use?queue=team-a",
    ]
    assert set(found.values()) == {200, 403}
