"""A cluster for the dashboard to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from admission.api.kubernetes import claims, devices, nodes
from admission.api.muster import observed
from admission.api.muster.observed import ObservedObjects

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"

Json = dict[str, Any]

_NOTHING: Json = {}


def ago(minutes: float) -> str:
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
        own: Json = {"phase": phase, "pods": max(1, len(places)), "queuedSince": ago(minutes)}
        reached = [*(["Admitted"] if phase in ("Admitted", "Running") else []), *(["Running"] * (phase == "Running"))]
        own["conditions"] = [{"type": kind, "status": "True", "lastTransitionTime": ago(20)} for kind in reached]
        if plan:
            own |= {"plan": plan, "charges": {"gpus": str(sum(len(given) for _, given in places))}}
        self._gangs.append(
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{name}",
                    "creationTimestamp": ago(minutes),
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
        conditions = [{"type": "Up", "status": "False", "reason": up, "message": "", "lastTransitionTime": ago(45)}]
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
                "since": ago(80),
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
                "since": ago(5),
            },
            requests={"gpus": "24"},
        )
        .gang(
            "team-c/whispered",
            "research",
            minutes=10,
            hold={"reason": "DevicesBusy", "message": "all devices are held", "details": {}, "since": ago(9)},
        )
    )
