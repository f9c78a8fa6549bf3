"""What gangs that wait ask for, as texts of their shapes, each read once: for how long each shape has waited."""

from collections.abc import Iterable, Iterator, Mapping

from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import GangShape, PodShape
from admission.api.muster.gangs import GangReport
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid
from admission.dra.requests.gang_request import PodDemand
from admission.scheduling.checks import demand
from admission.workloads.gangs import Group

NO_SHAPE = ""
"""Of gangs whose pods are not all there yet, or ask for what a shape does not say, as claims that others use, too."""

MOST_READ = 200
"""The most shapes that are read after a cycle, on the event loop; the others after the next one."""


class WaitingShapes:
    """The shapes of the gangs that wait. Only `update` changes them."""

    def __init__(self) -> None:
        self._known: dict[GangUid, tuple[tuple[int, int], str]] = {}
        """By gang, what of it was there (`_there`) and the text of the shape of its pods."""

    def update(
        self, waiting: Iterable[GangReport], groups: Mapping[GangUid, Group], snapshot: Snapshot
    ) -> Mapping[GangUid, str]:
        """Return the texts of the shapes of gangs, by their UID; of a gang that is new perhaps later."""
        found: dict[GangUid, tuple[tuple[int, int], str]] = {}
        left = MOST_READ
        for report in waiting:
            group, known = groups.get(report.uid), self._known.get(report.uid)
            if group is None:
                continue
            if known is None or known[0] != _there(group, known[1], snapshot):
                if not left:
                    continue
                left -= 1
                shape = shape_of(group, snapshot)
                text = shape.text if shape is not None else NO_SHAPE
                known = _there(group, text, snapshot), text
            found[report.uid] = known
        self._known = found
        return {uid: text for uid, (_, text) in found.items()}


def _there(group: Group, text: str, snapshot: Snapshot) -> tuple[int, int]:
    """Return a hash of which pods wait, and without a shape the number of their claims which may give them one.

    Other pods of a gang may have other claims. Kubernetes makes claims after the pods that name them.
    """
    pods = hash(frozenset(pod.meta.uid for pod in group.waiting))
    if text != NO_SHAPE:
        return pods, 0
    wanted = ((pod.meta.namespace, pod.claim_name(claim)) for pod in group.waiting for claim in pod.claims)
    claims = (snapshot.claims.get(f"{namespace}/{name}") for namespace, name in wanted if name)
    return pods, sum(claim is not None and claim.allocation is None for claim in claims)


def shape_of(group: Group, snapshot: Snapshot) -> GangShape | None:
    """Return the shape of the pods of a gang that wait; None if there is none, or not all of them are there."""
    if len(group.waiting) < group.still_needed:
        return None
    demands = demand.demands(group, snapshot)
    claims = [claim.meta.uid or claim.meta.key for one in demands for claim in one.claims]
    if len(set(claims)) < len(claims) or any(claim.allocation for one in demands for claim in one.claims):
        return None
    pods = [pod for one in demands for pod in _shapes(one)]
    return gang_shapes.of_pods(pods) if len(pods) == len(demands) else None


def _shapes(one: PodDemand) -> Iterator[PodShape]:
    """Yield the shape of a pod; none if not all of its claims are there."""
    claims = [claim.spec for claim in one.claims if not names.is_extended_claim(claim.meta.uid)]
    if len(claims) == len(one.pod.claims):
        yield PodShape(count=1, requests=gang_shapes.requested(one.pod.requests), claims=tuple(claims))
