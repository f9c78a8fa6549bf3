"""The objects of a first gang for a cluster: Meters, the Queues of all and of a team, a sample Job with its template.

What exists already is left as it is. The sample is the first of a few that would start now by the same simulation as
`muster simulate`.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.kubernetes import meta
from admission.api.muster.meters import Meter
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names, quantities
from admission.api.values.decoding import Json
from admission.api.values.names import MeterName, QueueName
from admission.cli.init import device_groups
from admission.cli.init.device_groups import ClassDevices, DeviceGroup
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.selectors import Selectors
from admission.errors import FixError
from admission.podpolicy import queue_selection
from admission.simulation import expand, offline
from admission.simulation.offline import GangOutcome, Verdict

POOL = "cluster"
"""The Queue with all devices, from which the queues of teams borrow."""

JOB = "first-gang"
TEMPLATE = "one-device"
IMAGE = "busybox:1.37"
SIZES = (2, 1)
"""The sizes of the sample gang to try, in this order."""

MOST_CLASSES = 8
"""The most DeviceClasses that are tried for the sample."""

MOST_NAMED = 5
"""The most names in a message."""

KINDS = frozenset(
    {
        *("Node", "Namespace", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "ResourceClaim", "Pod"),
        *("ResourceClaimTemplate", "Job", "Queue", "Meter", "ClaimPolicy"),
    }
)
"""The kinds that a proposal depends on."""


class Document(NamedTuple):
    """An object to create, and what it is for."""

    comment: str
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The objects to create, in order. sample: the result of the sample Job if they were created now."""

    team: str
    queue: str
    documents: tuple[Document, ...]
    notes: tuple[str, ...]
    sample: GangOutcome


def propose(objects: Sequence[Json], *, team: str, image: str, profile: SchedulerProfile) -> Proposal:
    """Return the proposal for a cluster's objects. Raises FixError if it has no class with devices."""
    relevant = [body for body in objects if body.get("kind") in KINDS]
    present = {(str(body["kind"]), meta.name_in(body)) for body in relevant}
    known = [body for body in relevant if not _asks_for_devices(body)]
    snapshot = expand.expand(known, profile=profile).snapshot
    slices = device_groups.newest(snapshot.slices.values())
    classes = device_groups.classes_with_devices(snapshot.classes, slices, Selectors(profile.cel))
    if not classes:
        raise FixError(_nothing_to_share(snapshot))

    shared = _Shared(snapshot, device_groups.groups(classes, slices))
    queue = _team_queue(team, snapshot)
    base = _missing(
        [_namespace(team), *shared.documents, *([] if queue in snapshot.queues else [_queue(team)])], present
    )
    ranked = sorted(classes, key=lambda one: one.preference)[:MOST_CLASSES]
    samples = [_sample(team, queue, one, size, image, snapshot) for one in ranked for size in SIZES]
    outcome, sample = _first_that_starts(samples, [*known, *(one.body for one in base)], team, profile)
    return Proposal(
        team=team,
        queue=queue,
        documents=(*base, *_missing(sample, present)),
        notes=(
            *shared.notes,
            *(f"{' '.join(key)} exists and stays as it is" for key in map(_key, sample) if key in present),
            *_unselected(snapshot, classes),
        ),
        sample=outcome,
    )


def _missing(documents: Iterable[Document], present: Collection[tuple[str, str]]) -> list[Document]:
    return [one for one in documents if _key(one) not in present]


def _key(document: Document) -> tuple[str, str]:
    return str(document.body["kind"]), meta.name_in(document.body)


def _asks_for_devices(body: Json) -> bool:
    """Return whether an object asks for devices itself: Jobs and pods that wait, which are not the question here."""
    if body["kind"] == "Job":
        return True
    return body["kind"] == "Pod" and not (body.get("spec") or {}).get("nodeName")


# What all teams share.


