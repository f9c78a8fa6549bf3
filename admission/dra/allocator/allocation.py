"""The `status.allocation` of a claim: devices, configuration and node selector, as kube-scheduler writes them.

Mirrors the end of `Allocate` and `createNodeSelector` in `allocator_incubating.go` (v0.37.1; v0.36.3 where the profile
says so).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceClass, RequestDevice
from admission.api.values import quantities
from admission.api.values.decoding import Json
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement, Toleration
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.counters import Amount
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.requests import Option, ParsedClaim


@dataclass(frozen=True, slots=True)
class AllocatedRequest:
    """A device given to one option of a request. consumed: what a share takes of each capacity."""

    option: Option
    listed: InventoryDevice
    shared: bool = False
    consumed: Mapping[str, Amount] = field(default_factory=dict)

    @property
    def request_device(self) -> RequestDevice:
        return RequestDevice(request=self.option.name, device=self.listed.id)

    @property
    def use(self) -> DeviceUse | None:
        """Return what the device's allocation makes unavailable to others: nothing under admin access."""
        if self.option.admin:
            return None
        return DeviceUse(self.listed.id, shared=self.shared, share=self.consumed or None)


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """One claim's allocation. node_selector: None where the claim may be used on every node."""

    given: tuple[AllocatedRequest, ...]
    config: tuple[Json, ...]
    node_selector: NodeSelector | None

    def json(self, share_ids: Sequence[str] = ()) -> dict[str, Any]:
        """Write it as status.allocation, without its timestamp. share_ids: one for every share, in order."""
        ids = iter(share_ids)
        devices: dict[str, Any] = {}
        if self.given:
            devices["results"] = [_device(given, next(ids, "") if given.shared else "") for given in self.given]
        if self.config:
            devices["config"] = list(self.config)
        found: dict[str, Any] = {"devices": devices}
        if self.node_selector is not None:
            found["nodeSelector"] = _selector(self.node_selector)
        return found


def build(  # noqa: PLR0917 - what an allocation is made of
    claim: Claim,
    parsed_claim: ParsedClaim,
    given: Sequence[AllocatedRequest],
    node: NodeName,
    classes: Mapping[str, DeviceClass],
    profile: SchedulerProfile,
) -> AllocationResult:
    """Return the allocation of a claim that was given these devices on a node."""
    chosen = _chosen(parsed_claim, given)
    config = [*_of_classes(chosen, classes), *_of_claim(claim, parsed_claim, chosen, profile)]
    if not profile.release.before_1_37:
        config = [_without_all(entry, parsed_claim, chosen) for entry in config]
    return AllocationResult(tuple(given), tuple(config), _node_selector(given, node))


def _chosen(parsed_claim: ParsedClaim, given: Sequence[AllocatedRequest]) -> list[Option]:
    """Return the chosen option of every request; for a request that got no device, one that asks for none."""
    names = {one.option.name for one in given}
    return [
        next((option for option in reversed(request.options) if option.name in names), _empty(request.options))
        for request in parsed_claim.requests
    ]


def _empty(options: Sequence[Option]) -> Option:
    return next((option for option in options if option.plain and option.count <= 0), options[0])


def _of_classes(chosen: Sequence[Option], classes: Mapping[str, DeviceClass]) -> list[dict[str, Any]]:
    """Return the configuration of every class once, with the names of all requests for it."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(option.parsed.device_class for option in chosen):
        requests = [option.name for option in chosen if option.parsed.device_class == name]
        found += [
            {"source": "FromClass", "requests": list(requests), **entry}
            for entry in (classes[name].config if name in classes else ())
        ]
    return found


def _of_claim(
    claim: Claim, parsed_claim: ParsedClaim, chosen: Sequence[Option], profile: SchedulerProfile
) -> list[dict[str, Any]]:
    """Return the claim's configuration for the requests that were served; 1.36 repeats it for every such request."""
    found: list[dict[str, Any]] = []
    for entry in claim.spec.config:
        requests = list(entry.get("requests") or ())
        rest = {key: value for key, value in entry.items() if key != "requests"}
        wanted: dict[str, Any] = {"source": "FromClaim", **({"requests": requests} if requests else {}), **rest}
        if not requests:
            found.append(wanted)
            continue
        for request, option in zip(parsed_claim.requests, chosen, strict=True):
            if request.name in requests or option.name in requests:
                found.append(dict(wanted))
                if not profile.release.before_1_37:
                    break
    return found


def _without_all(entry: dict[str, Any], parsed_claim: ParsedClaim, chosen: Sequence[Option]) -> dict[str, Any]:
    """Return a configuration without the names of its requests if it names all requests of the claim."""
    names = entry.get("requests") or ()
    pairs = zip(parsed_claim.requests, chosen, strict=True)
    if names and all(request.name in names or option.name in names for request, option in pairs):
        return {key: value for key, value in entry.items() if key != "requests"}
    return entry


def _node_selector(given: Sequence[AllocatedRequest], node: NodeName) -> NodeSelector | None:
    """Return where the claim may be used: on its node if a device is bound to it, else where all devices are."""
    expressions: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for one in given:
        if one.listed.binds:
            only = Requirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(terms=(NodeTerm(fields=(only,)),))
        selector = one.listed.place.node_selector
        for term in selector.terms if selector is not None else ():
            expressions.update(dict.fromkeys(term.expressions))
            fields.update(dict.fromkeys(term.fields))
    if not expressions and not fields:
        return None
    return NodeSelector(terms=(NodeTerm(expressions=tuple(expressions), fields=tuple(fields)),))


def _device(given: AllocatedRequest, share_id: str) -> dict[str, Any]:
    device = given.listed.device
    found: dict[str, Any] = {
        "request": given.option.name,
        "driver": given.listed.id.driver,
        "pool": given.listed.id.pool,
        "device": given.listed.id.device,
    }
    if given.option.admin:
        found["adminAccess"] = True
    if given.option.tolerations:
        found["tolerations"] = [_toleration(toleration) for toleration in given.option.tolerations]
    if device.binding_conditions:
        found["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failures:
        found["bindingFailureConditions"] = list(device.binding_failures)
    if given.shared:
        found["shareID"] = share_id
    if given.consumed:
        found["consumedCapacity"] = {
            name: quantities.write(Fraction(amount)) for name, amount in sorted(given.consumed.items())
        }
    return found


def _toleration(toleration: Toleration) -> dict[str, Any]:
    found: dict[str, Any] = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {key: value for key, value in found.items() if value not in ("", None)}


def _selector(selector: NodeSelector) -> dict[str, Any]:
    terms = [
        {
            **({"matchExpressions": list(map(_requirement, term.expressions))} if term.expressions else {}),
            **({"matchFields": list(map(_requirement, term.fields))} if term.fields else {}),
        }
        for term in selector.terms
    ]
    return {"nodeSelectorTerms": terms}


def _requirement(requirement: Requirement) -> dict[str, Any]:
    found: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    return {**found, "values": list(requirement.values)} if requirement.values else found
