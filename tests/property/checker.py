"""An independent judge of allocations: slow, without a search order, one rule after the other.

A record is what the conformance corpus calls one (its README lists the keys), `results` one status.allocation per
claim. `violations` says what is wrong with an answer that was given, `exists` whether there is any answer at all. The
rules are those of Kubernetes' *incubating* allocator; what it gets wrong in 1.36 is not imitated (DEFECTS). Nothing is
shared with `admission.dra` but the evaluation of selectors, which other tests judge.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from admission.api import devices
from admission.dra.cel import environments, programs, values
from admission.dra.cel.library import quantities

LONGEST_RESULT = 32
"""Devices in one claim's allocation."""

DEFECTS = {
    "distinctAttribute": "1.36 remembers one value a request, so of three devices two may have the same",
    "counters of pool": "1.36 keeps counters by the pool's name: two drivers' pools of one name spoil each other's",
    "consumedCapacity is": "1.36 adds amounts like 1.5Gi, which it keeps as decimals, in place: in the slice itself",
}
"""How sentences about Kubernetes 1.36's own answers may begin or go on, and why they are no news."""

Json = dict[str, Any]
DeviceKey = tuple[str, str, str]
Counts = dict[tuple[str, str], Fraction]


@dataclass(frozen=True, eq=False)
class Device:
    """A device in a slice; two are the same if they are the same object."""

    driver: str
    pool: str
    obj: Json
    slice: Json

    @property
    def key(self) -> DeviceKey:
        return self.driver, self.pool, self.obj["name"]

    @property
    def is_shared(self) -> bool:
        return bool(self.obj.get("allowMultipleAllocations"))

    def __str__(self) -> str:
        return "/".join(self.key)


@dataclass(frozen=True, eq=False)
class Pool:
    """A driver's pool as a node sees it, with its devices of all nodes, `everywhere`.

    `wrong` says why nothing may be taken from it.
    """

    devices: Sequence[Device] = ()
    everywhere: Sequence[Device] = ()
    counters: Counts = field(default_factory=dict)
    wrong: str = ""


@dataclass(frozen=True, eq=False)
class Ask:
    """A request, or one alternative of a request (then `name` is "request/alternative")."""

    claim: int
    request: str
    name: str
    spec: Json

    @property
    def is_admin(self) -> bool:
        return bool(self.spec.get("adminAccess"))

    @property
    def wants_all(self) -> bool:
        return bool(self.spec.get("allocationMode") == "All")


@dataclass(frozen=True, eq=False)
class Use:
    """One device given to one request, in the order in which it was given."""

    ask: Ask
    device: Device


class World:
    """A record, read for one release of Kubernetes: 36 or 37."""

    def __init__(self, record: Json, release: int) -> None:
        self.record = record
        self.release = release
        self.features: Mapping[str, bool] = record["features"]
        self.node: Json = record["node"]
        self.classes = {each["metadata"]["name"]: each for each in record["classes"]}
        self.taken = {_key(each) for each in record["allocated"]}
        self.with_shares = {_key(each) for each in record["sharedDevices"]}
        self.consumed = {_key(each): _amounts(each["capacity"]) for each in record["consumedCapacity"]}
        self.pools = {pool_id: _pool(self, *pool_id) for pool_id in _pool_ids(self)}
        self.asks = [_asks(at, claim) for at, claim in enumerate(record["claims"])]
        self._matches: dict[tuple[Ask, Device], str] = {}

    def unselected(self, ask: Ask, device: Device) -> str:
        """Say why the request's or its class' selectors do not take the device; empty if they do."""
        if (ask, device) not in self._matches:
            self._matches[ask, device] = _unselected(self, ask, device)
        return self._matches[ask, device]

    def candidates(self) -> list[Device]:
        return [device for pool in self.pools.values() if not pool.wrong for device in pool.devices]


