"""Small random worlds in the record format of the conformance corpus: the inputs of one allocation, without an answer.

Every feature of device allocation occurs, also mixed; what the API server would refuse occurs seldom and only where a
running scheduler could still meet it. `records` is for hypothesis, `seeded` for throwing thousands at something fast;
both make every choice by drawing an integer, 0 being the simplest, so that examples shrink to plain worlds.
"""

import functools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

NODE, OTHER_NODE = "node-1", "node-2"
DRIVERS = ("gpu.example.com", "nic.example.com", "tpu.example.org")
POOL_NAMES = (NODE, "shared", OTHER_NODE, "a-pool")
DOMAIN = "resource.kubernetes.io"
PCIE_ROOT = f"{DOMAIN}/pcieRoot"
EFFECTS = ("NoSchedule", "NoExecute", "None", "Unheard")
AMOUNTS = ("1", "2", "4", "7", "500m", "1.5", "10Gi", "1.5Gi", "40Gi", "3G", "0")
SMALL_AMOUNTS = ("1", "500m", "2", "3", "1.5Gi")
ODD_AMOUNTS = ("1e3", "0.1", "9223372036854775807", "9223372036854775800", "1e19", "8Ei", "1n", "12345678901234567890")
FEATURES = (
    "AdminAccess",
    "ConsumableCapacity",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "PartitionableDevices",
    "PrioritizedList",
)

_integers = functools.cache(st.integers)

Json = dict[str, Any]
T = TypeVar("T")


@st.composite
def records(draw: st.DrawFn, *, gates: bool = False) -> Json:
    """Draw a world. gates: whether features may be off, or on, other than by default."""
    return _Worlds(lambda least, most: draw(_integers(least, most))).record("drawn", gates=gates)


def seeded(seed: int, *, gates: bool = False) -> Json:
    """Return the world of this seed."""
    # Not for secrets: what is asked of these numbers is that they come again.
    return _Worlds(Random(seed).randint).record(f"seed-{seed}", gates=gates)  # noqa: S311


def two_drivers_count_in_one_name(record: Json) -> bool:
    """Return whether pools of two drivers have both one name and counters, which 1.36 takes for each other's."""
    counting = {
        (each["spec"]["pool"]["name"], each["spec"]["driver"])
        for each in record["slices"]
        if each["spec"].get("sharedCounters")
    }
    return len({name for name, _ in counting}) < len(counting)


