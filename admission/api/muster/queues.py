"""Queues: quotas, budgets, the namespaces that may enter, and the order in which gangs start."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from admission.api.capacity import node_provision
from admission.api.capacity.node_provision import Provisioning
from admission.api.device_use import idle
from admission.api.device_use.idle import IdlePolicy
from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.muster import preferences
from admission.api.muster.preferences import Preferences
from admission.api.values import durations, quantities, selectors, time_zones
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import MeterName, QueueName
from admission.api.values.selectors import LabelSelector

E = TypeVar("E", bound=StrEnum)


class QueueingStrategy(StrEnum):
    """Whether a head that cannot start blocks the gangs behind it."""

    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class PlacementMode(StrEnum):
    """Whether Muster or kube-scheduler picks the devices."""

    AUTO = "Auto"
    ALLOCATE = "Allocate"
    PIN = "Pin"
    COUNT = "Count"


class HoldAt(StrEnum):
    """How a gang is held until it may start."""

    AUTO = "Auto"
    """As WORKLOAD where gangs of its queue wait already, else as POD."""
    POD = "Pod"
    """Its pods exist and are gated."""
    WORKLOAD = "Workload"
    """Its workload is suspended, if its kind can be, and has no pods."""


class StopPolicy(StrEnum):
    """Whether the queue admits."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class UnmeteredClasses(StrEnum):
    """The treatment of claims of a class that no meter counts."""

    REFUSE = "Refuse"
    ALLOW = "Allow"


class Period(StrEnum):
    """The calendar period after which a budget is full again. A week begins on Monday, as in ISO 8601."""

    DAY = "Day"
    WEEK = "Week"
    MONTH = "Month"
    QUARTER = "Quarter"
    YEAR = "Year"


class OnExhausted(StrEnum):
    """The treatment of a gang whose cost exceeds the remaining budget."""

    HOLD = "Hold"
    WARN = "Warn"


class Scope(StrEnum):
    """The use that a budget limits. Not from Kueue, which has neither budgets nor quota across clusters."""

    CLUSTER = "Cluster"
    """The use of this cluster's queue."""
    GLOBAL = "Global"
    """The use of the queues of this name in all clusters that share the ledger's database: one balance for all."""


class WithinQueue(StrEnum):
    """Which gangs of a queue may be evicted for another gang of the same queue."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    """Also those of the same priority that have waited for less long, as kept in `queuedSince`."""


class Reclaim(StrEnum):
    """Which gangs of borrowing queues may be evicted for a gang whose queue reclaims its nominal quota."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class Lending(StrEnum):
    """When a queue lends what it does not use of its own quota."""

    WHEN_IDLE = "WhenIdle"
    """Not while a gang of it waits for that quota, unless it can take it back (`Reclaim.ANY`)."""
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A queue's entitlement to one meter. A limit of None is unlimited."""

    meter: MeterName
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The meter-seconds that a queue and its descendants may spend of a meter.

    Either a `period` of the calendar of `time_zone` (IANA), or a fixed window from `start`, inclusive, to `end`,
    exclusive; both in UTC and whole seconds.
    """

    meter: MeterName
    seconds: int
    period: Period | None = None
    start: datetime | None = None
    end: datetime | None = None
    time_zone: str = time_zones.UTC
    on_exhausted: OnExhausted = OnExhausted.HOLD
    scope: Scope = Scope.CLUSTER


class MemberKind(StrEnum):
    """What makes two gangs of a queue belong to one member of it."""

    NAMESPACE = "Namespace"
    USER = "User"
    """Who created the workload, as the webhook recorded it."""
    LABEL = "Label"
    """The value of a label of the namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The shares of the members of one queue. label: for `MemberKind.LABEL`. weights: by member; 1 for all others.

    half_life: of past use; 0 if only present use counts.
    """

    by: MemberKind
    label: str = ""
    weights: tuple[tuple[str, Fraction], ...] = ()
    half_life: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSharing:
    """A queue's fair-sharing settings. weight: 0 comes last. half_life: of past use; 0 if only present loans count.

    within: how its own gangs are ranked by what their members use; None by priority and wait alone.
    """

    weight: Fraction = Fraction(1)
    half_life: timedelta = timedelta(0)
    within: Within | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A priority for the queue's order and for preemption, which kube-scheduler does not read."""

    name: str
    value: int