def violations(record: Json, results: Sequence[Json], release: int = 37) -> list[str]:
    """Say what is wrong with these allocations of the record's claims; nothing if they are right."""
    world = World(record, release)
    if len(results) != len(record["claims"]):
        return [f"{len(results)} allocations for {len(record['claims'])} claims"]
    uses: list[Use] = []
    said: list[str] = []
    for claim, result in enumerate(results):
        given = result.get("devices", {}).get("results") or []
        found = [_use(world, claim, entry) for entry in given]
        said += [each for each in found if isinstance(each, str)]
        mine = [each for each in found if isinstance(each, Use)]
        if len(mine) == len(given):
            said += _wrong_counts(world, claim, mine)
            said += itertools.chain(*(_wrong_entry(world, *pair) for pair in zip(mine, given, strict=True)))
            said += _wrong_node_selector(world, mine, result.get("nodeSelector"))
        uses += mine
    return [*said, *broken(world, uses)]


def objections(record: Json, chosen: Sequence[Sequence[Json]], release: int = 37) -> list[str]:
    """Say what is wrong with devices chosen for the record's claims, whatever an allocation of them would say.

    chosen: for every claim entries of request, driver, pool and device.
    """
    world = World(record, release)
    uses: list[Use] = []
    said: list[str] = []
    for claim, entries in enumerate(chosen):
        found = [_use(world, claim, entry) for entry in entries]
        mine = [each for each in found if isinstance(each, Use)]
        said += [each for each in found if isinstance(each, str)]
        said += _wrong_counts(world, claim, mine)
        uses += mine
    return [*said, *broken(world, uses)]


def exists(record: Json, release: int = 37, *, steps: int = 20_000) -> bool | None:
    """Whether there is any allocation that breaks no rule; None where that many partial ones do not tell.

    kube-scheduler's search is complete: it tries every alternative, and every set of devices of a request. Its answer
    "none" (and the node error about invalid pools) is thus right only where nothing exists. That includes mode All with
    a device in use, since All means every matching device, used or not. The break-off at 32 results loses nothing
    either: what it depends on are the alternatives chosen, never the devices. Not judged here: fatal errors.
    """
    world = World(record, release)
    try:
        return _can_go_on(world, list(itertools.chain(*world.asks)), (), _Budget(steps))
    except _TooManySteps:
        return None


def broken(world: World, uses: Sequence[Use]) -> Iterator[str]:
    """Name the rules that these uses together break. What is broken stays broken if more uses are added."""
    for rule in (_unfit, _used_twice, _too_long, _counters_exceeded, _capacity_exceeded, _constraints_broken):
        yield from rule(world, uses)


class _TooManySteps(Exception):  # noqa: N818
    pass


class _Budget:
    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self) -> None:
        if not self._left:
            raise _TooManySteps
        self._left -= 1


def _can_go_on(world: World, requests: Sequence[Sequence[Ask]], uses: tuple[Use, ...], budget: _Budget) -> bool:
    if not requests:
        return True
    for ask in requests[0]:
        for chosen in _choices(world, ask, uses, budget):
            if _can_go_on(world, requests[1:], (*uses, *chosen), budget):
                return True
    return False


def _choices(world: World, ask: Ask, uses: tuple[Use, ...], budget: _Budget) -> Iterator[tuple[Use, ...]]:
    """Yield every set of devices for the request that breaks no rule together with these uses."""
    if ask.wants_all:
        matching = [Use(ask, device) for device in _all_devices(world, ask)]
        if matching and not _blocks_all(world) and not any(broken(world, [*uses, *matching])):
            yield tuple(matching)
        return
    fits = [use for device in world.candidates() if not any(_unfit(world, [use := Use(ask, device)]))]
    yield from _sets(world, fits, ask.spec.get("count", 0), uses, budget)


def _sets(
    world: World, fits: Sequence[Use], count: int, uses: tuple[Use, ...], budget: _Budget
) -> Iterator[tuple[Use, ...]]:
    if count <= 0:
        yield ()
    for at, use in enumerate(fits[: len(fits) - count + 1] if count > 0 else ()):
        budget.spend()
        if not any(broken(world, [*uses, use])):
            for rest in _sets(world, fits[at + 1 :], count - 1, (*uses, use), budget):
                yield (use, *rest)


