"""What a gang asks for, narrowed to one kind of devices after the other, as its queue prefers them.

A request is narrowed if the kinds name its class, by the selector of one kind:

- by that of its own kind, if devices of one kind alone can serve it: it leaves nothing open;
- else by that of the kind that is tried, the same for all such requests of the gang.

So devices that are of no kind serve no such request. Claims that are allocated or planned, and requests with admin
access, which take nothing from others, stay as they are.

Muster may give a narrowed claim any devices that satisfy it. kube-scheduler knows nothing of kinds, so where it picks
the devices a pod is kept to nodes on which all devices that satisfy its claims are of the kind (`PodDemand.kept_to`):
there it gets them whatever else happens. Which requests devices of one kind alone can serve is judged by the slices
there are, used or not.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from admission.api.kubernetes.claims import Claim, ClaimSpec, DeviceRequest, Request
from admission.api.kubernetes.devices import Slice
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.preferences import DeviceKind, Preferences
from admission.api.values.names import NodeName, Uid
from admission.dra.inventory import selectors as inventory_selectors
from admission.dra.inventory.selectors import Selectors, Texts
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state.cluster_state import ClusterState, key_of

T = TypeVar("T")

NOTHING = "false"
"""The CEL of a request that no device of a kind can serve."""

Nodes = frozenset[NodeName]
Kinds = frozenset[int]
"""Some of the kinds of a queue, by their places in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The demands of a gang, narrowed to a kind; None if its claims leave none open."""

    demands: tuple[PodDemand, ...]
    kind: DeviceKind | None

    @property
    def name(self) -> str:
        """Return the name of the kind; empty without one."""
        return self.kind.name if self.kind is not None else ""


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """A claim's spec of one kind, and the nodes where every device that satisfies the claim is of it."""

    spec: ClaimSpec
    nodes: Nodes


