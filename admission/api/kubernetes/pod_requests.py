"""What a pod requests of its node: as kube-scheduler counts it, and what the kubelet has given it so far.

They differ only while a pod is resized in place: kube-scheduler counts the larger of what is wanted and what is given,
until it is given. Mirrors PodRequests with UseStatusResources of `k8s.io/component-helpers/resource` (v0.37.1).

Devices may take CPU, memory or huge pages of their node beside that (DRANodeAllocatableResources, alpha in 1.36 and
1.37). The status of a scheduled pod says how much; before that it follows from the devices, from how often containers
name each claim, and from the resources of the pod as a whole, which have to cover it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from admission.api.kubernetes import nodes
from admission.api.kubernetes.nodes import Resources
from admission.api.values import quantities
from admission.api.values.decoding import Reader

ContainerRequests = Callable[[Reader], Resources]


class PodRequests(NamedTuple):
    """counted: as kube-scheduler counts them. taken: what the kubelet has given; None where it is the same.

    older: as kube-scheduler 1.36 counts them; None where it is the same.
    """

    counted: Resources
    taken: Resources | None = None
    older: Resources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUser:
    """A container that names claims. claims: the pod's own names of them, each as often as it is there.

    limits: of a container that is no init container.
    """

    claims: tuple[str, ...]
    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevel:
    """The resources that a pod has as a whole, which have to cover what devices take.

    requests: as 1.37 stores them. older: as 1.36 does, which completes them only where there are limits. containers:
    what containers request together.
    """

    requests: tuple[tuple[str, int], ...] = ()
    older: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    containers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedResources:
    """What a pod's claims have to do with the resources of its node.

    taken: what the status says that devices take, beside the pod's requests. by: the claims of these devices.
    """

    users: tuple[ClaimUser, ...] = ()
    level: PodLevel | None = None
    taken: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()


NOTHING = ClaimedResources()
_STATUSES = "nodeAllocatableResourceClaimStatuses"

RESIZABLE = ("cpu", "memory")
"""All that can be resized in place (`pkg/apis/core/validation`, validateContainerResize)."""


def decode(spec: Reader, status: Reader) -> PodRequests:
    """Decode what a pod requests, and what it has been given."""
    wanted = decode_spec(spec)
    if not _is_resized(spec, status):
        return PodRequests(wanted)
    given = _Given(status)
    allocated, actuated = given.allocated_of_pod, given.actuated_of_pod
    if not (allocated and actuated):
        allocated, actuated = _aggregate(spec, given.allocated), _aggregate(spec, given.actuated)
    level = _of_level(spec, _aggregate(spec, of_container))
    given_level = _maximum(given.actuated_of_pod, given.allocated_of_pod) if level and given.has_pod_level else level
    of_status = _with_pod_level(_maximum(allocated, actuated), given_level, spec)
    taken = {**wanted, **{name: of_status[name] for name in RESIZABLE if name in of_status}}
    # While a resize is refused, kube-scheduler counts nothing of a resource that no status names.
    counted = of_status if given.is_infeasible else _maximum(wanted, of_status)
    older = _counted_by_1_36(spec, status, given)
    return PodRequests(counted, None if taken == counted else taken, None if older == counted else older)


def _counted_by_1_36(spec: Reader, status: Reader, given: "_Given") -> dict[str, int]:
    """Return the requests of a pod that is resized as 1.36 adds them up: the most of each container.

    It reads no status of init containers that end, nor one that says what is allocated alone.
    """
    ending = {one.text("name") for one in spec.children("initContainers") if one.text("restartPolicy") != "Always"}

    def of(container: Reader) -> Resources:
        own, parts = of_container(container), given.of_container(container)
        if parts is None or container.text("name") in ending:
            return own
        return _maximum(*parts) if given.is_infeasible else _maximum(own, *parts)

    level = _stored_by_1_36(spec, _aggregate(spec, of_container))
    if "resources" in status:
        parts = (given.actuated_of_pod, given.allocated_of_pod)
        most = _maximum(*parts) if given.is_infeasible else _maximum(level, *parts)
        level = {name: most.get(name, 0) for name in level}
    return _with_pod_level(_aggregate(spec, of), level, spec)


def decode_spec(spec: Reader) -> dict[str, int]:
    """Decode what a pod's spec requests.

    Containers and sidecars (init containers that restart always) run together; any other init container runs alone
    beside the sidecars before it. Pod-level requests and overhead are added on top of, or instead of, that. More than
    64 bits hold, as no node can have, is a problem.
    """
    containers = _aggregate(spec, of_container)
    total = _with_pod_level(containers, _of_level(spec, containers), spec)
    for resource, amount in total.items():
        if amount > quantities.INT64:
            spec.problem("containers", f"request more {resource} than any node can have; write a smaller amount")
    return total


def of_container(container: Reader) -> dict[str, int]:
    """Return requests; a limit without a request counts as the request, as the API server defaults it."""
    resources = container.child("resources")
    return nodes.decode_resources(resources, "limits") | nodes.decode_resources(resources, "requests")


def decode_claimed(spec: Reader, status: Reader) -> ClaimedResources:
    """Decode what the pod's claims have to do with the resources of its node."""
    # A pod without claims of its own may have one for extended resources.
    if not any(name in spec for name in ("resourceClaims", "resources")) and _STATUSES not in status:
        return NOTHING
    containers = _aggregate(spec, of_container) if "resources" in spec else {}
    level = _of_level(spec, containers)
    limits = nodes.decode_resources(spec.child("resources"), "limits")
    older = _stored_by_1_36(spec, containers)
    # Within the pod-level request of a resource, devices add nothing to it.
    covered = older if any("resources" in one for one in status.children(_STATUSES)) else level
    return ClaimedResources(
        users=tuple(_users(spec)),
        level=PodLevel(
            requests=_sorted(level), older=_sorted(older), limits=_sorted(limits), containers=_sorted(containers)
        )
        if level or limits
        else None,
        taken={name: amount for name, amount in rounded(_taken(status)).items() if name not in covered},
        by=tuple(one.text("resourceClaimName") for one in status.children(_STATUSES)),
    )