# What a node sees of a pool.


def _pool_ids(world: World) -> list[tuple[str, str]]:
    return sorted({(each["spec"]["driver"], each["spec"]["pool"]["name"]) for each in world.record["slices"]})


def _pool(world: World, driver: str, name: str) -> Pool:
    ours = [s for s in world.record["slices"] if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == (driver, name)]
    visible = _newest([each for each in ours if _is_visible(world, each)])
    if not visible:
        return Pool()
    generation, count = (visible[0]["spec"]["pool"].get(key, 0) for key in ("generation", "resourceSliceCount"))
    whole = visible
    if len(visible) != count:
        whole = [each for each in ours if each["spec"]["pool"].get("generation", 0) == generation]
        if any(each["spec"]["pool"].get("generation", 0) > generation for each in ours):
            return Pool()
        if len([each for each in whole if not _is_grouped(world, each)]) != count:
            return Pool(wrong=f"{driver}/{name} is incomplete")
    devices_here = _devices(visible)
    sets = _counter_sets(visible if world.release <= 36 else whole) if world.features["PartitionableDevices"] else []
    everywhere = devices_here + _devices([each for each in whole if each not in visible])
    wrong = _invalid(world, devices_here, everywhere, sets)
    counters = {
        (each["name"], name): _amount(c["value"]) for each in sets for name, c in (each.get("counters") or {}).items()
    }
    return Pool(devices_here, everywhere, counters, wrong and f"{driver}/{name} is invalid: {wrong}")


def _newest(slices: Sequence[Json]) -> list[Json]:
    newest = max((each["spec"]["pool"].get("generation", 0) for each in slices), default=0)
    kept = [each for each in slices if each["spec"]["pool"].get("generation", 0) == newest]
    # The first one's count is taken, should they differ: a node's own slices come before all others.
    return sorted(kept, key=lambda each: not each["spec"].get("nodeName"))


def _is_visible(world: World, obj: Json) -> bool:
    spec = obj["spec"]
    has_counters = bool(spec.get("sharedCounters"))
    if not world.features["PartitionableDevices"] and (spec.get("perDeviceNodeSelection") is not None or has_counters):
        return False
    if _is_grouped(world, obj):
        return False
    if world.release <= 36 and has_counters:
        return True
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
        return is_for(spec, world.node)
    return bool(spec.get("perDeviceNodeSelection")) and any(
        is_for(each, world.node) for each in spec.get("devices", ())
    )


def _is_grouped(world: World, obj: Json) -> bool:
    """Whether 1.37 ignores the slice, because a gate that is off by default would be needed to understand it."""
    used = [use for device in obj["spec"].get("devices") or () for use in device.get("consumesCounters", ())]
    return world.release >= 37 and any(each.get("compatibilityGroups") for each in used)


def is_for(where: Json, node: Json) -> bool:
    """Whether what a slice, or a device of it, says about nodes names this one."""
    if where.get("nodeName"):
        return bool(where["nodeName"] == node["metadata"]["name"])
    return bool(where.get("allNodes")) or (
        where.get("nodeSelector") is not None
        and any(_term_matches(term, node) for term in where["nodeSelector"].get("nodeSelectorTerms") or ())
    )


def _term_matches(term: Json, node: Json) -> bool:
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    return bool(labels or fields) and (
        all(_label_matches(each, node["metadata"].get("labels", {}).get(each["key"])) for each in labels)
        and all(_label_matches(each, node["metadata"]["name"]) for each in fields)
    )


def _label_matches(requirement: Json, value: str | None) -> bool:
    wanted = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as comparison:
            if value is None or not value.lstrip("-").isdigit():
                return False
            return int(value) > int(wanted[0]) if comparison == "Gt" else int(value) < int(wanted[0])
        case unknown:
            raise ValueError(unknown)


