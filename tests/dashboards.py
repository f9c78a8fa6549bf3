"""What tests of the dashboard share: twins of its ports, and a server on a local port."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from admission.api import listings
from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.listings import EventList, PodList
from admission.dashboard import server
from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.rbac import CachedReviewer
from admission.dashboard.auth.session import Sessions
from admission.dashboard.gang_listings import GangListings
from admission.dashboard.jinja_environment import Templates
from admission.dashboard.ports import Ledger
from admission.dashboard.request_context import AppContext
from admission.dashboard.server import Listening
from admission.dashboard.view_model import ClusterViews
from tests.dashboard_books import Books
from tests.dashboard_clusters import NOW, Cluster, Json, a_cluster, ago

ADMIN = "token-of-ada"
MEMBER = "token-of-ben"
NOBODY = "token-of-eve"


def people() -> dict[str, tuple[str, frozenset[Question]]]:
    """Return by token a name and rights: an admin who sees all, a member of team-a, and somebody who sees nothing."""
    slices = Question("list", "resourceslices", group="resource.k8s.io")
    read = {Question("list", kind, group="", namespace="team-a") for kind in ("pods", "events")}
    shapes = Question("list", "nodeshapes")
    everything = frozenset(
        {shapes, Question("list", "queues"), Question("list", "gangs"), Question("list", "ledgers"), slices, *read}
    )
    member = frozenset({shapes, Question("list", "queues"), Question("list", "gangs", namespace="team-a"), slices})
    return {ADMIN: ("ada", everything), MEMBER: ("ben", member), NOBODY: ("eve", frozenset())}


class Reviews:
    """The twin of the port `Reviewer`: who has which token, and which rights. An `error` is raised instead."""

    def __init__(self, known: dict[str, tuple[str, frozenset[Question]]] | None = None) -> None:
        self.known = dict(known) if known is not None else dict(people())
        self.asked: list[str | Question] = []
        self.error: Exception | None = None

    async def authenticate(self, token: str) -> UserInfo | None:
        self._ask(token)
        return UserInfo(name=self.known[token][0], groups=("system:authenticated",)) if token in self.known else None

    async def allows(self, visitor: UserInfo, question: Question) -> bool:
        self._ask(question)
        return any(question in rights for name, rights in self.known.values() if name == visitor.name)

    def _ask(self, what: str | Question) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error


class Listings:
    """The twin of the port `ListingReader`: pods and Events as the API server lists them. An `error` is raised instead.

    asked: the selectors of all lists that were asked for, in their order.
    """

    def __init__(self, pods: Sequence[Sequence[str]] = (), events: Sequence[Json] = ()) -> None:
        self.pod_rows, self.event_items = list(pods), list(events)
        self.asked: list[str] = []
        self.error: Exception | None = None

    async def pods(self, namespace: str, *, labels: str, fields: str, limit: int) -> PodList:
        self._ask(f"pods {namespace} {labels or fields}")
        columns = [{"name": name} for name in ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")]
        table = {"columnDefinitions": columns, "rows": [{"cells": [*cells]} for cells in self.pod_rows[:limit]]}
        return listings.decode_pods(table)

    async def events(self, namespace: str, *, fields: str, limit: int) -> EventList:
        self._ask(f"events {namespace} {fields}")
        wanted = [part.partition("=")[2] for part in fields.split(",")]
        about = [
            tuple(one["involvedObject"][name] for name in ("kind", "name")[: len(wanted)]) for one in self.event_items
        ]
        found = [one for one, known in zip(self.event_items, about, strict=True) if known == tuple(wanted)]
        return listings.decode_events({"items": found[:limit]})

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error


def event(kind: str, name: str, reason: str, message: str, *, minutes: float = 1, warns: bool = False) -> Json:
    """Return an Event (v1) of so many minutes ago."""
    return {
        "type": "Warning" if warns else "Normal",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": kind, "name": name},
        "lastTimestamp": ago(minutes),
        "source": {"component": "kubelet"},
    }


def some_listings() -> Listings:
    """Return the pods of team-a/train in `a_cluster`, one of which fails, and Events, also about others."""
    return Listings(
        pods=[
            ("train-0", "1/1", "Running", "0", "20m", "10.0.0.1", "node-1"),
            ("train-1", "0/1", "CrashLoopBackOff", "3 (2m ago)", "20m", "10.0.0.2", "node-1"),
        ],
        events=[
            event("Gang", "train", "Admitted", "2 pods may start", minutes=20),
            event("Job", "train", "SuccessfulCreate", "Created pod: train-0", minutes=21),
            event("Pod", "train-1", "BackOff", "Back-off restarting failed container main", minutes=2, warns=True),
            event("Pod", "train-1", "Failed", "an earlier warning", minutes=9, warns=True),
            event("Pod", "stranger-0", "BackOff", "of another gang", warns=True),
        ],
    )


@functools.cache
def templates() -> Templates:
    """Return the templates, compiled once for all tests."""
    return Templates()


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(kw_only=True)
class Site:
    """A server and what is behind it."""

    url: str = ""
    cluster: Cluster
    reviews: Reviews
    books: Ledger
    clock: Clock
    app_context: AppContext
    listings: Listings


@asynccontextmanager
async def a_site(
    *,
    cluster: Cluster | None = None,
    reviews: Reviews | None = None,
    books: Ledger | None = None,
    proxies: Proxies | None = None,
    lasting: timedelta = timedelta(hours=8),
    listed: Listings | None = None,
) -> AsyncIterator[Site]:
    """Serve the pages on a free port of this machine until the block is left."""
    cluster, reviews = cluster if cluster is not None else a_cluster(), reviews or Reviews()
    books, clock, listed = books or Books(), Clock(), listed or some_listings()
    app_context = AppContext(
        cluster="east",
        cluster_views=ClusterViews(cluster, clock),
        gang_listings=GangListings(listed, clock),
        reviewer=CachedReviewer(reviews, clock),
        ledger=books,
        sessions=Sessions(["a secret of thirty-two characters"], lasting),
        templates=await asyncio.to_thread(templates),
        proxies=proxies,
        clock=lambda: NOW,
    )
    site = Site(cluster=cluster, reviews=reviews, books=books, clock=clock, app_context=app_context, listings=listed)
    async with server.serving(Listening(host="127.0.0.1", port=0), app_context) as port:
        site.url = f"http://localhost:{port}"
        yield site