def rounded(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Return amounts in the unit of `Resources`, rounded up as kube-scheduler does."""
    return {name: ceiling(amount * 1000 if name == "cpu" else amount) for name, amount in amounts.items()}


def ceiling(amount: Fraction) -> int:
    """Return the least whole number that is not less."""
    return -(-amount.numerator // amount.denominator)


def _is_resized(spec: Reader, status: Reader) -> bool:
    """Return whether the status says anything else of resources than the spec; of most pods it does not.

    Both are compared as they are written: the API server and the kubelet write equal quantities alike.
    """
    wanted = {_name_of(one): _requests_in(one) for one in _objects(spec, "containers", "initContainers")}
    for one in _objects(status, "containerStatuses", "initContainerStatuses"):
        given = one.get("allocatedResources"), _requests_in(one)
        if any(each is not None and each != wanted.get(_name_of(one)) for each in given):
            return True
    return "resources" in status and status.child("resources").raw("requests") != spec.child("resources").raw(
        "requests"
    )


def _name_of(container: Mapping[str, Any]) -> str:
    """Return a container's name; what is no text is a problem that others report."""
    name = container.get("name")
    return name if isinstance(name, str) else ""


def _objects(part: Reader, *names: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON of containers, or of their statuses; what is no object is a problem that others report."""
    for name in names:
        listed = part.raw(name)
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping))


def _requests_in(container: Mapping[str, Any]) -> Any:
    resources = container.get("resources")
    return resources.get("requests") if isinstance(resources, Mapping) else None


class _Given:
    """What the kubelet has given, by the pod's status: allocated when it accepts a resize, actuated when it is done."""

    def __init__(self, status: Reader) -> None:
        named = (*status.children("containerStatuses"), *status.children("initContainerStatuses"))
        self._of_containers = {one.text("name"): one for one in named}
        self.is_infeasible = any(
            one.text("type") == "PodResizePending" and one.text("reason") == "Infeasible"
            for one in status.children("conditions")
        )
        level = status.child("resources")
        self.has_pod_level = "resources" in status
        self.allocated_of_pod = nodes.decode_resources(status, "allocatedResources")
        self.actuated_of_pod = nodes.decode_resources(level, "requests")

    def of_container(self, container: Reader) -> tuple[Resources, Resources] | None:
        """Return what is actuated and allocated by the status of a container; None if it does not say the former."""
        status = self._of_containers.get(container.text("name"))
        if status is None or "resources" not in status:
            return None
        actuated = nodes.decode_resources(status.child("resources"), "requests")
        return actuated, nodes.decode_resources(status, "allocatedResources")

    def allocated(self, container: Reader) -> Resources:
        status = self._of_containers.get(container.text("name"))
        if status is not None and "allocatedResources" in status:
            return nodes.decode_resources(status, "allocatedResources")
        return {} if self.is_infeasible else of_container(container)

    def actuated(self, container: Reader) -> Resources:
        status = self._of_containers.get(container.text("name"))
        if status is not None and "requests" in status.child("resources"):
            return nodes.decode_resources(status.child("resources"), "requests")
        return self.allocated(container)


def _of_level(spec: Reader, containers: Resources) -> Resources:
    """Return the pod-level requests, as the API server completes them (`DefaultPodLevelResources`, v1.37).

    containers: what containers request by their specs, which comes before a pod-level limit.
    """
    if "resources" not in spec:
        return {}
    limits, requests = (nodes.decode_resources(spec.child("resources"), name) for name in ("limits", "requests"))
    if not limits and not requests:
        return {}
    return {
        **{name: amount for name, amount in limits.items() if name not in containers},
        **{name: amount for name, amount in containers.items() if name in RESIZABLE or _is_huge(name)},
        **requests,
    }


def _stored_by_1_36(spec: Reader, containers: Resources) -> Resources:
    """Return the pod-level requests as 1.36 stores them, which completes them only where there are limits."""
    resources = spec.child("resources")
    if nodes.decode_resources(resources, "limits") or any(map(_is_huge, containers)):
        return _of_level(spec, containers)
    return nodes.decode_resources(resources, "requests")


def _is_huge(name: str) -> bool:
    return name.startswith("hugepages-")


def _with_pod_level(total: Resources, level: Resources, spec: Reader) -> dict[str, int]:
    """Return what containers request with pod-level requests in place of them, and the pod's own parts."""
    return _sum(({**total, **level}, nodes.decode_resources(spec, "overhead"), {"pods": 1}))


def _aggregate(spec: Reader, of: ContainerRequests) -> dict[str, int]:
    running = _sum(of(container) for container in spec.children("containers"))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.children("initContainers"):
        requests = of(container)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requests))
            requests = {}
        peak = _maximum(peak, _sum((sidecars, requests)))
    return _maximum(_sum((running, sidecars)), peak)


