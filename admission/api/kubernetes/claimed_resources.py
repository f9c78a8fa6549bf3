"""What a pod's claims have to do with the resources of its node (DRANodeAllocatableResources, alpha in 1.36 and 1.37).

Devices may take CPU, memory or huge pages of their node beside what pods request. The status of a scheduled pod says
how much; before that it follows from the devices, from how often containers name each claim, and from the resources of
the pod as a whole, which have to cover it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from admission.api.kubernetes import nodes
from admission.api.kubernetes.nodes import Resources
from admission.api.values import quantities
from admission.api.values.decoding import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUser:
    """A container that names claims. claims: the pod's own names of them, each as often as it is there.

    limits: of a container that is no init container.
    """

    claims: tuple[str, ...]
    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevel:
    """The resources that a pod has as a whole, which have to cover what devices take. containers: their requests."""

    requests: tuple[tuple[str, int], ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    containers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedResources:
    """All of it. taken: what the status says that devices take, beside the pod's requests. by: the claims of these."""

    users: tuple[ClaimUser, ...] = ()
    level: PodLevel | None = None
    taken: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()


NOTHING = ClaimedResources()


def decode(spec: Reader, status: Reader, level: Resources, containers: Resources) -> ClaimedResources:
    """Decode it. level: the pod-level requests as they are stored. containers: what containers request together."""
    if "resourceClaims" not in spec and "nodeAllocatableResourceClaimStatuses" not in status:
        return NOTHING
    limits = nodes.decode_resources(spec.child("resources"), "limits")
    return ClaimedResources(
        users=tuple(_users(spec)),
        level=PodLevel(requests=_sorted(level), limits=_sorted(limits), containers=_sorted(containers))
        if level or limits
        else None,
        # Within the pod-level request of a resource, devices add nothing to it.
        taken={name: amount for name, amount in rounded(_taken(status)).items() if name not in level},
        by=tuple(one.text("resourceClaimName") for one in status.children("nodeAllocatableResourceClaimStatuses")),
    )


def rounded(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Return amounts in the unit of `Resources`, rounded up as kube-scheduler does."""
    return {name: ceiling(amount * 1000 if name == "cpu" else amount) for name, amount in amounts.items()}


def ceiling(amount: Fraction) -> int:
    """Return the least whole number that is not less."""
    return -(-amount.numerator // amount.denominator)


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
    for claim in status.children("nodeAllocatableResourceClaimStatuses"):
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
