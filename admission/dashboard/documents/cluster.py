"""The documents about the cluster: the overview, queues, gangs and devices."""

from collections.abc import Mapping, Sequence

from admission.api.kubernetes import meta
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.gangs import GangReport
from admission.api.muster.observed import ObservedGang, ObservedQueue
from admission.api.muster.status_reports import BudgetUse, MeterUse
from admission.dashboard import view_model
from admission.dashboard.devices.capacity import ClassCapacity
from admission.dashboard.documents.books import Use
from admission.dashboard.documents.encoding import Document, Listing, Record, Time, amounts
from admission.quota import budgets
from admission.scheduling import fragments
from admission.status.queue_sums import SubtreeSums


class Gang(Record, frozen=True, kw_only=True):
    """A gang. asks: what it has, or the least that it will cost while it waits, by meter. reason: why it waits.

    state: its phase, or NeverFits where waiting does not help. since: for this reason, or else in the queue.
    """

    namespace: str
    name: str
    queue: str
    state: str
    phase: str
    size: int
    pods: int
    priority: int
    asks: dict[str, str]
    position: int | None = None
    reason: str | None = None
    message: str = ""
    nodes: list[str]
    since: Time
    admitted_since: Time | None = None
    start_estimate: Time | None = None
    start_reason: str = ""


class PlannedClaim(Record, frozen=True, kw_only=True):
    """A claim of a planned pod, with its devices as driver/pool/device."""

    claim: str
    devices: list[str]


class PlannedPod(Record, frozen=True, kw_only=True):
    """A pod of a plan."""

    pod: str
    node: str
    claims: list[PlannedClaim]


class Amounts(Record, frozen=True, kw_only=True):
    """The use of one meter. borrowed and lent are the queue's own, also where the rest is summed over a subtree."""

    nominal: str
    reserved: str
    used: str
    borrowed: str
    lent: str
    pending: str


class Budget(Record, frozen=True, kw_only=True):
    """A budget in its present period, in meter-hours."""

    meter: str
    hours: str
    spent: str
    promised: str
    elsewhere: str
    left: str
    start: Time | None
    end: Time | None


class Queue(Record, frozen=True, kw_only=True):
    """A queue. level: of the tree, from 1. waiting, started, subtree: with the queues below it; meters: its own."""

    name: str
    parent: str | None
    level: int
    state: str
    waiting: int
    started: int
    busiest: str
    meters: dict[str, Amounts]
    subtree: dict[str, Amounts]
    budgets: list[Budget]


class Condition(Record, frozen=True, kw_only=True):
    """A condition of a queue."""

    type: str
    status: str
    reason: str
    message: str


class Capacity(Record, frozen=True, kw_only=True):
    """The devices of one DeviceClass. outside: held by pods outside every queue; these are among the used."""

    device_class: str
    devices: int
    used: int
    free: int
    closed: int
    outside: int


class Cause(Record, frozen=True, kw_only=True):
    """A reason why gangs wait, with how many, and the one that has waited longest (namespace/name)."""

    reason: str
    gangs: int
    longest: str


class Node(Record, frozen=True, kw_only=True):
    """A node, or "" for the devices that several nodes reach, with how many physical devices are free or held."""

    node: str
    drivers: list[str]
    devices: int
    held: int
    in_parts: int
    free: int
    closed: str


class HeldDevice(Record, frozen=True, kw_only=True):
    """A physical device or a part of it. state: free, held, or planned: granted and not allocated yet.

    gang, claim: who has it (namespace/name); empty where nobody has, or who asks may not see the namespace.
    """

    device: str
    part: str
    state: str
    gang: str
    claim: str


class MappedDevice(Record, frozen=True, kw_only=True):
    """A physical device. model, memory: as its driver says. queue: which has it; else state says how it is.

    state: held, free, closed, no queue (a claim of no gang has it), or another namespace, which who asks may not see.
    """

    node: str
    device: str
    driver: str
    model: str
    memory: str
    queue: str
    state: str


