"""What tests of the dashboard share: a cluster to look at, twins of its ports, and a server on a local port."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from admission.api import listings
from admission.api.kubernetes import claims, devices, nodes
from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.listings import EventList, PodList
from admission.api.muster import observed
from admission.api.muster.observed import ObservedObjects
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

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"

Json = dict[str, Any]

_NOTHING: Json = {}

ADMIN = "token-of-ada"
MEMBER = "token-of-ben"
NOBODY = "token-of-eve"


def _ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Cluster:
    """A cluster under construction, and the twin of the port `View`. Everything goes through the decoders."""

    synced: bool = True
    _queues: list[Json] = field(default_factory=list)
    _gangs: list[Json] = field(default_factory=list)
    _claims: list[Json] = field(default_factory=list)
    _slices: list[Json] = field(default_factory=list)
    _nodes: list[Json] = field(default_factory=list)
    _shapes: list[Json] = field(default_factory=list)
    _seen: ObservedObjects | None = None

    def queue(self, name: str, parent: str = "", *, gpus: int = 8, used: int = 0, **more: Any) -> Self:
        """Add a queue with its status; more: fields of its status, and `spec`."""
        use = {"meter": "gpus", "nominal": str(gpus), "used": str(used), "borrowed": str(max(0, used - gpus))}
        spec = {"quotas": [{"meter": "gpus", "nominal": str(gpus)}], **({"parent": parent} if parent else {})}
        status: Json = {"meters": [use | more.pop("use", {})], "gangs": {}, "conditions": []}
        self._queues.append(
            {"metadata": {"name": name}, "spec": spec | more.pop("spec", {}), "status": status | more},
        )
        return self

    def gang(
        self,
        key: str,
        queue: str,
        phase: str = "Pending",
        *,
        places: Sequence[tuple[str, Sequence[str]]] = (),
        allocated: bool = True,
        minutes: float = 30,
        spec: Json = _NOTHING,
        **status: Any,
    ) -> Self:
        """Add a gang that came so many minutes ago. places: for each pod, its node and devices (one claim).

        If it was let in, that was 20 minutes ago. spec: more of its spec.
        """
        namespace, _, name = key.partition("/")
        plan = []
        for at, (node, given) in enumerate(places):
            results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in given]
            plan.append(
                {"pod": f"{name}-{at}", "node": node, "claims": [{"claim": f"{name}-{at}", "devices": results}]}
            )
            if allocated:
                self.claim(f"{namespace}/{name}-{at}", results)
        own: Json = {"phase": phase, "pods": max(1, len(places)), "queuedSince": _ago(minutes)}
        reached = [*(["Admitted"] if phase in ("Admitted", "Running") else []), *(["Running"] * (phase == "Running"))]
        own["conditions"] = [{"type": kind, "status": "True", "lastTransitionTime": _ago(20)} for kind in reached]
        if plan:
            own |= {"plan": plan, "charges": {"gpus": str(sum(len(given) for _, given in places))}}
        self._gangs.append(
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{name}",
                    "creationTimestamp": _ago(minutes),
                },
                "spec": {"queue": queue, "size": max(1, len(places)), **spec},
                "status": own | status,
            }
        )
        return self

    def claim(self, key: str, results: Sequence[Json]) -> Self:
        namespace, _, name = key.partition("/")
        self._claims.append(
            {
                "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
                "status": {"allocation": {"devices": {"results": list(results)}}},
            }
        )
        return self

    def node(
        self,
        name: str,
        *,
        gpus: int = 8,
        roots: int = 2,
        cordoned: bool = False,
        shape: str = "",
        taints: Sequence[str] = (),
    ) -> Self:
        """Add a node with whole devices. shape: which it is of. taints: their effects."""
        listed = [
            {
                "name": f"gpu-{at}",
                "attributes": {
                    ROOT: {"string": f"pci0000:{at * roots // gpus:02x}"},
                    f"{DRIVER}/model": {"string": "H100"},
                },
                "capacity": {f"{DRIVER}/memory": {"value": "80Gi"}},
            }
            for at in range(gpus)
        ]
        return self._node(name, {"devices": listed}, cordoned=cordoned, labels={"shape": shape}, taints=taints)

    def parted_node(self, name: str, *, gpus: int = 2) -> Self:
        """Add a node whose devices are handed out whole, in halves or in sevenths, as MIG slices are."""
        listed: list[Json] = []
        for gpu in range(gpus):
            for part, memory in (("", 80), ("-half-0", 40), ("-half-1", 40), ("-small-0", 10), ("-small-1", 10)):
                draws = [{"counterSet": f"gpu-{gpu}-set", "counters": {"memory": {"value": f"{memory}Gi"}}}]
                root = {ROOT: {"string": "pci0000:00"}}
                listed.append({"name": f"gpu-{gpu}{part}", "attributes": root, "consumesCounters": draws})
        sets = [{"name": f"gpu-{gpu}-set", "counters": {"memory": {"value": "80Gi"}}} for gpu in range(gpus)]
        self._slice(name, {"devices": listed}, generation=1, index=0, count=2)
        return self._node(name, {"sharedCounters": sets}, index=1, count=2)

    def _node(
        self,
        name: str,
        spec: Json,
        *,
        cordoned: bool = False,
        index: int = 0,
        count: int = 1,
        labels: Json = _NOTHING,
        taints: Sequence[str] = (),
    ) -> Self:
        tainted = [{"key": "example.com/old", "effect": effect} for effect in taints]
        own = {"unschedulable": cordoned, "taints": tainted}
        status = {"allocatable": {"cpu": "64"}}
        self._nodes.append({"metadata": {"name": name, "labels": labels}, "spec": own, "status": status})
        return self._slice(name, spec, generation=1, index=index, count=count)

    def _slice(self, node: str, spec: Json, *, generation: int, index: int, count: int) -> Self:
        pool = {"name": node, "generation": generation, "resourceSliceCount": count}
        self._slices.append(
            {
                "metadata": {"name": f"{node}-{index}"},
                "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
            }
        )
        return self

    def shape(self, name: str, *, most: int = 4, up: str = "NeverUp", differs: str = "", **spec: Any) -> Self:
        """Add a NodeShape whose nodes have its name as label `shape`. up: why its condition `Up` is as it is."""
        conditions = [{"type": "Up", "status": "False", "reason": up, "message": "", "lastTransitionTime": _ago(45)}]
        if "nodePool" in spec:
            conditions.append({"type": "NodePool", "status": "False", "message": f"there is no NodePool {name}"})
        if differs:
            conditions.append({"type": "Matches", "status": "False", "reason": "Differs", "message": differs})
        wanted = {"maxCount": most, "matchLabels": {"shape": name}, "allocatable": {"cpu": "64"}, **spec}
        self._shapes.append({"metadata": {"name": name}, "spec": wanted, "status": {"conditions": conditions}})
        return self

    def change(self, key: str, **status: Any) -> None:
        """Change fields of a gang's status; one that becomes None is taken away."""
        [gang] = [one for one in self._gangs if f"{one['metadata']['namespace']}/{one['metadata']['name']}" == key]
        gang["status"] = {name: value for name, value in (gang["status"] | status).items() if value is not None}
        self._seen = None

    def observe(self) -> ObservedObjects:
        if self._seen is None:
            self._seen = ObservedObjects(
                queues={one.queue.name: one for one in map(observed.decode_queue, self._queues)},
                gangs={one.key: one for one in map(observed.decode_gang, self._gangs)},
                meters={one.meter.name: one for one in [observed.decode_meter(_METER)]},
                classes={one.meta.name: one for one in map(devices.decode_class, _CLASSES)},
                nodes={one.name: one for one in map(nodes.decode, self._nodes)},
                shapes={one.shape.name: one for one in map(observed.decode_shape, self._shapes)},
                slices={one.meta.name: one for one in map(devices.decode_slice, self._slices)},
                claims={one.meta.key: one for one in map(claims.decode, self._claims)},
            )
        return self._seen


