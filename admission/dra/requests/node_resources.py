"""What devices take of the resources of their node, beside what pods request (DRANodeAllocatableResources).

The gate is off by default, and the API server drops the fields of slices while it is: where they are, it counts as on.
Mirrors `calculateAndCheckNodeAllocatableResources` of nodeallocatabledynamicresources.go in
pkg/scheduler/framework/plugins/dynamicresources (kubernetes v1.37.1; v1.36.3 where the release says so).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from admission.api.kubernetes import pod_requests
from admission.api.kubernetes.claims import Allocation, Claim
from admission.api.kubernetes.devices import NodeResource
from admission.api.kubernetes.pod_requests import ClaimUser, PodLevel
from admission.api.kubernetes.pods import Pod
from admission.dra.compatibility import Release
from admission.dra.inventory.counters import Amount
from admission.dra.inventory.pools import Slices

Amounts = Mapping[str, Fraction]


class Given(NamedTuple):
    """A device of a claim: what it takes of its node, and what the claim consumes of its capacities."""

    resources: tuple[NodeResource, ...]
    consumed: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class OfClaim:
    """What the devices of one claim take. mapped: for the claim; None if no device is a resource of the node itself.

    users: how often each container of the pod names the claim, in order of `ClaimedResources.users`.
    """

    mapped: tuple[tuple[str, Fraction], ...] | None
    per_pod: tuple[tuple[str, Fraction], ...] = ()
    per_container: tuple[tuple[str, Fraction], ...] = ()
    users: tuple[int, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Return the resources of which it takes some."""
        return frozenset(name for name, _ in (*(self.mapped or ()), *self.per_pod, *self.per_container))

    def for_pod(self) -> dict[str, Fraction]:
        """Return what the whole pod takes by it."""
        return _sum((dict(self.mapped or ()), dict(self.per_pod), _times(self.per_container, sum(self.users))))

    def for_container(self) -> dict[str, Fraction]:
        """Return what one container that uses the claim may take by it."""
        return _sum((dict(self.mapped or ()), dict(self.per_pod), dict(self.per_container)))


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a pod cannot have these devices, whatever its node has left."""

    why: str


@dataclass(frozen=True, slots=True)
class Lacking:
    """A node has too little of a resource for a pod with these devices. Amounts in the unit of `nodes.Resources`."""

    resource: str
    needed: int
    left: int


def of_claim(given: Iterable[Given], users: tuple[int, ...], claim: Claim) -> OfClaim | Unfit | None:
    """Return what the devices of a claim take; None if nothing. users: see `OfClaim`."""
    mapped: dict[str, Fraction] = {}
    per_pod: dict[str, Fraction] = {}
    per_container: dict[str, Fraction] = {}
    is_mapped = found = False
    for device in given:
        for one in device.resources:
            found = True
            is_mapped |= one.mapped
            if one.capacity and not device.consumed:
                return Unfit(
                    f"a device of claim {claim.meta.name} takes {one.name} of its node by what is consumed of"
                    f" {one.capacity}, and it is not shared, so that nothing is"
                )
            by_capacity = Fraction(device.consumed.get(one.capacity, 0)) * one.per_unit if one.capacity else Fraction(0)
            _add(mapped, one.name, one.per_device + by_capacity)
            _add(per_pod, one.name, one.per_pod)
            _add(per_container, one.name, one.per_container)
    if not found:
        return None
    return OfClaim(_items(mapped) if is_mapped else None, _items(per_pod), _items(per_container), users)


def users_of(pod: Pod, names: Iterable[str]) -> tuple[int, ...]:
    """Return how often each container of a pod names a claim. names: the pod's own for it."""
    wanted = frozenset(names)
    return tuple(sum(name in wanted for name in user.claims) for user in pod.claimed.users)


def taken(pod: Pod, claims: Sequence[OfClaim], release: Release) -> dict[str, int] | Unfit:
    """Return what a pod takes by its claims beside its requests. claims: those that take something."""
    if release.before_1_37 and not all(any(one.users) for one in claims):
        return Unfit("no container names a claim of it whose devices take resources of the node, as 1.36 wants it")
    total = _sum(one.for_pod() for one in claims)
    level = pod.claimed.level
    if level is None:
        return pod_requests.rounded(total)
    covered = dict(level.older if release.before_1_37 else level.requests)
    resource = _uncovered(covered, level, total)
    if resource is None and not release.before_1_37:
        resource = _unlimited(level, pod.claimed.users, claims)
    if resource is not None:
        return Unfit(f"its resources as a pod are too little {resource} for its containers and devices together")
    return pod_requests.rounded({name: amount for name, amount in total.items() if name not in covered})


def lacking(requests: Mapping[str, int], more: Mapping[str, int], left: Mapping[str, int] | None) -> Lacking | None:
    """Return the first resource of which a node has too little left for requests and what devices take; None if none.

    Asked of nodes that have enough for the requests alone.
    """
    if left is None:
        return None
    for name, amount in sorted(more.items()):
        needed = requests.get(name, 0) + amount
        if needed > 0 and needed > left.get(name, 0):
            return Lacking(name, needed, left.get(name, 0))
    return None


def of_allocation(allocation: Allocation, slices: Slices) -> Iterator[Given]:
    """Yield the devices of an allocated claim; those that are in no slice take nothing."""
    for one in allocation.devices:
        device = slices.device(one.device)
        if device is not None and device.node_resources:
            yield Given(device.node_resources, one.consumed)


def exclusive(claim: str) -> str:
    """Return why pods may not share a claim, for people."""
    return (
        f"claim {claim} has a device that is a resource of its node itself, which kube-scheduler lets no two pods share"
    )


def _uncovered(requests: Mapping[str, int], level: PodLevel, total: Amounts) -> str | None:
    """Return a resource of which pod-level requests are less than containers and devices together."""
    containers = dict(level.containers)
    more = pod_requests.rounded(total)
    return next(
        (name for name, amount in requests.items() if containers.get(name, 0) + more.get(name, 0) > amount), None
    )


def _unlimited(level: PodLevel, users: Sequence[ClaimUser], claims: Sequence[OfClaim]) -> str | None:
    """Return a resource of which a pod-level limit is less than that of a container with its devices."""
    limits = dict(level.limits)
    for at, user in enumerate(users):
        more = pod_requests.rounded(_sum(one.for_container() for one in claims if one.users[at]))
        for name, limit in user.limits:
            if name in limits and not name.startswith("hugepages-") and limit + more.get(name, 0) > limits[name]:
                return name
    return None


def _add(total: dict[str, Fraction], name: str, amount: Fraction) -> None:
    total[name] = total.get(name, Fraction(0)) + amount


def _times(amounts: Iterable[tuple[str, Fraction]], count: int) -> dict[str, Fraction]:
    return {name: amount * count for name, amount in amounts}


def _sum(parts: Iterable[Amounts]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            _add(total, name, amount)
    return total


def _items(amounts: Mapping[str, Fraction]) -> tuple[tuple[str, Fraction], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