class _Shared:
    """The Meters of the groups of devices, and the Queue that has all of them."""

    def __init__(self, snapshot: Snapshot, groups: Sequence[DeviceGroup]) -> None:
        self.documents: list[Document] = []
        self.notes: list[str] = []
        self._snapshot = snapshot
        self._taken = {str(name) for name in snapshot.meters}
        quotas: dict[str, int] = {}
        for group in groups:
            quotas |= self._meters(group)
        self._pool(quotas)

    def _meters(self, group: DeviceGroup) -> dict[str, int]:
        """Add the Meter of a group, for the classes that no Meter counts; return the amount of each of its Meters."""
        metered = {
            meter.name: meter for meter in self._snapshot.meters.values() if meter.classes.intersection(group.names)
        }
        found: dict[str, int] = {str(name): _amount(group, meter) for name, meter in metered.items()}
        left = [one for one in group.names if not any(one in meter.classes for meter in metered.values())]
        if not left:
            return found
        name = self._free_name(group)
        measure = {"counter": {"name": group.counter}} if group.counter else {"count": {}}
        unit = f"bytes of {group.counter}" if group.counter else "device"
        body = _muster("Meter", name, {"unit": unit, "sources": [{"deviceClasses": left, **measure}]})
        what = f"the {group.counter} that partitions draw" if group.counter else "devices"
        self.documents.append(
            Document(f"What is counted: {what}, of drivers {', '.join(sorted(group.drivers))}.", body)
        )
        return {**found, name: group.amount}

    def _free_name(self, group: DeviceGroup) -> str:
        """Return a name for a Meter that is not taken: the first part of a driver's name, else the whole name."""
        drivers = sorted(group.drivers)
        ends = (f"{drivers[0]}-{number}" for number in range(2, len(self._taken) + 3))
        name = next(name for name in (drivers[0].partition(".")[0], drivers[0], *ends) if name not in self._taken)
        self._taken.add(name)
        return name

    def _pool(self, quotas: Mapping[str, int]) -> None:
        queue = self._snapshot.queues.get(QueueName(POOL))
        if queue is not None:
            missing = sorted(set(quotas) - set(queue.meters))
            if missing:
                self.notes.append(f"Queue {POOL} exists and has no quota of {_listed(missing)}: add it there")
            return
        given = _nominal_of_all(self._snapshot.queues.values())
        left = {meter: max(amount - given.get(MeterName(meter), 0), 0) for meter, amount in quotas.items()}
        others = sorted({queue.name for queue in self._snapshot.queues.values() if queue.parent is None})
        if others:
            self.notes.append(f"queues {_listed(others)} have quotas of their own; Queue {POOL} has what they leave")
        spec = {"quotas": [{"meter": meter, "nominal": quantities.render(left[meter])} for meter in sorted(left)]}
        self.documents.append(
            Document(
                "All of it. No pod enters this queue; those of the teams borrow from it.", _muster("Queue", POOL, spec)
            )
        )


def _amount(group: DeviceGroup, meter: Meter) -> int:
    """Return what a Meter that exists counts in a group: exact for a count and a counter of all, else a lower bound."""
    measures = {source.name for source in meter.sources if source.name}
    return (
        group.amount if not measures or measures == {group.counter} else sum(len(one.listed) for one in group.classes)
    )


def _nominal_of_all(queues: Iterable[Queue]) -> dict[MeterName, int]:
    total: dict[MeterName, int] = {}
    for queue in queues:
        for quota in queue.quotas:
            total[quota.meter] = total.get(quota.meter, 0) + quota.nominal
    return total


# The team's own.


def _namespace(team: str) -> Document:
    return Document("The team's namespace.", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})


def _team_queue(team: str, snapshot: Snapshot) -> str:
    """Return the queue of the team: that of its name, or one that is its namespace's default already."""
    if QueueName(team) in snapshot.queues:
        return team
    defaults = [queue.name for queue in queue_selection.open_to(team, snapshot) if queue.default]
    return defaults[0] if defaults else team


def _queue(team: str) -> Document:
    spec = {
        "parent": POOL,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team}},
        "default": True,
        "fairSharing": {"weight": "1"},
    }
    comment = f"The team's queue, which pods of namespace {team} enter without naming it."
    return Document(comment, _muster("Queue", team, spec))