def _devices(slices: Sequence[Json]) -> list[Device]:
    return [
        Device(each["spec"]["driver"], each["spec"]["pool"]["name"], device, each)
        for each in sorted(slices, key=lambda each: each["metadata"]["name"])
        for device in each["spec"].get("devices") or ()
    ]


def _counter_sets(slices: Sequence[Json]) -> list[Json]:
    return [counters for each in slices for counters in each["spec"].get("sharedCounters") or ()]


def _invalid(world: World, here: Sequence[Device], everywhere: Sequence[Device], sets: Sequence[Json]) -> str:
    if len({device.key for device in here}) < len(here):
        return "two devices of one name"
    if not world.features["PartitionableDevices"]:
        return ""
    if len({each["name"] for each in sets}) < len(sets):
        return "two counter sets of one name"
    known = {each["name"]: each.get("counters") or {} for each in sets}
    for device in everywhere:
        for use in device.obj.get("consumesCounters", ()):
            if (
                not set(use.get("counters") or ()) <= set(known.get(use["counterSet"], ()))
                or use["counterSet"] not in known
            ):
                return f"{device} consumes counters that are not there"
    return ""


# What a request may be given.


def _asks(claim: int, obj: Json) -> list[list[Ask]]:
    """List the alternatives of each request: one, or those of firstAvailable."""
    found = []
    for request in obj["spec"].get("devices", {}).get("requests") or ():
        name = request["name"]
        choices = request.get("firstAvailable") or ()
        found.append(
            [Ask(claim, name, f"{name}/{each['name']}", each) for each in choices]
            or [Ask(claim, name, name, request["exactly"])]
        )
    return found


def _unfit(world: World, uses: Sequence[Use]) -> Iterator[str]:
    """Judge each device for its request, as if it were the only one."""
    for use in uses:
        device, pool = use.device, world.pools[use.device.driver, use.device.pool]
        about = f"{use.ask.name}: {device}"
        if pool.wrong:
            yield f"{about}: {pool.wrong}"
        if device.slice["spec"].get("perDeviceNodeSelection") and not is_for(device.obj, world.node):
            yield f"{about} is not for this node"
        if reason := world.unselected(use.ask, device):
            yield f"{about} {reason}"
        if taint := _untolerated(world, use):
            yield f"{about} has the taint {taint}, which is not tolerated"
        if device.obj.get("bindingConditions") and not world.features["DeviceBindingAndStatus"]:
            yield f"{about} has binding conditions, and the feature is off"
        if device.obj.get("consumesCounters") and not world.features["PartitionableDevices"]:
            yield f"{about} consumes counters, and the feature is off"
        if device.key in world.taken and not use.ask.is_admin:
            yield f"{about} is in use"


def _untolerated(world: World, use: Use) -> Json | None:
    if not world.features["DeviceTaints"]:
        return None
    for taint in use.device.obj.get("taints") or ():
        blocks = taint["effect"] in ("NoSchedule", "NoExecute")
        if blocks and not any(_tolerates(each, taint) for each in use.ask.spec.get("tolerations") or ()):
            return dict(taint)
    return None


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "") in ("", "Equal"):
        return bool(toleration.get("value", "") == taint.get("value", ""))
    return bool(toleration["operator"] == "Exists")


def _unselected(world: World, ask: Ask, device: Device) -> str:
    class_name = ask.spec["deviceClassName"]
    if class_name not in world.classes:
        return f"is asked for by the class {class_name}, which is not there"
    texts = [*(world.classes[class_name].get("spec", {}).get("selectors") or ()), *(ask.spec.get("selectors") or ())]
    value = _as_expressions_see_it(world, device)
    for selector in texts:
        text = selector["cel"]["expression"]
        program = programs.compile_device(text, profile=_profile(world))
        if isinstance(program, programs.CompileError):
            return f"is asked for by a selector that does not compile: {text}"
        try:
            if not program.evaluate(value):
                return f"is not what the selector asks for: {text}"
        except programs.EvaluationError as error:
            return f"makes a selector fail: {text}: {error}"
    return ""