def _sum(parts: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _maximum(*parts: Resources) -> dict[str, int]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: max(part.get(name, 0) for part in parts) for name in names}


def _users(spec: Reader) -> Iterator[ClaimUser]:
    for part in ("initContainers", "containers"):
        for container in spec.children(part):
            resources = container.child("resources")
            claims = tuple(one.text("name") for one in resources.children("claims"))
            if claims:
                limits = nodes.decode_resources(resources, "limits") if part == "containers" else {}
                yield ClaimUser(claims=claims, limits=_sorted(limits))


def _taken(status: Reader) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for claim in status.children(_STATUSES):
        references = len(claim.texts("containers"))
        for one in claim.children("mapping"):
            _add(total, one.text("name"), _amount(one, "quantity"))
        for one in claim.children("overhead"):
            _add(total, one.text("name"), _amount(one, "perPod") + references * _amount(one, "perContainer"))
        resources = claim.child("resources")  # 1.36
        for name in claim.keys("resources"):
            _add(total, name, _amount(resources, name))
    return total


def _add(total: dict[str, Fraction], name: str, amount: Fraction) -> None:
    total[name] = total.get(name, Fraction(0)) + amount


def _amount(reader: Reader, name: str) -> Fraction:
    return reader.parsed(name, quantities.measure, Fraction(0)) if name in reader else Fraction(0)


def _sorted(resources: Resources) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(resources.items()))
