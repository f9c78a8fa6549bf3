"""Small random gangs, and worlds to place them in: every feature of devices, and pods that get into each other's way.

`gangs` is for hypothesis, `seeded` for throwing thousands at the planner; both make every choice by drawing an integer,
0 being the simplest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from admission.api.kubernetes import claims, devices, nodes, pods
from admission.api.kubernetes.claims import Claim
from admission.api.snapshot import Snapshot
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

DRIVERS = ("gpu", "nic")
KEY = "gpu/numa"
SLOT = "plugin.test/slot"
"""A resource of device plugins, which no class offers."""
CLASSES = {"any": "", "gpu": "device.driver == 'gpu'", "nic": "device.driver == 'nic'"}

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Gang:
    """A gang and the world that it comes to, made from a snapshot."""

    snapshot: Snapshot
    cluster: ClusterState
    pods: tuple[PodDemand, ...]
    limit: int
    """How many devices and slots together the gang may be charged for."""
    objects: Mapping[str, list[Json]]
    """Nodes, slices, classes and claims as they were written."""


@st.composite
def gangs(draw: st.DrawFn, release: Release) -> Gang:
    """Draw a small gang."""
    return _Gangs(lambda least, most: draw(st.integers(least, most))).gang(release)


def seeded(seed: int, release: Release) -> Gang:
    """Return the gang of this seed."""
    return _Gangs(Random(seed).randint).gang(release)  # noqa: S311 - not for secrets


class _Gangs:
    """Makes every choice by drawing an integer; 0 is the plainest."""

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self._integer = integer
        self._focus = ""
        self._claims: list[Json] = []

    def chance(self, percent: int) -> bool:
        return self._integer(0, 99) >= 100 - percent

    def about(self, focus: str, percent: int) -> bool:
        """Take a chance, a good one in gangs that are about this."""
        return self.chance(75 if focus == self._focus else percent)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._integer(0, len(options) - 1)]

    def gang(self, release: Release) -> Gang:
        self._focus = self.pick(
            ("", "counters", "capacity", "taints", "lists", "rules", "all", "shared", "fabric", "plugins")
        )
        named = [f"n-{at}" for at in range(self._integer(1, 3))]
        made = [self.node(name) for name in named]
        slices = [one for name in named for one in self.pools(name)]
        if self.about("fabric", 25):
            slices += self.fabric()
        snapshot = Snapshot(
            nodes={node.name: node for node in map(nodes.decode, made)},
            slices={one["metadata"]["name"]: devices.decode_slice(one) for one in slices},
            classes={name: devices.decode_class(_class(name, text)) for name, text in CLASSES.items()},
            claims={claim.meta.key: claim for claim in self.others(slices)},
        )
        cluster = cluster_state.build(snapshot, (), profile=compatibility.profile(release))
        pods_, limit = tuple(self.pods()), self._integer(0, 8)
        classes = [_class(name, text) for name, text in CLASSES.items()]
        objects = {"nodes": made, "slices": slices, "classes": classes, "claims": self._claims}
        return Gang(snapshot, cluster, pods_, limit, objects)

    def node(self, name: str) -> Json:
        allocatable = {"cpu": str(self._integer(1, 4)), "pods": "10"} if self.chance(20) else None
        if allocatable and self.chance(50):
            allocatable[SLOT] = str(self._integer(1, 4))
        status = {"allocatable": allocatable} if allocatable else {}
        return {"metadata": {"name": name, "labels": {"rack": self.pick("ab")}}, "status": status}

    def pools(self, node: str) -> list[Json]:
        found = []
        for driver in DRIVERS if self.chance(30) else DRIVERS[:1]:
            found += self.pool(driver, node, {"nodeName": node})
        return found

    def fabric(self) -> list[Json]:
        rack = {"key": "rack", "operator": "In", "values": [self.pick("ab")]}
        where: Json = self.pick(
            (
                {"allNodes": True},
                {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}},
                {"perDeviceNodeSelection": True},
            )
        )
        return self.pool(self.pick(DRIVERS), "fabric", where)

    def pool(self, driver: str, name: str, where: Json) -> list[Json]:
        counting = self.about("counters", 10)
        given = [self.device(at, where, counting=counting) for at in range(self._integer(1, 5) - self.chance(10))]
        if given and self.chance(50):
            given = [{**given[0], "name": f"d-{at}"} for at in range(len(given))]
        count = 1 + counting + self.chance(2)
        slices = [_slice(driver, name, "devices", count, {**where, "devices": given})]
        if counting:
            everywhere = {"allNodes": True} if "perDeviceNodeSelection" in where else where
            sets = [{"name": "set", "counters": {"units": {"value": str(self._integer(1, 5))}}}]
            slices.append(_slice(driver, name, "counters", count, {**everywhere, "sharedCounters": sets}))
        return slices

    def device(self, at: int, where: Json, *, counting: bool) -> Json:
        found: Json = {"name": f"d-{at}", "attributes": self.attributes()}
        if self.about("capacity", 15):
            found["capacity"] = {"memory": {"value": self.pick(("4Gi", "8Gi"))}}
            if self.chance(30):
                found["capacity"]["memory"]["requestPolicy"] = {"default": "2Gi", "validRange": {"min": "2Gi"}}
        if self.about("capacity", 10):
            found["allowMultipleAllocations"] = True
        if counting and self.chance(80):
            units = {"units": {"value": str(self._integer(1, 3))}}
            found["consumesCounters"] = [{"counterSet": "set", "counters": units}]
        if self.about("taints", 5):
            found["taints"] = [{"key": "k", "effect": self.pick(("NoExecute", "NoSchedule"))}]
        if self.chance(3):
            found |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        if self.chance(5):
            found["bindsToNode"] = True
        if "perDeviceNodeSelection" in where:
            found |= self.pick(({"allNodes": True}, {"nodeName": "n-0"}, {"nodeName": "n-1"}))
        return found

    def attributes(self) -> Json:
        numa = {"numa": {"int": self._integer(0, 1)}} if not self.chance(10) else {}
        return {**numa, **({"model": {"string": self.pick("xy")}} if self.chance(40) else {})}

    def others(self, slices: Sequence[Json]) -> list[Claim]:
        """Give some devices to claims that are none of the gang's."""
        rate = self.pick((0, 0, 0, 25))
        given = [(one, device) for one in slices for device in one["spec"].get("devices", ()) if self.chance(rate)]
        return [_taken(at, *pair) for at, pair in enumerate(given)]

    def pods(self) -> list[PodDemand]:
        templates = [self.spec() for _ in range(self._integer(1, 3))]
        common = [
            self.claim(f"shared-{at}", self.pick(templates))
            for at in range(self._integer(1, 2) if self.about("shared", 15) else 0)
        ]
        return [self.pod(f"p-{at}", templates, common) for at in range(self._integer(1, 4))]

    def pod(self, name: str, templates: Sequence[Json], common: Sequence[Claim]) -> PodDemand:
        own = [self.claim(f"{name}-{number}", self.pick(templates)) for number in range(1 + self.chance(15))]
        wanted = [*own, *(claim for claim in common if self.chance(70))]
        if len(wanted) > 1 and self.chance(50):
            wanted.reverse()
        if len(wanted) > 1 and self.chance(20):
            wanted = wanted[:-1]
        spec: Json = {"nodeSelector": {"rack": self.pick("ab")}} if self.chance(8) else {}
        asked = {"cpu": str(self._integer(1, 2))} if self.chance(20) else {}
        if self.about("plugins", 5):
            asked[SLOT] = str(self._integer(1, 3))
        if asked:
            spec["containers"] = [{"resources": {"requests": asked}}]
        meta = {"name": name, "namespace": "g", "uid": name}
        return PodDemand(pod=pods.decode({"metadata": meta, "spec": spec}), claims=tuple(wanted))

    def claim(self, name: str, spec: Json) -> Claim:
        self._claims.append({"metadata": {"name": name, "namespace": "g", "uid": name}, "spec": spec})
        return claims.decode(self._claims[-1])

    def spec(self) -> Json:
        requests = [self.request(f"r-{at}") for at in range(1 + self.about("rules", 25))]
        names = [request["name"] for request in requests]
        rules = []
        if self.about("rules", 12):
            bound = {"requests": [self.pick(names)]} if self.chance(30) else {}
            rules.append({self.pick(("matchAttribute", "distinctAttribute")): KEY, **bound})
        return {"devices": {"requests": requests, "constraints": rules}}

    def request(self, name: str) -> Json:
        if self.about("lists", 20):
            options = [{"name": f"s-{at}", **self.asked()} for at in range(self._integer(2, 3))]
            return {"name": name, "firstAvailable": options}
        return {"name": name, "exactly": {**self.asked(), **({"adminAccess": True} if self.chance(7) else {})}}

    def asked(self) -> Json:
        found: Json = {"deviceClassName": self.pick(("gpu", "gpu", "gpu", "any") if not self.chance(7) else ("nic",))}
        if self.about("all", 6):
            found["allocationMode"] = "All"
        else:
            found |= {"allocationMode": "ExactCount", "count": self.pick((1, 1, 1, 2, 3))}
        if self.chance(20):
            text = self.pick(
                (
                    "device.attributes['gpu'].?model.orValue('') == 'x'",
                    "device.attributes['gpu'].?numa.orValue(0) == 0",
                    "device.attributes['gpu'].model == 'x'",
                    "!device.allowMultipleAllocations",
                )
            )
            found["selectors"] = [{"cel": {"expression": text}}]
        if self.about("capacity", 8):
            found["capacity"] = {"requests": {"memory": self.pick(("1Gi", "3Gi", "4Gi", "6Gi"))}}
        if self.about("taints", 8):
            effect = self.pick(({}, {"effect": "NoExecute"}, {"effect": "NoSchedule"}))
            found["tolerations"] = [{"key": "k", "operator": "Exists", **effect}]
        return found


def _class(name: str, text: str) -> Json:
    selectors = [{"cel": {"expression": text}}] if text else []
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}


def _slice(driver: str, pool: str, name: str, count: int, spec: Json) -> Json:
    return {
        "metadata": {"name": f"{pool}-{driver}-{name}"},
        "spec": {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": count}, **spec},
    }


def _taken(at: int, slice_: Json, device: Json) -> Claim:
    """Return a claim that has a device, or a share of it."""
    spec = slice_["spec"]
    result = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        result["shareID"] = f"share-{at}"
        if "capacity" in device:
            result["consumedCapacity"] = {"memory": "2Gi"}
    meta = {"name": f"o-{at}", "namespace": "o", "uid": f"o-{at}"}
    return claims.decode({"metadata": meta, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}})
