"""Pods that ask for devices and enter no queue: refused where their namespace demands a queue, warned of elsewhere.

What such a pod takes counts against no quota and is in no ledger. Requests with admin access take nothing from anybody.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.api import suggestions
from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import Container
from admission.api.muster.meters import Meter
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.dra.requests import extended_resources
from admission.errors import RetryError
from admission.podpolicy import known_claims, queue_selection
from admission.podpolicy.pod_view import PodView

NOTE = "outside-queues"
"""Key of the audit annotation of such a pod; its value names what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a pod asks for. classes: of requests without admin access. plugins: resources of device plugins.

    has_unknown: whether it names a claim or template that does not exist yet.
    """

    classes: frozenset[str] = frozenset()
    plugins: frozenset[str] = frozenset()
    has_unknown: bool = False

    @property
    def any_device(self) -> bool:
        return bool(self.classes) or self.has_unknown

    def metered(self, meters: Mapping[str, Meter] | Iterable[Meter]) -> list[str]:
        """Return the classes and resources among them that a Meter counts, in order of names."""
        known = list(meters.values() if isinstance(meters, Mapping) else meters)
        counted = {name for meter in known for name in (*meter.classes, *(rate.name for rate in meter.resources))}
        return sorted(counted & (self.classes | self.plugins))


def asked(new_pod: PodView, snapshot: Snapshot) -> Asked:
    """Return what a new pod asks for."""
    claims, missing = known_claims.look_up(new_pod, snapshot)
    extended = extended_resources.spec_of(new_pod.containers, snapshot.classes)
    return Asked(
        classes=classes_of([*(claim.spec for claim in claims), *([extended] if extended else [])]),
        plugins=plugins_of(new_pod.containers),
        has_unknown=bool(missing),
    )


def plugins_of(containers: Iterable[Container]) -> frozenset[str]:
    """Return the extended resources that containers request: not CPU and the like, which are no devices."""
    return frozenset(
        name for container in containers for name, amount in container.requests if amount > 0 and "/" in name
    )


def classes_of(specs: Iterable[ClaimSpec]) -> frozenset[str]:
    """Return the device classes that claims request without admin access."""
    return frozenset(
        alternative.device_class
        for spec in specs
        for request in spec.requests
        for alternative in request.alternatives
        if not alternative.admin_access
    )


def denial(asked: Asked, namespace: str, snapshot: Snapshot) -> Denial | None:
    """Refuse a pod that asks for devices where its namespace demands a queue.

    Raises RetryError if the namespace has not been seen yet.
    """
    if not asked.any_device and not asked.metered(snapshot.meters.values()):
        return None
    known = snapshot.namespaces.get(namespace)
    if known is None:
        raise RetryError(f"namespace {namespace} has not been seen yet; try again in a moment")
    if not demands_queue(known):
        return None
    return Denial(
        DenyReason.QUEUE_REQUIRED,
        f"the pod asks for devices and enters no queue, which namespace {namespace} demands by its label"
        f" {names.REQUIRE_QUEUE}; {_how_to_enter(namespace, snapshot)}",
        {"namespace": namespace},
    )


def demands_queue(namespace: Namespace) -> bool:
    """Return whether pods with devices have to enter a queue in a namespace."""
    return namespace.labels.get(names.REQUIRE_QUEUE) == names.REQUIRED


def warnings(asked: Asked, namespace: str, snapshot: Snapshot) -> Iterator[str]:
    """Yield what the author of a pod outside queues should know, if a Meter counts what it asks for."""
    metered = asked.metered(snapshot.meters.values())
    if metered:
        yield f"muster: {describe(metered)}; {_how_to_enter(namespace, snapshot)}"


def describe(metered: Iterable[str]) -> str:
    """Return that a pod takes these classes and resources outside every queue."""
    return (
        f"the pod enters no queue and takes devices that Meters count ({', '.join(metered)}): they are on nobody's"
        " quota and in no ledger"
    )


def _how_to_enter(namespace: str, snapshot: Snapshot) -> str:
    """Return what the author may do: only queues that the namespace may enter are named."""
    open_queues = [queue.name for queue in queue_selection.open_to(namespace, snapshot)]
    if not open_queues:
        return f"no queue is open to namespace {namespace}; {queue_selection.HOW_TO_LIST}"
    return f"name a queue in label {names.QUEUE} (open to it: {suggestions.listed('', open_queues)})"
