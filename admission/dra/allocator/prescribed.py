"""The allocation of a claim whose devices are chosen already: what its status.allocation must say.

    prescribed_allocation(claim, given, node, cluster, *, selectors) -> AllocationResult | Misfit

`given` are the devices that the ledger has booked for the claim (`Holding.devices`), `node` is the node of the pod that
uses the claim, and `AllocationResult.json(share_ids)` is what to write. Muster makes every allocation in this way, at
the grant and in recovery alike. The devices are checked again, beside all that the cluster state has in use; what it
has in use for this claim does not count, so the cluster state may be the one in which the claim is planned. It does not
matter which devices a search would have found first: any that satisfy the claim are valid.

The rules are those of kube-scheduler's allocator with its known defects fixed, as `gang_planner` applies them where
devices are chosen freely: a request with admin access takes nothing and needs nothing free. Only kube-scheduler creates
and allocates a claim for extended resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.claims import MAX_RESULTS, Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values import names, references
from admission.api.values.names import NodeName
from admission.api.values.references import References
from admission.dra import compatibility
from admission.dra.allocator import allocation
from admission.dra.allocator.allocation import AllocatedRequest, AllocationResult
from admission.dra.allocator.counters import Counters
from admission.dra.allocator.node_allocator import NodeView
from admission.dra.equivalence import device_signature, node_contents, node_usage
from admission.dra.equivalence.device_signature import Answer
from admission.dra.equivalence.node_contents import DeviceGroup, Units
from admission.dra.equivalence.usage_overlay import CombinedOverlay
from admission.dra.inventory.counters import Amount
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import capacity, constraints, extended_resources, requests
from admission.dra.requests.capacity import Unfit
from admission.dra.requests.requests import Fatal, Mode, Option, ParsedClaim
from admission.dra.state.cluster_state import ClusterState


class Mismatch(StrEnum):
    """What is wrong with the devices chosen for a claim."""

    NOT_OURS = "NotOurs"
    """The claim is kube-scheduler's to allocate: it is for extended resources."""
    ALLOCATED = "Allocated"
    """The claim has an allocation already."""
    CLAIM = "Claim"
    """The devices do not answer the claim's requests, or no devices could: request, class or number differ."""
    GONE = "Gone"
    """The node, the pool or the device does not exist, or the pool is incomplete or invalid."""
    SELECTOR = "Selector"
    """The device does not match the selectors of the request or its class, the node, or the requested capacity."""
    TAINT = "Taint"
    IN_USE = "InUse"
    """Another claim has the device, or the claim has it twice."""
    CONSTRAINT = "Constraint"
    COUNTERS = "Counters"
    CAPACITY = "Capacity"
    """Too little is left of a shared device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a claim cannot be given the devices: the first problem. request and device: set if it is about one.

    references: of the message, to the claim that has a device.
    """

    problem: Mismatch
    claim: str
    message: str
    request: str = ""
    device: DeviceId | None = None
    references: References = ()

    def __str__(self) -> str:
        return self.message


def prescribed_allocation(
    claim: Claim, given: Sequence[RequestDevice], node: NodeName, cluster: ClusterState, *, selectors: Selectors
) -> AllocationResult | Misfit:
    """Return the allocation of an unallocated claim with these devices on a node, or what is wrong with them.

    The order of `given` does not matter: results are written in the order of requests and of the node's devices.
    """
    where = f"claim {claim.meta.key}"
    if names.is_extended_claim(claim.meta.uid) or extended_resources.ANNOTATION in claim.meta.annotations:
        message = f"{where} is for extended resources: kube-scheduler makes and allocates it, and nobody else can"
        return Misfit(problem=Mismatch.NOT_OURS, claim=claim.meta.key, message=message)
    if claim.allocation is not None:
        return Misfit(problem=Mismatch.ALLOCATED, claim=claim.meta.key, message=f"{where} is allocated already")
    if node not in cluster.nodes:
        return Misfit(problem=Mismatch.GONE, claim=claim.meta.key, message=f"{where}: node {node} is not there")
    profile = cluster.profile.with_known_bugs(compatibility.FIXED)
    parsed_claim = requests.parse(claim.spec, cluster.classes, where, profile)
    if isinstance(parsed_claim, Fatal):
        return Misfit(problem=Mismatch.CLAIM, claim=claim.meta.key, message=parsed_claim.error)
    need = device_signature.Need(
        requests.parsed_requests((parsed_claim,)), requests.attributes((parsed_claim,)), profile=profile
    )
    view = NodeView(cluster, node, device_signature.build(need, selectors), CombinedOverlay(cluster, (claim.meta.key,)))
    return _Validator(claim, parsed_claim, view, selectors).answer(given)