class Shape(Record, frozen=True, kw_only=True):
    """A NodeShape. most: how many nodes there may be, those that are up included; more: how many more may be asked for.

    expected: nodes that were asked for, for the gangs (namespace/name), hidden of which are in namespaces that who asks
    may not see. last_seen: when a node was last up, if none is; never_up: none has been yet. node_pool: of Karpenter.
    not_ready: why Muster does not plan with it. pool_trouble: why its NodePool starts no node. differs: where nodes are
    not what it says.
    """

    name: str
    up: int
    most: int
    more: int
    expected: int
    gangs: list[str]
    hidden: int
    last_seen: Time | None = None
    never_up: bool
    price_per_hour: str | None = None
    node_pool: str | None = None
    not_ready: str
    pool_trouble: str
    differs: str


class Overview(Document, frozen=True, kw_only=True):
    """The overview. states: gangs by state. waiting: the longest. troubles: by kind, why what is said may be old.

    last_day_use, last_day_waiting: device-seconds and gang-seconds of the last day by hour and queue; empty for who may
    not see all books.
    """

    capacity: list[Capacity]
    states: dict[str, int]
    causes: list[Cause]
    waiting: list[Gang]
    troubles: dict[str, str]
    last_day_use: list[Use]
    last_day_waiting: list[Use]


class QueueList(Listing, frozen=True, kw_only=True):
    """The tree of queues, from the top: each followed by those below it."""

    items: list[Queue]


class QueuePage(Document, frozen=True, kw_only=True):
    """One queue, and its first gangs. hidden: gangs of namespaces that who asks may not see."""

    queue: Queue
    waiting: list[Gang]
    started: list[Gang]
    conditions: list[Condition]
    hidden: int


class GangList(Listing, frozen=True, kw_only=True):
    """Gangs."""

    items: list[Gang]


class Pod(Record, frozen=True, kw_only=True):
    """A pod, in the words of `kubectl get pods`. devices: of the gang's plan. warning: the latest Event that warns."""

    name: str
    ready: str
    status: str
    restarts: str
    age: str
    node: str
    devices: list[str]
    warning: str


class Event(Record, frozen=True, kw_only=True):
    """An Event about the gang, its workload or one of its pods. at: when it was last seen; count: how often."""

    at: Time | None
    type: str
    reason: str
    kind: str
    name: str
    count: int
    source: str
    message: str


class GangPage(Document, frozen=True, kw_only=True):
    """One gang. details: the numbers behind its hold. advice: what would have to change. commands: for a shell.

    pods: one page of them (`page`, `size`), those that do not run first; pod_states: all of them, by status. events:
    the latest first. pods_note, events_note: why they are not all there, as for want of a right.
    """

    gang: Gang
    details: dict[str, str | list[str]]
    advice: str
    expected_end: Time | None
    workload: str
    plan: list[PlannedPod]
    commands: list[str]
    pods: list[Pod]
    pod_states: dict[str, int]
    pods_note: str
    events: list[Event]
    events_note: str


class NodeList(Listing, frozen=True, kw_only=True):
    """Nodes with devices, and the capacity of all of them by class."""

    items: list[Node]
    capacity: list[Capacity]


class ShapeList(Listing, frozen=True, kw_only=True):
    """The shapes of nodes that may still come."""

    items: list[Shape]


class FreeDevices(Record, frozen=True, kw_only=True):
    """A node with free devices. devices: all of the driver there. usable: how many of the free ones pods would take.

    closed: why no pod can start there; empty if pods can.
    """

    node: str
    driver: str
    free: int
    devices: int
    usable: int | None
    closed: str


class Move(Record, frozen=True, kw_only=True):
    """A running gang that could be elsewhere. starts: how many more gangs of the shape would start then."""

    gang: str
    devices: int
    source: list[str]
    target: list[str]
    starts: int


class WaitedShape(Record, frozen=True, kw_only=True):
    """Gangs of one shape that waited in a queue, for so many gang-seconds in all."""

    shape: str
    queue: str
    seconds: int


class GangCapacity(Listing, frozen=True, kw_only=True):
    """What stands free, and how many gangs of a shape would start. at_least: whether more than that were not tried.

    waited: for who may see all books. waited_note: why what waited cannot be read; empty if it can.
    """

    shape: str | None
    starts: int
    at_least: bool
    stopped: str
    items: list[FreeDevices]
    moves: list[Move]
    waited: list[WaitedShape]
    waited_note: str