def _profile(world: World) -> environments.Profile:
    features = world.features
    return environments.Profile(
        release=world.release,
        stored=True,
        lists=features["ListTypeAttributes"],
        consumable=features["ConsumableCapacity"],
    )


def _as_expressions_see_it(world: World, device: Device) -> programs.DeviceValue | programs.UnreadableDevice:
    value = programs.device_value(
        device.driver,
        devices.Device(
            name=device.obj["name"],
            attributes={name: _attribute(given) for name, given in device.obj.get("attributes", {}).items()},
            allows_multiple=device.is_shared,
        ),
        lists=world.release >= 37 or world.features["ListTypeAttributes"],
    )
    if isinstance(value, programs.DeviceValue):
        for name, amount in device.obj.get("capacity", {}).items():
            domain, _, plain = name.rpartition("/")
            inner = value.device["capacity"].setdefault(domain or device.driver, values.Names())
            inner[plain] = quantities.parse(str(amount["value"]))
    return value


def _attribute(given: Json) -> devices.AttributeValue | None:
    kind, value = next(iter(given.items()), (None, None))
    if kind == "version":
        return devices.Version(value)
    if kind == "versions":
        return tuple(map(devices.Version, value or ()))
    return tuple(value) if isinstance(value, list) else value


# What uses may not do together.


def _used_twice(world: World, uses: Sequence[Use]) -> Iterator[str]:
    """A device belongs to one request; an administrator may look at one that others have, but not twice in a claim.

    Kubernetes serves claims in order and lets nobody but administrators use what an earlier claim took, even where
    that was an administrator.
    """
    for at, use in enumerate(uses):
        for before in uses[:at]:
            if use.device is not before.device:
                continue
            if use.ask.name == before.ask.name and use.ask.claim == before.ask.claim:
                yield f"{use.ask.name}: {use.device} twice"
            elif not _may_be_shared(world, use.device) and (not use.ask.is_admin or use.ask.claim == before.ask.claim):
                yield f"{use.ask.name}: {use.device} is given to {before.ask.name} of claim {before.ask.claim}, too"


def _may_be_shared(world: World, device: Device) -> bool:
    return device.is_shared and world.features["ConsumableCapacity"]


def _too_long(_world: World, uses: Sequence[Use]) -> Iterator[str]:
    for claim in {use.ask.claim for use in uses}:
        if (length := sum(use.ask.claim == claim for use in uses)) > LONGEST_RESULT:
            yield f"claim {claim} has {length} results, more than {LONGEST_RESULT}"


def _counters_exceeded(world: World, uses: Sequence[Use]) -> Iterator[str]:
    """What devices draw from a pool's counters, in use and new, must be there; a shared device draws once.

    While a pool has a counter that is overdrawn, none of its devices that draw anything can be taken.
    """
    for pool_id, pool in world.pools.items():
        drawing = _drawing(world, [use for use in uses if (use.device.driver, use.device.pool) == pool_id])
        if not drawing:
            continue
        left = defaultdict(Fraction, pool.counters)
        in_use = [each for each in pool.everywhere if each.key in world.taken | world.with_shares | set(world.consumed)]
        for device in [*in_use, *drawing]:
            for used in device.obj.get("consumesCounters", ()):
                for name, amount in (used.get("counters") or {}).items():
                    left[used["counterSet"], name] -= _amount(amount["value"])
        for (counter_set, name), amount in left.items():
            if amount < 0:
                yield f"counters of pool {'/'.join(pool_id)} exceeded: {counter_set}.{name} by {-amount}"