def _sample(  # noqa: PLR0917 - two names, what to ask for, and where
    team: str, queue: str, one: ClassDevices, size: int, image: str, snapshot: Snapshot
) -> tuple[Document, Document]:
    request = {"name": "device", "exactly": {"deviceClassName": one.name, "allocationMode": "ExactCount", "count": 1}}
    template: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": team},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "60"],
        "resources": {"claims": [{"name": "device"}]},
    }
    tolerations = [
        {"key": key, "operator": "Exists", "effect": effect}
        for key, effect in device_groups.shared_taints(one, snapshot.nodes)
    ]
    pod = {
        "restartPolicy": "Never",
        **({"tolerations": tolerations} if tolerations else {}),
        "resourceClaims": [{"name": "device", "resourceClaimTemplateName": TEMPLATE}],
        "containers": [container],
    }
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": JOB, "namespace": team},
        "spec": {
            "completions": size,
            "parallelism": size,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {names.QUEUE: queue}}, "spec": pod},
        },
    }
    gang = f"A gang of {size} pods, which start together" if size > 1 else "A gang of one pod"
    return Document(f"One device of class {one.name}.", template), Document(f"{gang}.", job)


def _muster(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


# What would come of it.


def _first_that_starts(
    samples: Iterable[tuple[Document, Document]], objects: Sequence[Json], team: str, profile: SchedulerProfile
) -> tuple[GangOutcome, tuple[Document, Document]]:
    """Return the first sample that would start now, else the first one, with its result."""
    tried = []
    for sample in samples:
        outcome = _outcome([*objects, *(one.body for one in sample)], team, profile)
        if outcome.verdict is Verdict.ADMITTED:
            return outcome, sample
        tried.append((outcome, sample))
    return tried[0]


def _outcome(objects: Sequence[Json], team: str, profile: SchedulerProfile) -> GangOutcome:
    """Return the simulated result of the sample Job."""
    cluster_state = expand.expand(objects, profile=profile)
    bad = [error for index, error in cluster_state.problems if objects[index].get("kind") in ("Job", "Queue", "Meter")]
    outcome = asyncio.run(offline.simulate(cluster_state))
    found = next((gang for gang in outcome.gangs if (gang.namespace, gang.name) == (team, JOB)), None)
    if found is None:
        raise FixError("; ".join(map(str, bad)) or f"the pods of Job {team}/{JOB} would enter no queue")
    return found


def _nothing_to_share(snapshot: Snapshot) -> str:
    drivers = sorted({one.driver for one in snapshot.slices.values()})
    if not drivers:
        return (
            "there is no ResourceSlice, so nothing is known of any device: install the DRA driver of your devices,"
            " see that its pods run, and try again (`kubectl get resourceslices`)"
        )
    if not any(one.devices for one in snapshot.slices.values()):
        return (
            f"the ResourceSlices of {_listed(drivers)} list no device: the drivers have found none on their nodes; see"
            " the logs of their pods, and try again (`kubectl get resourceslices`)"
        )
    example = f"device.driver == '{drivers[0]}'"
    if not snapshot.classes:
        return (
            f"there is no DeviceClass, by which claims ask for the devices of {_listed(drivers)}: drivers mostly bring"
            f' theirs; else create one with the selector {{cel: {{expression: "{example}"}}}}'
        )
    return (
        f"no DeviceClass ({_listed(sorted(snapshot.classes))}) selects a device of the drivers {_listed(drivers)}:"
        f' correct the selectors, or create a DeviceClass with the selector {{cel: {{expression: "{example}"}}}}'
    )


def _unselected(snapshot: Snapshot, classes: Iterable[ClassDevices]) -> Iterator[str]:
    drivers = device_groups.unselected_drivers(snapshot, classes)
    if drivers:
        yield f"no DeviceClass selects a device of the drivers {_listed(drivers)}, so nobody can ask for them"


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{', '.join(found[:MOST_NAMED])}{more}"