class _Entry(NamedTuple):
    """A device for a request: numbers of the request and of its option, and the device's place on the node."""

    request: int
    option: int
    at: int


class _Validator:
    """Checks devices for one claim on one node."""

    def __init__(self, claim: Claim, parsed_claim: ParsedClaim, view: NodeView, selectors: Selectors) -> None:
        self._claim = claim
        self._parsed_claim = parsed_claim
        self._view = view
        self._selectors = selectors
        self._profile = view.device_signatures.need.profile
        units = Units(view.device_signatures)
        shown = node_usage.contents_of(view.layout, units, view.usage, view.cluster)
        self._units: list[DeviceGroup] = [units.known[number] for number in shown.units]
        self._counters = Counters(shown.counter_sets, self._profile.known_bugs)
        self._rules = [
            (rule, view.device_signatures.attributes[rule.attribute], constraints.running(rule, self._profile))
            for rule in parsed_claim.rules
        ]
        self._shares: dict[int, list[tuple[Amount, ...]]] = {}

    def answer(self, given: Sequence[RequestDevice]) -> AllocationResult | Misfit:
        entries = self._entries(given)
        if isinstance(entries, Misfit):
            return entries
        problem = self._miscounted(entries)
        before: list[_Entry] = []
        for entry in entries:
            problem = problem or self._mismatch(entry) or self._repeated(entry, before) or self._exceeds(entry)
            before.append(entry)
        if problem is not None:
            return problem
        found = [self._given(entry) for entry in entries]
        return allocation.build(
            self._claim,
            self._parsed_claim,
            found,
            self._view.node,
            self._view.cluster.classes,
            self._view.cluster.profile,
        )

    def _given(self, entry: _Entry) -> AllocatedRequest:
        option, signature = self._option(entry), self._units[entry.at].signature
        consumed = signature.consumed(self._view.device_signatures.parsed_requests[option.parsed])
        return AllocatedRequest(option, self._view.listed_devices[entry.at], shared=signature.shared, consumed=consumed)

    def _option(self, entry: _Entry) -> Option:
        return self._parsed_claim.requests[entry.request].options[entry.option]

    def _misfit(self, problem: Mismatch, message: str, request: str = "", device: DeviceId | None = None) -> Misfit:
        where = f"request {request} of claim {self._claim.meta.key}" if request else f"claim {self._claim.meta.key}"
        return Misfit(
            problem=problem, claim=self._claim.meta.key, message=f"{where}: {message}", request=request, device=device
        )

    # What is named.

    def _entries(self, given: Sequence[RequestDevice]) -> list[_Entry] | Misfit:
        """Find requests and devices by their names; return them in the order in which results are written."""
        options = {
            option.name: (r, o)
            for r, request in enumerate(self._parsed_claim.requests)
            for o, option in enumerate(request.options)
        }
        places = {listed.id: at for at, listed in enumerate(self._view.listed_devices)}
        found: list[_Entry] = []
        for one in given:
            if one.request not in options:
                return self._misfit(Mismatch.CLAIM, f"it has no request {one.request}", device=one.device)
            if one.device not in places:
                return self._missing(one)
            found.append(_Entry(*options[one.request], places[one.device]))
        return sorted(found)

    def _missing(self, one: RequestDevice) -> Misfit:
        """Return why a device is not among those of the node that match some request."""
        device, node = one.device, self._view.node
        pool = next(
            (
                p
                for p in self._view.node_inventory.seen(self._profile.known_bugs)
                if p.id == (device.driver, device.pool)
            ),
            None,
        )
        if pool is None:
            message = f"node {node} sees no pool {device.pool} of {device.driver}"
            return self._misfit(Mismatch.GONE, message, one.request, device)
        if not pool.serves:
            return self._misfit(Mismatch.GONE, f"{pool.title} cannot be used: {pool.why}", one.request, device)
        listed = next((listed for listed in pool.listed_devices if listed.id == device), None)
        if listed is None:
            message = f"device {device} is not there, as node {node} sees it"
            return self._misfit(Mismatch.GONE, message, one.request, device)
        option = next(o for r in self._parsed_claim.requests for o in r.options if o.name == one.request)
        return self._misfit(
            Mismatch.SELECTOR, f"device {device} {self._rejection(option, listed)}", one.request, device
        )

    def _rejection(self, option: Option, listed: InventoryDevice) -> str:
        """Return why a device does not match a request, whatever is in use."""
        selected = self._selectors.answer(option.parsed.texts, listed)
        if isinstance(selected, str):
            return f"cannot be judged: {selected}"
        if not selected:
            return f"is not what it or class {option.parsed.device_class} selects"
        if not listed.reachable:
            return f"is not for node {self._view.node}"
        features = self._profile.features
        if listed.device.binding_conditions and not features.binding_conditions:
            return "has binding conditions, and their gates are off"
        consumed = capacity.consumed(option.parsed.needs, listed.device.capacity, fractional=features.fractional_ranges)
        return f"cannot hold what it asks for: {consumed.why if isinstance(consumed, Unfit) else consumed}"

    # How many.

    def _miscounted(self, entries: Sequence[_Entry]) -> Misfit | None:
        if len(entries) > MAX_RESULTS:
            return self._misfit(
                Mismatch.CLAIM, f"{len(entries)} devices are more than the {MAX_RESULTS} that it can hold"
            )
        for r in range(len(self._parsed_claim.requests)):
            own_entries = [entry for entry in entries if entry.request == r]
            if problem := self._miscounted_request(r, own_entries):
                return problem
        return None

    def _miscounted_request(self, r: int, entries: Sequence[_Entry]) -> Misfit | None:
        request = self._parsed_claim.requests[r]
        chosen = sorted({entry.option for entry in entries})
        if not chosen:
            if any(option.mode is Mode.EXACT and option.count <= 0 for option in request.options):
                return None
            return self._misfit(Mismatch.CLAIM, "it has no device", request.name)
        if len(chosen) > 1:
            both = " and ".join(request.options[o].name for o in chosen)
            return self._misfit(Mismatch.CLAIM, f"devices for {both}, and only one of them can be served", request.name)
        option = request.options[chosen[0]]
        if option.mode is Mode.ALL:
            return self._not_all(option, {entry.at for entry in entries})
        if len(entries) != option.count:
            return self._misfit(Mismatch.CLAIM, f"it asks for {option.count} devices, not {len(entries)}", option.name)
        return None

    def _not_all(self, option: Option, given: set[int]) -> Misfit | None:
        """Return why these devices do not serve a request in mode All."""
        trouble = node_contents.troubles(self._view.node_inventory)[self._profile.known_bugs.foreign_counters]
        if broken := trouble.incomplete or trouble.invalid:
            return self._misfit(Mismatch.GONE, f"it wants all devices, and {broken}", option.name)
        parsed = self._view.device_signatures.parsed_requests[option.parsed]
        for at, unit in enumerate(self._units):
            if unit.signature.answers[parsed] is not Answer.NO and at not in given:
                device = self._view.listed_devices[at].id
                return self._misfit(Mismatch.CLAIM, f"it wants all devices, {device} too", option.name, device)
        return None

    # Which.

    def _mismatch(self, entry: _Entry) -> Misfit | None:
        """Return what is wrong with a device for its request, whatever is in use."""
        option, listed = self._option(entry), self._view.listed_devices[entry.at]
        answer = self._units[entry.at].signature.answers[self._view.device_signatures.parsed_requests[option.parsed]]
        if answer is Answer.YES:
            return None
        if answer is Answer.TAINTED:
            message = (
                f"device {listed.id} has a taint that it does not tolerate, or draws counters while their gate is off"
            )
            return self._misfit(Mismatch.TAINT, message, option.name, listed.id)
        why = f"cannot be judged: {answer}" if isinstance(answer, Fatal) else self._rejection(option, listed)
        return self._misfit(Mismatch.SELECTOR, f"device {listed.id} {why}", option.name, listed.id)

    def _repeated(self, entry: _Entry, before: Sequence[_Entry]) -> Misfit | None:
        """Return which claim has the device already: another one, or this one."""
        option, device = self._option(entry), self._view.listed_devices[entry.at].id
        unit = self._units[entry.at]
        if unit.use.taken and not option.admin:
            holder = references.refer([self._view.cluster.taken[device].referent()])
            misfit = self._misfit(Mismatch.IN_USE, f"device {device} is in use by {holder.phrase}", option.name, device)
            return replace(misfit, references=(holder,))
        for other in before:
            if other.at == entry.at and (not unit.signature.shared or other.request == entry.request):
                return self._misfit(Mismatch.IN_USE, f"device {device} is given twice", option.name, device)
        return None

    def _exceeds(self, entry: _Entry) -> Misfit | None:
        """Take a device; return what it exceeds or violates: counters, a constraint or the device's capacity."""
        option, device, unit = self._option(entry), self._view.listed_devices[entry.at].id, self._units[entry.at]
        if self._draws_counters(entry.at, unit, option) and not self._counters.draw(unit):
            message = f"too little is left of the counters of pool {device.pool} for device {device}"
            return self._misfit(Mismatch.COUNTERS, message, option.name, device)
        request = self._parsed_claim.requests[entry.request].name
        for rule, value, running in self._rules:
            if rule.binds(request, option.name) and not running.add(unit.signature.values[value], request):
                kind = "distinctAttribute" if rule.distinct else "matchAttribute"
                message = f"device {device} is against {kind} {rule.attribute}"
                return self._misfit(Mismatch.CONSTRAINT, message, option.name, device)
        return None if option.admin else self._overfull(entry, unit)

    def _draws_counters(self, at: int, unit: DeviceGroup, option: Option) -> bool:
        """Return whether a device draws from counters: not under admin access, nor for a second share."""
        return unit.signature.draw is not None and not option.admin and at not in self._shares and not unit.use.shares

    def _overfull(self, entry: _Entry, unit: DeviceGroup) -> Misfit | None:
        """Take a share of the device; return which capacity has too little left for it."""
        option, device, signature = self._option(entry), self._view.listed_devices[entry.at].id, unit.signature
        requested = (
            signature.takes[self._view.device_signatures.parsed_requests[option.parsed]] if signature.takes else ()
        )
        shares = self._shares.get(entry.at, [])
        for number, (name, total) in enumerate(signature.room):
            used = unit.use.amounts[number] if unit.use.amounts else 0
            if used + sum(share[number] for share in shares) + requested[number] > total:
                message = f"too little is left of capacity {name} of device {device}"
                return self._misfit(Mismatch.CAPACITY, message, option.name, device)
        if signature.shared:
            self._shares[entry.at] = [*shares, requested]
        return None