def _drawing(world: World, uses: Sequence[Use]) -> list[Device]:
    """List the devices that draw counters for these uses, an administrator's included (kubernetes #140729)."""
    found: list[Device] = []
    drawn_already = set(world.consumed) | (world.with_shares if world.release >= 37 else set())
    for use in uses:
        is_further_share = _may_be_shared(world, use.device) and (
            use.device.key in drawn_already or use.device in found
        )
        if use.device.obj.get("consumesCounters") and not is_further_share:
            found.append(use.device)
    return found


def _capacity_exceeded(world: World, uses: Sequence[Use]) -> Iterator[str]:
    """Every request must fit into its device, a shared one's together with all others' shares."""
    if not world.features["ConsumableCapacity"]:
        return
    shares: defaultdict[tuple[DeviceKey, str], Fraction] = defaultdict(Fraction)
    for use in uses:
        if refused := refusal(use.ask, use.device):
            yield f"{use.ask.name}: {use.device}: {refused}"
            continue
        for name, capacity in use.device.obj.get("capacity", {}).items():
            amount = consumption(use.ask, name, capacity)
            total = world.consumed.get(use.device.key, {}).get(name, Fraction()) + amount
            if _may_be_shared(world, use.device):
                shares[use.device.key, name] += amount
                total += shares[use.device.key, name] - amount
            if total > _amount(capacity["value"]):
                yield f"{use.ask.name}: {use.device} has {capacity['value']} {name}, {float(total)} would be used"


def refusal(ask: Ask, device: Device) -> str:
    """Say why the device cannot be asked for such amounts; empty if it can."""
    capacities = device.obj.get("capacity", {})
    if unknown := set((ask.spec.get("capacity") or {}).get("requests") or ()) - set(capacities):
        return f"has no capacity {sorted(unknown)}"
    for name, capacity in capacities.items():
        policy, amount = capacity.get("requestPolicy") or {}, consumption(ask, name, capacity)
        valid, values_allowed = policy.get("validRange"), policy.get("validValues")
        if policy.get("default") is not None and amount == _amount(policy["default"]):
            continue
        if valid is not None:
            if valid.get("max") is not None and amount > _amount(valid["max"]):
                return f"{float(amount)} {name} is more than a request may have"
            if valid.get("step") is not None and (_whole(amount) - _whole(valid["min"])) % _whole(valid["step"]):
                return f"{float(amount)} {name} is between two steps"
        elif values_allowed and amount not in map(_amount, values_allowed):
            return f"{float(amount)} {name} is no value that a request may have"
    return ""