class BorrowPolicy(StrEnum):
    """Which gangs of borrowing queues may be evicted for a gang with which its own queue borrows, too."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowWithinCohort:
    """What may be evicted to borrow, beside what may be to reclaim. max_priority_threshold: of the gangs evicted."""

    policy: BorrowPolicy = BorrowPolicy.NEVER
    max_priority_threshold: int | None = None


class ByShares(StrEnum):
    """Which gangs of borrowing queues may be evicted by shares: of the one that borrows, with the gang that asks.

    All shares are as they are once the gang has started; Kueue's `fairSharing.preemptionStrategies`.
    """

    NEVER = "Never"
    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """Where its share is at most that of the victim's queue."""
    INITIAL_SHARE = "LessThanInitialShare"
    """Also where it is less than what that share would be with the victim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Which gangs may be evicted, as a whole, to make room for a gang of this queue."""

    within_queue: WithinQueue = WithinQueue.NEVER
    reclaim: Reclaim = Reclaim.NEVER
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()
    by_shares: ByShares = ByShares.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Back-off of a gang that did not start: base x 2^(n-1), capped; no more tries after `limit`."""

    base: timedelta = timedelta(minutes=1)
    max: timedelta = timedelta(hours=1)
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A Queue object.

    namespaces: None for a queue that no pod enters directly (a parent). aliases: its names in other systems.
    fair_sharing: None if the queue declares no fair sharing. max_runtime and default_runtime: None if not set.
    preferences: None if any device of the classes will do. idle: None if no gang counts as idle.
    """

    meta: Meta
    parent: QueueName | None = None
    namespaces: LabelSelector | None = None
    default: bool = False
    aliases: frozenset[str] = frozenset()
    quotas: tuple[Quota, ...] = ()
    budgets: tuple[Budget, ...] = ()
    preferences: Preferences | None = None
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    fair_sharing: FairSharing | None = None
    preemption: Preemption = Preemption()
    lending: Lending = Lending.WHEN_IDLE
    priority_classes: tuple[PriorityClass, ...] = ()
    start_timeout: timedelta = timedelta(minutes=5)
    requeue: Requeue = Requeue()
    max_wait: timedelta = timedelta(hours=24)
    idle: IdlePolicy | None = None
    provisioning: Provisioning = field(default_factory=Provisioning)
    max_runtime: timedelta | None = None
    default_runtime: timedelta | None = None
    placement: PlacementMode = PlacementMode.AUTO
    hold_at: HoldAt = HoldAt.AUTO
    stop_policy: StopPolicy = StopPolicy.NONE
    unmetered: UnmeteredClasses = UnmeteredClasses.REFUSE

    @property
    def name(self) -> QueueName:
        return QueueName(self.meta.name)

    @property
    def meters(self) -> tuple[MeterName, ...]:
        """Return the meters that its quotas and budgets name, in order."""
        return tuple(sorted({*(quota.meter for quota in self.quotas), *(budget.meter for budget in self.budgets)}))

    def has_priority_class(self, name: str) -> bool:
        return any(one.name == name for one in self.priority_classes)


def decode(obj: Json) -> Queue:
    """Decode a Queue."""
    reader = Reader(obj)
    spec = reader.child("spec")
    longest, default = _runtimes(spec)
    result = Queue(
        meta=meta.decode(reader),
        parent=QueueName(spec.text("parent")) if "parent" in spec else None,
        namespaces=selectors.decode_labels(spec.child("namespaceSelector")) if "namespaceSelector" in spec else None,
        default=spec.flag("default"),
        aliases=frozenset(spec.texts("aliases")),
        quotas=_quotas(spec),
        budgets=_budgets(spec),
        preferences=preferences.decode(spec.child("preferences")) if "preferences" in spec else None,
        strategy=_choice(spec, "queueingStrategy", QueueingStrategy.BEST_EFFORT_FIFO),
        fair_sharing=_fair_sharing(spec.child("fairSharing")) if "fairSharing" in spec else None,
        preemption=_preemption(spec.child("preemption")),
        lending=_choice(spec, "lending", Lending.WHEN_IDLE),
        priority_classes=_priority_classes(spec),
        start_timeout=spec.parsed("startTimeout", durations.parse, timedelta(minutes=5)),
        requeue=_requeue(spec.child("requeue")),
        max_wait=spec.parsed("maxWait", durations.parse_positive, timedelta(hours=24)),
        idle=idle.decode(spec.child("idle")) if "idle" in spec else None,
        provisioning=node_provision.decode(spec.child("provisioning")),
        max_runtime=longest,
        default_runtime=default,
        placement=_choice(spec, "placement", PlacementMode.AUTO),
        hold_at=_choice(spec, "holdAt", HoldAt.AUTO),
        stop_policy=_choice(spec, "stopPolicy", StopPolicy.NONE),
        unmetered=_choice(spec, "unmeteredClasses", UnmeteredClasses.REFUSE),
    )
    reader.finish("Queue", result.meta.key)
    return result