_METER = {
    "metadata": {"name": "gpus"},
    "spec": {"unit": "GPU", "sources": [{"deviceClasses": ["gpu"], "count": {}}]},
    "status": {"outsideQueues": [{"deviceClass": "gpu", "devices": 1}]},
}
_CLASSES = [
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}},
    {"metadata": {"name": "fpga"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'fpga'"}}]}},
]


def a_cluster() -> Cluster:
    """Return a small cluster in which something runs, something waits and something is planned."""
    exhausted = {
        "meter": "gpus",
        "hours": "1000",
        "spent": "900",
        "promised": "50",
        "left": "50",
        "period": "Month",
        "start": "2026-11-01T00:00:00Z",
        "end": "2026-12-01T00:00:00Z",
        "onExhausted": "Hold",
    }
    stopped = {"type": "Active", "status": "False", "reason": "ParentMissing", "message": "there is no Queue lost"}
    return (
        Cluster()
        .node("node-1")
        .node("node-2", cordoned=True)
        .parted_node("node-3")
        .shape("gpu-x8", most=16, up="NoNodes", pricePerHour="31.50", differs="node node-9: 7 devices of driver gpu")
        .shape("cpu", nodePool="cpu")
        .queue("lab", gpus=0)
        .queue("research", "lab", used=2, gangs={"pending": 1, "running": 1}, budgets=[exhausted])
        .queue("vision", "research", gpus=2, used=4, gangs={"pending": 2, "running": 1})
        .queue("production", "lab", gangs={"reserved": 1}, use={"reserved": "2", "lent": "1"})
        .queue("orphan", "lost", conditions=[stopped])
        .gang(
            "team-a/train",
            "vision",
            "Running",
            places=[("node-1", ["gpu-0", "gpu-1"]), ("node-1", ["gpu-4", "gpu-5"])],
            spec={
                "runtime": "2h",
                "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train"},
            },
        )
        .gang("team-b/inference", "production", "Reserved", places=[("node-1", ["gpu-2", "gpu-3"])], allocated=False)
        .gang("team-c/secret", "research", "Running", places=[("node-1", ["gpu-6"]), ("node-3", ["gpu-0-half-0"])])
        .gang(
            "team-a/bigger",
            "vision",
            minutes=90,
            position=1,
            hold={
                "reason": "QuotaExceeded",
                "message": "queue vision has 0 gpus left, the gang needs 4",
                "details": {"meter": "gpus", "left": "0", "needed": "4", "potential": "10"},
                "since": _ago(80),
            },
            requests={"gpus": "4"},
            startEstimate=(NOW + timedelta(minutes=25)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            startReason="when team-a/train is over",
        )
        .gang(
            "team-a/monster",
            "vision",
            minutes=5,
            position=2,
            hold={
                "reason": "QuotaExceeded",
                "message": "queue vision has 0 gpus left, the gang needs 24, and can never have more than 10",
                "details": {"meter": "gpus", "left": "0", "needed": "24", "potential": "10"},
                "since": _ago(5),
            },
            requests={"gpus": "24"},
        )
        .gang(
            "team-c/whispered",
            "research",
            minutes=10,
            hold={"reason": "DevicesBusy", "message": "all devices are held", "details": {}, "since": _ago(9)},
        )
    )


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
        "lastTimestamp": _ago(minutes),
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