def consumption(ask: Ask, name: str, capacity: Json) -> Fraction:
    """Return how much of a device's capacity the request consumes: what it asks for, rounded up as the device says."""
    policy = capacity.get("requestPolicy") or {}
    requested = ((ask.spec.get("capacity") or {}).get("requests") or {}).get(name)
    if requested is None:
        return _amount(policy["default"] if policy.get("default") is not None else capacity["value"])
    amount, valid = _amount(requested), policy.get("validRange") or {}
    if valid.get("min") is not None:
        least = _amount(valid["min"])
        if amount < least or valid.get("step") is None:
            return max(amount, least)
        step = _whole(valid["step"])
        return Fraction(_whole(least) + step * -((_whole(least) - _whole(amount)) // step))
    larger = [value for value in map(_amount, policy.get("validValues") or ()) if value >= amount]
    return larger[0] if larger else amount


def _constraints_broken(world: World, uses: Sequence[Use]) -> Iterator[str]:
    for claim, obj in enumerate(world.record["claims"]):
        for constraint in obj["spec"].get("devices", {}).get("constraints") or ():
            scope = constraint.get("requests") or ()
            bound = [
                use
                for use in uses
                if use.ask.claim == claim and (not scope or use.ask.name in scope or use.ask.request in scope)
            ]
            kind = "matchAttribute" if constraint.get("matchAttribute") is not None else "distinctAttribute"
            attribute = constraint[kind]
            found = [_lookup(use.device, attribute) for use in bound]
            if None in found:
                yield f"{kind} {attribute} of claim {claim}: a device does not have it"
            else:
                sets = [_values(each, lists=world.features["ListTypeAttributes"]) for each in found if each is not None]
                if not (_match if kind == "matchAttribute" else _differ)(sets):
                    yield f"{kind} {attribute} of claim {claim}: {found}"


def _lookup(device: Device, attribute: str) -> Json | None:
    domain, _, name = attribute.partition("/")
    own: Json = device.obj.get("attributes", {})
    found: Json | None = own.get(attribute)
    return found if found is not None or domain != device.driver else own.get(name)


def _values(attribute: Json, *, lists: bool) -> frozenset[tuple[str, Any]] | None:
    """Return the attribute's values, each with its type, one for a scalar; None for what cannot be compared."""
    for kind in ("string", "int", "bool", "version"):
        if kind in attribute:
            return frozenset({(kind, attribute[kind])})
        if lists and attribute.get(kind + "s"):
            return frozenset((kind, value) for value in attribute[kind + "s"])
    return None


def _match(sets: Sequence[frozenset[tuple[str, Any]] | None]) -> bool:
    """What cannot be compared is taken alone."""
    known = [each for each in sets if each is not None]
    return (len(known) == len(sets) and (not known or bool(frozenset.intersection(*known)))) or len(sets) == 1


def _differ(sets: Sequence[frozenset[tuple[str, Any]] | None]) -> bool:
    """What cannot be compared is taken only as the first."""
    known = [each for each in sets if each is not None]
    return None not in sets[1:] and not any(one & other for one, other in itertools.combinations(known, 2))


# What else an answer says.


def _use(world: World, claim: int, entry: Json) -> Use | str:
    ask = next((ask for asks in world.asks[claim] for ask in asks if ask.name == entry["request"]), None)
    if ask is None:
        return f"claim {claim} has no request {entry['request']}"
    pool = world.pools.get((entry["driver"], entry["pool"]), Pool())
    # A pool of which nothing may be taken has no devices to look at; say why rather than that it has none.
    device = next((each for each in pool.devices if each.key == _key(entry)), None)
    return Use(ask, device) if device else f"{ask.name}: {'/'.join(_key(entry))} is not there. {pool.wrong}".strip()


def _wrong_counts(world: World, claim: int, uses: Sequence[Use]) -> Iterator[str]:
    for alternatives in world.asks[claim]:
        chosen = {use.ask for use in uses if use.ask in alternatives}
        counts = {ask: sum(use.ask is ask for use in uses) for ask in chosen}
        if not chosen and not any(not ask.wants_all and ask.spec.get("count", 0) == 0 for ask in alternatives):
            yield f"{alternatives[0].request} has no device"
        if len(chosen) > 1:
            yield f"{alternatives[0].request} has devices for {len(chosen)} alternatives"
        for ask, count in counts.items():
            if not ask.wants_all and count != ask.spec["count"]:
                yield f"{ask.name} has {count} devices and asks for {ask.spec['count']}"
            if ask.wants_all:
                yield from _not_all(world, ask, [use.device for use in uses if use.ask is ask])


def _not_all(world: World, ask: Ask, given: Sequence[Device]) -> Iterator[str]:
    if blocked := _blocks_all(world):
        yield f"{ask.name} asks for all devices, but {blocked}"
    for device in _all_devices(world, ask):
        if device not in given:
            yield f"{ask.name} asks for all devices and has not got {device}"


def _blocks_all(world: World) -> str:
    return next((pool.wrong for pool in world.pools.values() if pool.wrong), "")


def _all_devices(world: World, ask: Ask) -> list[Device]:
    """List what mode All means: every device that matches, in use or not.

    A shared device that cannot hold such a request does not match; 1.36 also leaves out one that is too full for it.
    """
    return [
        device
        for device in world.candidates()
        if not world.unselected(ask, device)
        and not (device.slice["spec"].get("perDeviceNodeSelection") and not is_for(device.obj, world.node))
        and not (device.obj.get("bindingConditions") and not world.features["DeviceBindingAndStatus"])
        and not _cannot_hold(world, Use(ask, device))
    ]


def _cannot_hold(world: World, use: Use) -> bool:
    if not world.features["ConsumableCapacity"]:
        return False
    if world.release <= 36:
        return any(_capacity_exceeded(world, [use]))
    capacities = use.device.obj.get("capacity", {})
    return bool(refusal(use.ask, use.device)) or any(
        consumption(use.ask, name, each) > _amount(each["value"]) for name, each in capacities.items()
    )


def _wrong_entry(world: World, use: Use, entry: Json) -> Iterator[str]:
    """Compare what a result says about a device, besides which it is."""
    shared = _may_be_shared(world, use.device)
    consumed = {n: consumption(use.ask, n, c) for n, c in use.device.obj.get("capacity", {}).items()} if shared else {}
    conditions = use.device.obj if world.features["DeviceBindingAndStatus"] else {}
    pairs = {
        "adminAccess": (entry.get("adminAccess"), use.ask.is_admin or None),
        "tolerations": (entry.get("tolerations") or [], use.ask.spec.get("tolerations") or []),
        "shareID": (bool(entry.get("shareID")), shared),
        "consumedCapacity": (_amounts(entry.get("consumedCapacity") or {}), consumed),
        "bindingConditions": (entry.get("bindingConditions"), conditions.get("bindingConditions")),
        "bindingFailureConditions": (
            entry.get("bindingFailureConditions"),
            conditions.get("bindingFailureConditions"),
        ),
    }
    for name, (got, wanted) in pairs.items():
        if got != wanted:
            yield f"{use.ask.name}: {use.device}: {name} is {got}, not {wanted}"


def _wrong_node_selector(world: World, uses: Sequence[Use], got: Json | None) -> Iterator[str]:
    """An allocation is for one node if a device is; else for the nodes that all its devices' selectors allow."""
    where = [
        use.device.obj if use.device.slice["spec"].get("perDeviceNodeSelection") else use.device.slice["spec"]
        for use in uses
    ]
    if any(each.get("nodeName") for each in where) or any(use.device.obj.get("bindsToNode") for use in uses):
        here = {"key": "metadata.name", "operator": "In", "values": [world.node["metadata"]["name"]]}
        wanted = {"matchFields": _as_set([here]), "matchExpressions": _as_set([])}
    else:
        terms = [term for each in where for term in (each.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()]
        wanted = {
            key: _as_set(itertools.chain(*(term.get(key) or () for term in terms)))
            for key in ("matchFields", "matchExpressions")
        }
    got_terms = (got or {}).get("nodeSelectorTerms") or [{}]
    if len(got_terms) != 1 or {key: _as_set(got_terms[0].get(key) or ()) for key in wanted} != wanted:
        yield f"the node selector is {got}, not {wanted}"


def _as_set(requirements: Iterable[Json]) -> set[tuple[str, str, frozenset[str]]]:
    return {(each["key"], each["operator"], frozenset(each.get("values") or ())) for each in requirements}


# Amounts.

_SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)} | {
    letter + binary: Fraction((1024 if binary else 1000) ** power)
    for power, letter in enumerate("kMGTPE", 1)
    for binary in ("", "i")
}
_SUFFIXES["Ki"] = _SUFFIXES.pop("ki")


def _amount(text: str | int | Fraction) -> Fraction:
    """Read a quantity; what is finer than a billionth is rounded up."""
    if isinstance(text, Fraction):
        return text
    written = str(text)
    digits = written.rstrip("numkMGTPEKi")
    exact = Fraction(digits) * _SUFFIXES[written[len(digits) :]]
    return Fraction(math.ceil(exact * 10**9), 10**9)


def _amounts(given: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: _amount(text) for name, text in given.items()}


def _whole(amount: str | int | Fraction) -> int:
    return math.ceil(_amount(amount))


def _key(entry: Json) -> DeviceKey:
    return entry["driver"], entry["pool"], entry["device"]