def _quotas(spec: Reader) -> tuple[Quota, ...]:
    found: dict[str, Quota] = {}
    for reader in spec.children("quotas"):
        if "nominal" not in reader:
            reader.problem("nominal", "is required: how much the queue may use, such as 8; 0 if it only borrows")
        quota = Quota(
            meter=MeterName(reader.required("meter")),
            nominal=reader.parsed("nominal", quantities.parse_amount, 0),
            borrowing_limit=_limit(reader, "borrowingLimit"),
            lending_limit=_limit(reader, "lendingLimit"),
        )
        if quota.meter in found:
            reader.problem("meter", f"{quota.meter} is named twice; keep one entry per meter")
        found[quota.meter] = quota
    return tuple(found.values())


def _limit(reader: Reader, name: str) -> int | None:
    return reader.parsed(name, quantities.parse_amount, 0) if name in reader else None


def _budgets(spec: Reader) -> tuple[Budget, ...]:
    """Decode the budgets. Budgets of one meter and span must differ in scope or onExhausted."""
    found: list[Budget] = []
    for reader in spec.children("budgets"):
        budget = _budget(reader)
        if any(replace(other, seconds=budget.seconds) == budget for other in found):
            reader.problem(
                "meter",
                f"{budget.meter} has two budgets of the same span, scope and onExhausted, of which only the smaller"
                " could ever bind; keep one of them, or let the smaller one Warn and the larger one Hold",
            )
        found.append(budget)
    return tuple(found)


def _budget(reader: Reader) -> Budget:
    start, end = _moment(reader, "start"), _moment(reader, "end")
    periodic = "period" in reader
    if periodic == ("start" in reader or "end" in reader) or ("start" in reader) != ("end" in reader):
        reader.problem(
            "period", "a budget has either a period or both start and end; remove the one or complete the other"
        )
    elif start is not None and end is not None and end <= start:
        reader.problem("end", f"{reader.text('end')} is not later than start, {reader.text('start')}")
    return Budget(
        meter=MeterName(reader.required("meter")),
        seconds=_seconds(reader),
        period=_choice(reader, "period", Period.MONTH) if periodic else None,
        start=start,
        end=end,
        time_zone=_time_zone(reader),
        on_exhausted=_choice(reader, "onExhausted", OnExhausted.HOLD),
        scope=_choice(reader, "scope", Scope.CLUSTER),
    )


def _seconds(reader: Reader) -> int:
    if "hours" not in reader:
        reader.problem("hours", "is required: the meter-hours that may be spent, such as 5000")
    return reader.parsed("hours", quantities.parse_hours, 0)


def _moment(reader: Reader, name: str) -> datetime | None:
    """Decode a time, in UTC and cut to the second, since use is counted in whole seconds."""
    time = reader.time(name)
    if time is None:
        return None
    try:
        if time.utcoffset() is not None:
            return time.astimezone(UTC).replace(microsecond=0)
        reader.problem(name, "has no time zone; end it with Z for UTC, or with an offset such as +01:00")
    except OverflowError:
        reader.problem(name, "is outside of the years 1 to 9999")
    return None