def attempts(
    demands: Sequence[PodDemand],
    preferences: Preferences,
    cluster: ClusterState,
    selectors: Selectors,
    placement: Placement | None = None,
) -> tuple[Attempt, ...]:
    """Return the demands for each kind to be tried, in order; none if no claim is about these kinds.

    placement: of other pods of the gang. The kinds that these have are the only ones to be tried, if they have any.
    """
    reader = _Reader(preferences, cluster, selectors)
    specs = {claim.spec.equivalence_key: claim.spec for demand in demands for claim in reader.open(demand)}
    wanted = [kinds for spec in specs.values() for kinds in reader.kinds(spec) if kinds is not None]
    if not wanted:
        return ()
    open_kinds = sorted({kind for kinds in wanted if len(kinds) > 1 for kind in kinds})
    if not open_kinds:
        return (Attempt(demands=reader.narrowed(demands, 0), kind=None),)
    held = reader.held(placement) if placement is not None else frozenset()
    open_kinds = [at for at in open_kinds if at in held] or open_kinds
    return tuple(Attempt(demands=reader.narrowed(demands, at), kind=preferences.kinds[at]) for at in open_kinds)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads claims by the kinds of a queue in one cluster state."""

    preferences: Preferences
    cluster: ClusterState
    selectors: Selectors

    def open(self, demand: PodDemand) -> Iterable[Claim]:
        """Return the claims that are still to be allocated."""
        pinned = self.cluster.pinned
        return [claim for claim in demand.claims if claim.allocation is None and key_of(claim) not in pinned]

    def kinds(self, spec: ClaimSpec) -> tuple[Kinds | None, ...]:
        """Return for each request the kinds with devices that can serve it; None if the kinds are not about it."""
        key = ("kinds", spec.equivalence_key, self.preferences)
        return self._kept(key, lambda: tuple(map(self._kinds_of, spec.requests)))

    def held(self, placement: Placement) -> Kinds:
        """Return the kinds of the devices that pods of a gang have on their nodes."""
        held = {(*one.device,) for holding in placement.holdings.values() for one in holding.devices}
        nodes = {seat.node for seat in placement.seats.values()} & self.cluster.node_inventories.keys()
        return frozenset(
            kind
            for node in nodes
            for source in self.cluster.node_inventories[node].sources
            for place, device in enumerate(source.devices)
            if (source.driver, source.pool, device.name) in held
            for kind, one in enumerate(self.preferences.kinds)
            if self._is_of(one, source, place)
        )

    def _is_of(self, kind: DeviceKind, source: Slice, place: int) -> bool:
        known = [self.cluster.classes[name] for name in kind.classes if name in self.cluster.classes]
        own = (kind.selector,) if kind.selector is not None else ()
        return any(self.selectors.column((*one.selectors, *own), source).yes >> place & 1 for one in known)

    def narrowed(self, demands: Sequence[PodDemand], kind: int) -> tuple[PodDemand, ...]:
        """Return the demands narrowed to a kind. A claim that pods share stays one claim."""
        claims: dict[Uid, tuple[Claim, Nodes]] = {}
        found: list[PodDemand] = []
        for demand in demands:
            open_keys = {key_of(claim) for claim in self.open(demand)}
            kept: Nodes | None = None
            own: list[Claim] = []
            for claim in demand.claims:
                key = key_of(claim)
                if key not in open_keys or all(kinds is None for kinds in self.kinds(claim.spec)):
                    own.append(claim)
                    continue
                if key not in claims:
                    one = self._narrowed(claim.spec, kind)
                    claims[key] = replace(claim, spec=one.spec), one.nodes
                own.append(claims[key][0])
                kept = claims[key][1] if kept is None else kept & claims[key][1]
            found.append(replace(demand, claims=tuple(own), kept_to=kept) if kept is not None else demand)
        return tuple(found)

    def _kept(self, key: Hashable, make: Callable[[], T]) -> T:
        found: T = self.selectors.kinds.get(key, (self.cluster.node_inventories, self.cluster.classes), make)
        return found

    def _kinds_of(self, request: Request) -> Kinds | None:
        kinds = self.preferences.kinds
        about = [option for option in request.alternatives if self._is_about(option)]
        if not about:
            return None
        return frozenset(at for at, kind in enumerate(kinds) if any(self._has_devices(_of(o, kind)) for o in about))

    def _is_about(self, option: DeviceRequest) -> bool:
        return option.device_class in self.preferences.classes and not option.admin_access

    def _narrowed(self, spec: ClaimSpec, kind: int) -> _Narrowed:
        key = ("narrowed", spec.equivalence_key, repr(spec.config), self.preferences, kind)
        return self._kept(key, lambda: self._narrow(spec, kind))

    def _narrow(self, spec: ClaimSpec, kind: int) -> _Narrowed:
        requests: list[Request] = []
        nodes = frozenset(self.cluster.nodes)
        for request, kinds in zip(spec.requests, self.kinds(spec), strict=True):
            if kinds is None:
                requests.append(request)
                continue
            chosen = self.preferences.kinds[next(iter(kinds)) if len(kinds) == 1 else kind]
            options = tuple(
                _of(option, chosen) if self._is_about(option) else option for option in request.alternatives
            )
            requests.append(replace(request, alternatives=options))
            for option, of_kind in zip(request.alternatives, options, strict=True):
                nodes -= self._mixed(option, of_kind)
        return _Narrowed(replace(spec, requests=tuple(requests)), nodes)

    def _texts(self, option: DeviceRequest) -> Texts:
        device_class = self.cluster.classes.get(option.device_class)
        return inventory_selectors.joined(device_class.selectors if device_class is not None else (), option.selectors)

    def _has_devices(self, option: DeviceRequest) -> bool:
        """Return whether any device of the cluster satisfies the request."""
        texts, column = self._texts(option), self.selectors.column
        inventories = self.cluster.node_inventories.values()
        return any(column(texts, source).yes for inventory in inventories for source in inventory.sources)

    def _mixed(self, option: DeviceRequest, of_kind: DeviceRequest) -> Nodes:
        """Return the nodes with a device that satisfies a request, or might, and not the narrowed one."""
        if of_kind is option:
            return frozenset()
        every, some, column = self._texts(option), self._texts(of_kind), self.selectors.column
        found: set[NodeName] = set()
        for name, inventory in self.cluster.node_inventories.items():
            for source in inventory.sources:
                yes, bad = column(every, source)
                if (yes | bad) & ~column(some, source).yes:
                    found.add(name)
                    break
        return frozenset(found)


def _of(option: DeviceRequest, kind: DeviceKind) -> DeviceRequest:
    """Return the request for devices of a kind alone; the same one if that changes nothing."""
    if option.device_class not in kind.classes:
        return replace(option, selectors=(*option.selectors, NOTHING))
    return option if kind.selector is None else replace(option, selectors=(*option.selectors, kind.selector))
