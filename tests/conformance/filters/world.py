"""A world under construction, and the pieces that every family of rules builds on."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.filters.draws import Draw

Json = dict[str, Any]

HOSTNAME, ZONE, REGION, RACK = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "example.com/rack",
)
NAMESPACES = ("default", "one", "two")
ZONES = ("z1", "z2", "z3")

KINDS = (
    "namespaces",
    "pvs",
    "pvcs",
    "storageClasses",
    "csiNodes",
    "csiDrivers",
    "csiStorageCapacities",
    "volumeAttachments",
    "resourceSlices",
    "deviceClasses",
    "resourceClaims",
)


@dataclass(slots=True, kw_only=True)
class World:
    """Nodes, the pods that run on them, the groups of equal pods of which a gang is made, and all other objects."""

    version: str
    gates: dict[str, bool] = field(default_factory=dict)
    nodes: list[Json] = field(default_factory=list)
    bound: list[Json] = field(default_factory=list)
    groups: list[list[Json]] = field(default_factory=list)
    objects: dict[str, list[Json]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    @property
    def gang(self) -> list[Json]:
        return [pod for group in self.groups for pod in group]

    @property
    def pods(self) -> list[Json]:
        return [*self.bound, *self.gang]

    def named(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]

    def since(self, minor: int) -> bool:
        """Return whether it is of this minor version of Kubernetes, or of a later one."""
        return int(self.version.partition(".")[2]) >= minor

    def json(self, draw: Draw) -> Json:
        """Return the world as the program reads it; some pods of the gang are sent to a node of our choice."""
        found: Json = {"version": self.version, "nodes": self.nodes, "pods": self.bound}
        if self.gates:
            found["gates"] = self.gates
        found |= {kind: those for kind, those in self.objects.items() if those}
        order = self.gang
        if draw.chance(30):
            order.sort(key=lambda pod: str(pod["metadata"]["name"])[::-1])
        found["gang"] = [_member(pod, self, draw) for pod in order]
        return found


def _member(pod: Json, world: World, draw: Draw) -> Json:
    return {"pod": pod, "node": draw.pick(world.named())} if draw.chance(15) else {"pod": pod}


def base(draw: Draw, version: str) -> World:
    """Return a world of nodes in zones and racks with running pods and a gang, in which nothing is refused yet."""
    world = World(version=version)
    zones = ZONES[: draw.number(1, 3)]
    for at in range(draw.number(1, 8)):
        world.nodes.append(_node(draw, f"n{at + 1}", draw.pick(zones)))
    world.objects["namespaces"] = [_namespace(draw, name) for name in NAMESPACES if draw.chance(85)]
    home = draw.weighted([("default", 70), ("one", 30)])
    for number in range(draw.weighted([(1, 70), (2, 30)])):
        template = pod("", home, _labels(draw))
        group = [named(template, f"g{number}-{at}") for at in range(draw.number(1, 6 if number == 0 else 3))]
        for each in group:
            if draw.chance(8):
                each["metadata"]["labels"] = _labels(draw)
        world.groups.append(group)
    for at in range(draw.number(0, 8)):
        runs = pod(f"b{at}", home if draw.chance(65) else draw.pick(NAMESPACES), _labels(draw))
        if draw.chance(40):
            runs["metadata"]["labels"] = dict(world.groups[0][0]["metadata"]["labels"])
        runs["spec"]["nodeName"] = draw.pick(world.named()) if draw.chance(96) else "gone"
        runs["status"] = {"phase": draw.weighted([("Running", 90), ("Pending", 5), ("Succeeded", 3), ("Failed", 2)])}
        world.bound.append(runs)
    return world


def pod(name: str, namespace: str, labels: dict[str, str]) -> Json:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }


def named(template: Json, name: str) -> Json:
    found = deepcopy(template)
    found["metadata"]["name"] = name
    return found


def merge(given: Json, piece: Json) -> None:
    """Add a piece of a manifest to one: lists grow, the rest is replaced; what is added is a copy."""
    for name, value in piece.items():
        if isinstance(value, dict) and isinstance(given.get(name), dict):
            merge(given[name], value)
        elif isinstance(value, list) and isinstance(given.get(name), list):
            given[name].extend(deepcopy(value))
        else:
            given[name] = deepcopy(value)


def _node(draw: Draw, name: str, zone: str) -> Json:
    labels = {HOSTNAME: name, ZONE: zone, REGION: "r1", RACK: draw.pick(("k1", "k2", "k3"))}
    for label in (HOSTNAME, ZONE, REGION, RACK):
        if draw.chance(5):
            del labels[label]
    if draw.chance(4):
        labels[HOSTNAME] = "n1"
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "20"}},
    }


def _namespace(draw: Draw, name: str) -> Json:
    labels = {"team": draw.pick(("red", "blue"))} if draw.chance(80) else {}
    return {"metadata": {"name": name, "labels": labels}}


def _labels(draw: Draw) -> dict[str, str]:
    labels = {"app": draw.pick(("a", "b", "c"))}
    if draw.chance(50):
        labels["tier"] = draw.pick(("x", "y"))
    if draw.chance(40):
        labels["version"] = draw.pick(("v1", "v2"))
    return labels