def _time_zone(reader: Reader) -> str:
    name = reader.text("timeZone", time_zones.UTC)
    if time_zones.find(name) is not None:
        return name
    near = time_zones.near(name)
    fix = f"did you mean {' or '.join(near)}?" if near else "use an IANA name such as Europe/Berlin"
    reader.problem("timeZone", f"{name[: time_zones.LONGEST]!r} is not a known time zone; {fix}")
    return time_zones.UTC


def _fair_sharing(reader: Reader) -> FairSharing:
    return FairSharing(
        weight=reader.parsed("weight", quantities.parse_weight, Fraction(1)),
        half_life=reader.parsed("halfLife", durations.parse_positive, timedelta(0)),
        within=_within(reader.child("within")) if "within" in reader else None,
    )


def _within(reader: Reader) -> Within:
    if "by" not in reader:
        reader.problem("by", f"is required: one of {', '.join(MemberKind)}")
    by, label = _choice(reader, "by", MemberKind.NAMESPACE), reader.text("label")
    if (by is MemberKind.LABEL) != bool(label):
        reader.problem("label", f"goes together with by: {MemberKind.LABEL}; set both, or leave this out")
    weights: dict[str, Fraction] = {}
    for one in reader.children("weights"):
        name = one.required("name")
        if name in weights:
            one.problem("name", f"{name} is named twice; keep one entry per member")
        weights[name] = one.parsed("weight", quantities.parse_weight, Fraction(1))
    half_life = reader.parsed("halfLife", durations.parse_positive, timedelta(0))
    return Within(by=by, label=label, weights=tuple(weights.items()), half_life=half_life)


def _priority_classes(spec: Reader) -> tuple[PriorityClass, ...]:
    found: dict[str, PriorityClass] = {}
    for reader in spec.children("priorityClasses"):
        if "value" not in reader:
            reader.problem("value", "is required: the priority, such as 100; higher goes first")
        one = PriorityClass(name=reader.required("name"), value=reader.int32("value"))
        if one.name in found:
            reader.problem("name", f"{one.name} is named twice; keep one entry per class")
        found[one.name] = one
    return tuple(found.values())


def _preemption(reader: Reader) -> Preemption:
    by_shares = _choice(reader, "byShares", ByShares.NEVER)
    if by_shares is not ByShares.NEVER and reader.text("reclaim", Reclaim.NEVER) == Reclaim.NEVER:
        reader.problem("byShares", "needs a reclaim other than Never; set it, or leave this out")
    return Preemption(
        by_shares=by_shares,
        within_queue=_choice(reader, "withinQueue", WithinQueue.NEVER),
        reclaim=_choice(reader, "reclaim", Reclaim.NEVER),
        borrow_within_cohort=_borrow_within_cohort(reader),
    )


def _borrow_within_cohort(preemption: Reader) -> BorrowWithinCohort:
    reader = preemption.child("borrowWithinCohort")
    found = BorrowWithinCohort(
        policy=_choice(reader, "policy", BorrowPolicy.NEVER),
        max_priority_threshold=reader.int32("maxPriorityThreshold") if "maxPriorityThreshold" in reader else None,
    )
    if found.policy is not BorrowPolicy.NEVER and preemption.text("reclaim", Reclaim.NEVER) == Reclaim.NEVER:
        preemption.problem("borrowWithinCohort", "needs a reclaim other than Never; set it, or leave this out")
    return found


def _runtimes(spec: Reader) -> tuple[timedelta | None, timedelta | None]:
    """Decode maxRuntime and defaultRuntime."""
    longest = spec.parsed("maxRuntime", durations.parse_positive, None)
    default = spec.parsed("defaultRuntime", durations.parse_positive, None)
    if longest is not None and default is not None and default > longest:
        spec.problem("defaultRuntime", "is longer than maxRuntime; shorten the one or raise the other")
    return longest, default


def _requeue(reader: Reader) -> Requeue:
    return Requeue(
        base=reader.parsed("base", durations.parse, timedelta(minutes=1)),
        max=reader.parsed("max", durations.parse, timedelta(hours=1)),
        limit=reader.int32("limit") if "limit" in reader else None,
    )


def _choice(reader: Reader, name: str, default: E) -> E:
    kind = type(default)
    text = reader.text(name, default)
    try:
        return kind(text)
    except ValueError:
        reader.problem(name, f"{text!r} is not one of {', '.join(kind)}")
        return default