class HeatMap(Document, frozen=True, kw_only=True):
    """All devices."""

    items: list[MappedDevice]


class NodePage(Document, frozen=True, kw_only=True):
    """The devices of one node."""

    node: str
    closed: str
    items: list[HeldDevice]


def gang(observed: ObservedGang) -> Gang:
    """Return a gang, as the visitor may read it."""
    report = observed.report
    held = report.hold or report.evicted
    return Gang(
        namespace=report.namespace,
        name=report.name,
        queue=report.queue,
        state=view_model.state(observed),
        phase=report.phase,
        size=report.size,
        pods=report.pods,
        priority=report.priority,
        asks=amounts(view_model.charge_or_needed(observed)),
        position=report.position,
        reason=str(held.reason) if held is not None else None,
        message=held.message if held is not None else "",
        nodes=sorted({str(pod.node) for pod in report.plan}),
        since=view_model.held_since(observed),
        admitted_since=observed.admitted_since,
        start_estimate=report.start_estimate,
        start_reason=report.start_reason,
    )


def plan(report: GangReport) -> list[PlannedPod]:
    """Return the plan of a gang."""
    return [
        PlannedPod(
            pod=pod.pod.partition("/")[2],
            node=pod.node,
            claims=[
                PlannedClaim(
                    claim=one.claim.partition("/")[2], devices=[_device(given.device) for given in one.devices]
                )
                for one in pod.claims
            ],
        )
        for pod in report.plan
    ]


def _device(device: DeviceId) -> str:
    return f"{device.driver}/{device.pool}/{device.device}"


def queue(observed: ObservedQueue, sums: SubtreeSums, *, level: int, state: str) -> Queue:
    """Return a queue with the sums over its subtree."""
    return Queue(
        name=observed.queue.name,
        parent=observed.queue.parent,
        level=level,
        state=state,
        waiting=sums.waiting,
        started=sums.started,
        busiest=sums.busiest,
        meters={meter: _amounts(use) for meter, use in sorted(observed.report.meters.items())},
        subtree={meter: _amounts(use) for meter, use in sorted(sums.uses.items())},
        budgets=list(map(_budget, observed.report.budgets)),
    )


def condition(observed: meta.Condition) -> Condition:
    """Return a condition of a queue, as the visitor may read it."""
    return Condition(type=observed.type, status=observed.status, reason=observed.reason, message=observed.message)


def _amounts(use: MeterUse) -> Amounts:
    return Amounts(**{name: str(getattr(use, name)) for name in Amounts.__struct_fields__})


def _budget(budget: BudgetUse) -> Budget:
    return Budget(
        meter=budget.meter,
        hours=budgets.hours(budget.limit),
        spent=budgets.hours(budget.spent),
        promised=budgets.hours(budget.promised),
        elsewhere=budgets.hours(budget.elsewhere),
        left=budgets.hours(budget.left),
        start=budget.start,
        end=budget.end,
    )


def capacity(classes: Sequence[ClassCapacity]) -> list[Capacity]:
    """Return the capacity of classes."""
    return [
        Capacity(
            device_class=one.name,
            devices=one.devices,
            used=one.used,
            free=one.free,
            closed=one.closed,
            outside=one.outside,
        )
        for one in classes
    ]


def free_devices(nodes: Sequence[fragments.FreeDevices], shape: str, closed: Mapping[str, str]) -> list[FreeDevices]:
    """Return nodes with free devices. shape: that of which gangs would start; empty without one. closed: by node."""
    return [
        FreeDevices(
            node=one.node,
            driver=one.driver,
            free=one.free,
            devices=one.total,
            usable=one.usable[shape] if shape else None,
            closed=closed[one.node],
        )
        for one in nodes
    ]


def moves(found: Sequence[fragments.Move]) -> list[Move]:
    """Return moves."""
    return [
        Move(gang=one.gang, devices=one.devices, source=[*one.source], target=[*one.target], starts=one.starts)
        for one in found
    ]