class _Worlds:
    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self._integer = integer
        self._partitioned = False
        self._lists = False
        self._odd = False
        self._uniform = False
        self._large = False
        self._focus = ""
        self._drivers: list[str] = []

    def chance(self, percent: float) -> bool:
        # One draw of up to 127: in longer ranges hypothesis prefers small numbers, and most chances would be missed.
        if percent < 1:
            return self.chance(10) and self.chance(percent * 10)
        return self._integer(0, 99) >= 100 - percent

    def focused(self, focus: str, percent: float) -> bool:
        """Take a chance, a good one in worlds that are about this: a rule is seldom decisive where all else is, too."""
        return self.chance(max(percent, 88) if focus == self._focus else percent)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._integer(0, len(options) - 1)]

    def some(self, options: Sequence[T], percent: int) -> list[T]:
        return [each for each in options if self.chance(percent)]

    def times(self, least: int, most: int) -> range:
        return range(self._integer(least, most))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        rest, done = list(items), []
        while rest:
            done.append(rest.pop(self._integer(0, len(rest) - 1)))
        return done

    def record(self, name: str, *, gates: bool) -> Json:
        features = self.features() if gates else dict.fromkeys(FEATURES, True) | {"ListTypeAttributes": False}
        self._lists = features["ListTypeAttributes"]
        self._odd = self._lists or self.chance(7)
        self._uniform = self.chance(25)
        self._large = self.chance(10)
        self._focus = self.pick(("", "", "capacity", "counters", "constraints"))
        slices = [obj for pool in self.pools() for obj in pool]
        return {
            "id": name,
            "features": features,
            "allocator": "experimental" if features["ListTypeAttributes"] else "incubating",
            "node": _node(),
            "classes": self.classes(),
            "slices": self.shuffled(slices) if self.chance(50) else slices,
            "claims": [self.claim(at) for at in range(1 + self.chance(28) + self.chance(8))],
            **self.in_use(slices),
        }

    def features(self) -> dict[str, bool]:
        off = set(self.some(FEATURES, 8))
        return {each: each not in off for each in FEATURES} | {"ListTypeAttributes": self.chance(15)}

    # Pools, slices and devices.

    def pools(self) -> list[list[Json]]:
        names: list[tuple[str, str]] = []
        for _ in self.times(1, 5):
            name = (self.pick(DRIVERS), self.pick(POOL_NAMES))
            if name not in names:
                names.append(name)
        self._drivers = [driver for driver, _ in names]
        return [self.pool(*name) for name in names]

    def pool(self, driver: str, name: str) -> list[Json]:
        self._partitioned = self.focused("counters", 30)
        generation = 1 + self.chance(15)
        where = self.places()
        slices = [
            self.slice(driver, name, at, self.pick(where))
            for at in range(1 + self.chance(40) + self.chance(15) + self._large)
        ]
        if self._partitioned:
            slices += [self.counter_slice(driver, name, at, self.pick(where)) for at in range(1 + self.chance(10))]
        count = len(slices) + (self.pick((-1, 1)) if self.chance(4) else 0)
        for each in slices:
            each["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": count}
        if self.chance(7):
            stray = self.slice(driver, name, 9, self.pick(self.places()))
            other = self.pick((generation - 1, generation + 1))
            stray["spec"]["pool"] |= {"generation": other, "resourceSliceCount": self.pick((1, count))}
            slices.append(stray)
        return slices

    def places(self) -> list[Json]:
        """List what the slices of a pool say about nodes; more than one: each its own."""
        kind = self._integer(0, 99)
        if kind < 52:
            return [{"nodeName": NODE}]
        if kind < 64:
            return [{"allNodes": True}]
        if kind < 76:
            return [{"nodeSelector": self.node_selector()}]
        if kind < 87:
            return [{"perDeviceNodeSelection": True}]
        if kind < 91:
            return [{"nodeName": OTHER_NODE}]
        return [{"nodeName": NODE}, {"nodeName": OTHER_NODE}, {"allNodes": True, "perDeviceNodeSelection": False}]

    def node_selector(self) -> Json:
        allowing = (
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "zone", "operator": "NotIn", "values": ["b"]},
            {"key": "fabric", "operator": "DoesNotExist"},
            {"key": "rack", "operator": "Gt", "values": ["2"]},
            {"key": "rack", "operator": "Exists"},
        )
        forbidding = (
            {"key": "zone", "operator": "In", "values": ["b"]},
            {"key": "fabric", "operator": "Exists"},
            {"key": "rack", "operator": "Lt", "values": ["2"]},
            {"key": "zone", "operator": "Gt", "values": ["2"]},
        )
        label: Json = self.pick(allowing) if not self.chance(20) else self.pick(forbidding)
        term: Json = {"matchExpressions": [label]}
        if self.chance(20):
            term["matchExpressions"].append({"key": "rack", "operator": "In", "values": ["3"]})
        if self.chance(15):
            name = {"key": "metadata.name", "operator": "In" if not self.chance(20) else "NotIn", "values": [NODE]}
            term = {"matchFields": [name]} | (term if self.chance(50) else {})
        return {"nodeSelectorTerms": [{} if self.chance(3) else term]}

    def slice(self, driver: str, pool: str, at: int, place: Json) -> Json:
        obj = self.bare_slice(driver, pool, f"{self.pick('mbx')}-{at}", place)
        model = self.pick(("x", "y"))
        devices: list[Json] = []
        for number in self.times(1, 4 + 3 * (self._uniform or self._large)):
            name = f"dev-{at}-{number}" if not self.chance(0.4) else "dev"
            alike = self._uniform and devices and not self.chance(12)
            devices.append({**devices[-1], "name": name} if alike else self.device(driver, name, model, place))
        obj["spec"]["devices"] = devices
        return obj

    def bare_slice(self, driver: str, pool: str, name: str, place: Json) -> Json:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{pool}-{driver[:3]}-{name}"},
            "spec": {"driver": driver, "pool": {"name": pool}, **place},
        }

    def counter_slice(self, driver: str, pool: str, at: int, place: Json) -> Json:
        # A slice of counters cannot leave the choice of nodes to devices that it does not have.
        here = place if "perDeviceNodeSelection" not in place else {"allNodes": True}
        obj = self.bare_slice(driver, pool, f"{self.pick('am')}-counters-{at}", here)
        names = ["set-0", "set-1"] if at == 0 or self.chance(20) else ["set-2"]
        obj["spec"]["sharedCounters"] = [
            {
                "name": name,
                "counters": {
                    "compute": {"value": self.pick(("4", "2", "7"))},
                    "memory": {"value": self.pick(("40Gi", "10Gi", "1.5Gi"))},
                },
            }
            for name in names
        ]
        return obj

    def device(self, driver: str, name: str, model: str, place: Json) -> Json:
        device: Json = {"name": name, "attributes": self.attributes(driver, model)}
        if self.focused("capacity", 45):
            device["capacity"] = self.capacities(driver)
        if self.focused("capacity", 26):
            device["allowMultipleAllocations"] = True
        if self._partitioned and self.chance(80):
            device["consumesCounters"] = [self.counter_use(each) for each in self.some(("set-0", "set-1"), 60)]
        if self.chance(9):
            device["taints"] = [self.taint() for _ in self.times(1, 2)]
        if self.chance(6):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["broken"]
        if self.chance(4):
            device["bindsToNode"] = True
        if place.get("perDeviceNodeSelection"):
            device |= self.pick(
                (
                    {"nodeName": NODE},
                    {"allNodes": True},
                    {"nodeSelector": self.node_selector()},
                    {"nodeName": OTHER_NODE},
                )
            )
        return device

    def attributes(self, driver: str, model: str) -> Json:
        attributes: Json = {}
        if not self.chance(7):
            attributes["model" if not self.chance(20) else f"{driver}/model"] = {"string": model}
        if not self.chance(7):
            attributes["numa"] = {"int": self._integer(0, 1)} if not self.chance(5) else {"string": "0"}
        if not self.chance(15):
            attributes[PCIE_ROOT] = {"string": f"pci:0{self.pick((0, 0, 1, 2))}"}
        if self.chance(25):
            attributes["healthy"] = {"bool": self.chance(70)}
        if self.chance(25):
            attributes["firmware"] = {"version": self.pick(("1.0.0", "1.2.0", "2.0.0-rc.1"))}
        if self._odd and self.chance(80 if self._lists else 30):
            attributes["links"] = {"strings": self.pick((["a"], ["a", "b"], ["b"], ["c"]))}
        if self._odd and self.chance(5):
            attributes["numa"] = self.pick(({"ints": [0, 1]}, {"ints": [1]}, {"version": "1.0"}))
        return attributes

    def capacities(self, driver: str) -> Json:
        capacities = {"memory": self.capacity(self.pick(("40Gi", "10Gi", "7", "3G", "1.5Gi")))}
        if self.chance(25):
            name = "bandwidth" if not self.chance(30) else f"{driver}/bandwidth"
            capacities[name] = self.capacity(self.pick(("4", "7", "10", "1500m")))
        return capacities

    def capacity(self, value: str) -> Json:
        kind = self._integer(3 * (self._focus == "capacity"), 9)
        if kind < 4:
            return {"value": value}
        whole = value in ("4", "7", "10")
        small = "1" if whole else "500m" if value == "1500m" else "1Gi"
        if kind < 6:
            return {"value": value, "requestPolicy": {"default": small}}
        if kind < 8:
            values = [small, *(["2", "4"] if whole else ["1", "1500m"] if value == "1500m" else ["3Gi", "10Gi"])]
            return {"value": value, "requestPolicy": {"default": self.pick(values), "validValues": values}}
        valid: Json = {"min": small}
        if self.chance(50):
            valid["max"] = value
        if self.chance(60):
            valid["step"] = self.pick(("1", "2") if whole else ("500m", "1") if value == "1500m" else ("1Gi", "1G"))
        return {"value": value, "requestPolicy": {"default": small, "validRange": valid}}

    def counter_use(self, counter_set: str) -> Json:
        counters = {"compute": {"value": self.pick(("1", "2", "4", "500m", "0"))}}
        if self.chance(50):
            counters["memory"] = {"value": self.pick(("1Gi", "5Gi", "1.5Gi", "40Gi"))}
        if self._odd and self.chance(3):
            return {"counterSet": counter_set, "counters": counters, "compatibilityGroups": ["wide"]}
        if self.chance(0.3):
            return {"counterSet": "unknown", "counters": counters}
        return {"counterSet": counter_set, "counters": counters}

    def taint(self) -> Json:
        taint = {"key": self.pick(("broken", "busy")), "effect": self.pick(EFFECTS)}
        return taint | ({"value": self.pick(("yes", "no"))} if self.chance(50) else {})

    # What others hold.

    def in_use(self, slices: Sequence[Json]) -> Json:
        taken: list[Json] = []
        shares: list[Json] = []
        consumed: list[Json] = []
        rate = self.pick((0, 0, 8, 30))
        for obj in slices:
            spec = obj["spec"]
            for device in self.some(spec.get("devices", ()), rate):
                key = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
                # Now and then a device was shared when it was given away, and is not now, or the other way round.
                if bool(device.get("allowMultipleAllocations")) is self.chance(6):
                    taken.append(key)
                    continue
                for number in self.times(1, 2):
                    shares.append({**key, "shareID": f"share-{len(shares)}-{number}"})
                if used := {name: self.consumed(each) for name, each in device.get("capacity", {}).items()}:
                    consumed.append({**key, "capacity": used})
        if self.chance(4):
            taken.append({"driver": DRIVERS[0], "pool": NODE, "device": "gone"})
        return {"allocated": taken, "sharedDevices": shares, "consumedCapacity": _one_each(consumed)}

    def consumed(self, capacity: Json) -> str:
        policy = capacity.get("requestPolicy", {})
        options: list[str] = [policy.get("default", "0"), *policy.get("validValues", ()), capacity["value"]]
        return self.pick([*options, self.pick(AMOUNTS)] if self.chance(10) else options)

    # Classes and claims.

    def classes(self) -> list[Json]:
        classes = [_class("any")]
        for driver in DRIVERS:
            config = [{"opaque": {"driver": driver, "parameters": {"class": driver}}}] if self.chance(20) else None
            classes.append(_class(driver, f'device.driver == "{driver}"', config=config))
        picky = [self.selector() for _ in self.times(1, 2)]
        classes.append(_class("picky", f'device.driver == "{DRIVERS[0]}"', *picky))
        return classes

    def selector(self) -> str:
        own = self.pick(DRIVERS) if self.chance(25) else DRIVERS[0]
        attributes, capacity = f'device.attributes["{own}"]', f'device.capacity["{own}"]'
        if self.chance(0.5):
            return self.pick(("no such thing", "1", "device.driver", f"{attributes}.model"))
        if self.chance(20):
            # These fail on a device that has no such thing.
            return self.pick(
                (
                    f'{attributes}.model == "x"',
                    f"{attributes}.numa == 1",
                    f'{capacity}.memory.compareTo(quantity("5Gi")) >= 0',
                    f'{attributes}.model == "y" || true',
                )
            )
        return self.pick(
            (
                "true",
                f'device.driver == "{own}"',
                f'device.driver == "{own}" && has({attributes}.model) && {attributes}.model == "x"',
                f'{attributes}.?model.orValue("") == "x"',
                f"{attributes}.?numa.orValue(0) == 0",
                f'device.driver != "{own}" || {capacity}.?memory.orValue(quantity("0")).compareTo(quantity("5Gi")) > 0',
                f"has({attributes}.healthy) && {attributes}.healthy",
                f'!("firmware" in {attributes}) || {attributes}.firmware.isGreaterThan(semver("1.1.0"))',
                "device.allowMultipleAllocations",
                "!device.allowMultipleAllocations",
                f'"{DOMAIN}" in device.attributes',
            )
        )

    def claim(self, at: int) -> Json:
        names = [
            f"req-{number}" for number in range(1 + self.chance(35) + self.chance(12) + self._large - self.chance(1))
        ]
        requests = [self.request(name) for name in names]
        subjects = [
            subject
            for request in requests
            for subject in (
                request["name"],
                *(f"{request['name']}/{each['name']}" for each in request.get("firstAvailable", ())),
            )
        ]
        asked: Json = {"requests": requests} if requests else {}
        if requests and self.focused("constraints", 18):
            asked["constraints"] = [self.constraint(subjects) for _ in range(1 + self.chance(25))]
        if requests and self.chance(12):
            asked["config"] = [
                {"opaque": {"driver": DRIVERS[0], "parameters": {"number": number}}} | self.scope(subjects)
                for number in self.times(1, 2)
            ]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{at}", "namespace": "team-a"},
            "spec": {"devices": asked} if asked else {},
        }

    def request(self, name: str) -> Json:
        if not self.chance(28):
            return {"name": name, "exactly": self.asked() | self.admin()}
        alternatives = [{"name": f"sub-{at}", **self.asked()} for at in self.times(1, 3)]
        return {"name": name, "firstAvailable": alternatives}

    def admin(self) -> Json:
        return {"adminAccess": True} if self.chance(8) else {"adminAccess": False} if self.chance(1) else {}

    def asked(self) -> Json:
        asked: Json = {"deviceClassName": self.class_name()}
        if self.chance(10):
            asked["allocationMode"] = "All"
        else:
            count = self._integer(1, 3 + self._large) if self.chance(60 if self._focus == "constraints" else 25) else 1
            asked |= {"allocationMode": "ExactCount", "count": count if not self.chance(0.6) else self._integer(29, 34)}
        if self.chance(20):
            texts = [self.selector() for _ in range(1 + self.chance(20))]
            asked["selectors"] = [{"cel": {"expression": text}} for text in texts]
        if self.chance(28):
            asked["tolerations"] = [self.toleration() for _ in self.times(1, 2)]
        if self.focused("capacity", 18):
            names = ("memory",) if not self.chance(15) else ("bandwidth", "memory", f"{DRIVERS[0]}/memory")
            amounts: Sequence[str] = SMALL_AMOUNTS if not self.chance(40) else AMOUNTS[:-1]
            if self._odd and self.chance(50):
                amounts = ODD_AMOUNTS
            asked["capacity"] = {"requests": {self.pick(names): self.pick(amounts) for _ in self.times(1, 2)}}
        return asked

    def class_name(self) -> str:
        if self.chance(0.3):
            return "missing"
        return self.pick([*self._drivers, "any"]) if not self.chance(12) else self.pick((*DRIVERS, "picky"))

    def toleration(self) -> Json:
        toleration: Json = {"operator": self.pick(("Exists", "Equal")) if not self.chance(3) else "In"}
        if self.chance(60) or toleration["operator"] != "Exists":
            toleration["key"] = self.pick(("broken", "busy"))
        if toleration["operator"] != "Exists" and self.chance(60):
            toleration["value"] = self.pick(("yes", "no"))
        if self.chance(40):
            toleration["effect"] = self.pick(EFFECTS[:2])
        if self.chance(10):
            toleration["tolerationSeconds"] = self._integer(0, 60)
        return toleration

    def constraint(self, subjects: Sequence[str]) -> Json:
        attribute = PCIE_ROOT
        if self.chance(55):
            name = self.pick(("numa", "numa", "model", "model", "firmware", "healthy", "links"))
            attribute = f"{self.pick(self._drivers)}/{name}"
        if self._lists and self.chance(60):
            attribute = f"{DRIVERS[0]}/links"
        kind = "matchAttribute" if not self.chance(40) else "distinctAttribute"
        return {kind: attribute} | self.scope(subjects)

    def scope(self, subjects: Sequence[str]) -> Json:
        chosen = self.some(subjects, 50)
        return {"requests": chosen} if chosen and not self.chance(30) else {}


def _node() -> Json:
    labels = {"zone": "a", "rack": "3", "kubernetes.io/hostname": NODE}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


def _class(name: str, *selectors: str, config: list[Json] | None = None) -> Json:
    spec: Json = {"selectors": [{"cel": {"expression": text}} for text in selectors]} if selectors else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec | ({"config": config} if config else {}),
    }


def _one_each(consumed: Sequence[Json]) -> list[Json]:
    """Keep one entry a device: old and new generations of a pool may both name it."""
    return list({(each["driver"], each["pool"], each["device"]): each for each in consumed}.values())
