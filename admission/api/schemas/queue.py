"""The schema of Queue: quotas, budgets, order and limits."""

from admission.api.muster.queues import (
    BorrowPolicy,
    ByShares,
    HoldAt,
    Lending,
    MemberKind,
    OnExhausted,
    Period,
    PlacementMode,
    QueueingStrategy,
    Reclaim,
    Scope,
    StopPolicy,
    UnmeteredClasses,
    WithinQueue,
)
from admission.api.schemas import fields, kubernetes, queue_options, queue_status
from admission.api.schemas.fields import Schema
from admission.api.values import time_zones

COLUMNS = (
    fields.column("Parent", "string", ".spec.parent", "The queue above; empty for a root."),
    fields.column(
        "Use", "string", ".status.summary.use", "Use and quota of the busiest meter, with the queues below it."
    ),
    fields.column("Borrowed", "string", ".status.summary.borrowed", "What the queue borrows of this meter."),
    fields.column("Waiting", "integer", ".status.summary.waiting", "Gangs that wait, with those of queues below it."),
    fields.column("Started", "integer", ".status.summary.started", "Gangs that were let in, with those below."),
    fields.column("Active", "string", ".status.conditions[?(@.type=='Active')].status", "Whether it can admit gangs."),
    fields.column("Strategy", "string", ".spec.queueingStrategy", "The order inside the queue.", wide=True),
    fields.column("Stop", "string", ".spec.stopPolicy", "Whether the queue is stopped.", wide=True),
    fields.column(
        "Reason",
        "string",
        ".status.conditions[?(@.type=='Active')].reason",
        "Why the queue is active or not; `kubectl describe` has the sentence.",
        wide=True,
    ),
    fields.age(),
)

SELECTABLE = (".spec.parent",)


def schema() -> Schema:
    """Return the schema of a whole Queue."""
    return fields.record(
        """A Queue is a team's entitlement to devices. Queues form a tree: a parent pools what its children do not use,
        and the children may borrow from the pool. Pods enter a leaf by the label muster.dev/queue.""",
        {"spec": _spec(), "status": queue_status.status()},
        required=("spec",),
        rules=(
            fields.rule(
                "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
                "a queue cannot be its own parent: name another queue, or leave parent out to make this one a root",
                fieldPath=".spec.parent",
            ),
            fields.rule(
                f"self.metadata.name.size() <= {fields.LONGEST_NAME}",
                f"a queue's name is the value of a label on pods: use at most {fields.LONGEST_NAME} characters",
            ),
        ),
    )


def _spec() -> Schema:
    return fields.record(
        "What the queue may use, whose pods may enter, and in which order they start.",
        _selection_fields() | _quota_fields() | _order_fields() | _start_fields() | _runtime_fields(),
        rules=(
            fields.rule(
                "!self.default || has(self.namespaceSelector)",
                "default: true needs a namespaceSelector that says for which namespaces; {} selects every namespace",
                fieldPath=".namespaceSelector",
            ),
            fields.rule(
                "!has(self.aliases) || has(self.namespaceSelector)",
                "aliases need a namespaceSelector that says for which namespaces; {} selects every namespace",
                fieldPath=".aliases",
            ),
            fields.rule(
                """!has(self.maxRuntime) || !has(self.defaultRuntime) ||
                duration(self.defaultRuntime) <= duration(self.maxRuntime)""",
                "defaultRuntime must not be longer than maxRuntime: shorten the one or raise the other",
                fieldPath=".defaultRuntime",
            ),
        ),
    )


def _selection_fields() -> dict[str, Schema]:
    return {
        "parent": fields.name(
            """The queue above this one; absent makes it the root of a tree. A parent that does not exist, a cycle, or
            more than 16 levels make the queue inactive. Example: research."""
        ),
        "namespaceSelector": kubernetes.label_selector(
            """The namespaces whose pods may enter, by the labels of the namespace. Absent: none, as for a queue that
            only pools for its children. Empty ({}): every namespace. Example: {matchLabels: {team: vision}}."""
        ),
        "default": fields.flag(
            """Whether pods of the selected namespaces that name no queue enter this one. If several queues say so for
            the same namespace, such pods have to name theirs. Default: false.""",
            default=False,
        ),
        "aliases": fields.sequence(
            """What the labels of Kueue, Volcano, YuniKorn and KAI call this queue: pods of the selected namespaces that
            name it so enter it without being relabelled. As soon as a queue that is open to a namespace has aliases,
            its pods that name another queue so are refused. Example: [user-queue, root.team-a].""",
            fields.text("A queue's name there.", minLength=1, maxLength=253),
            most=64,
            unique=True,
        ),
    }


def _quota_fields() -> dict[str, Schema]:
    return {
        "quotas": fields.sequence(
            """What the queue is entitled to, one entry per meter. A meter that neither the queue nor an ancestor
            mentions is 0, not unlimited.""",
            _quota(),
            most=64,
            keys=("meter",),
        ),
        "budgets": _budgets(),
        "preferences": queue_options.preferences(),
        "unmeteredClasses": fields.choice(
            """What happens to claims for a device class that no Meter counts. Refuse denies their pods at the door and
            names the class; Allow lets them use it for nothing. Default: Refuse.""",
            *UnmeteredClasses,
            default=UnmeteredClasses.REFUSE,
        ),
    }


def _order_fields() -> dict[str, Schema]:
    return {
        "queueingStrategy": fields.choice(
            """What happens behind a gang that does not fit now. BestEffortFIFO lets later gangs pass when they do not
            delay it; StrictFIFO lets nothing pass. Default: BestEffortFIFO.""",
            *QueueingStrategy,
            default=QueueingStrategy.BEST_EFFORT_FIFO,
        ),
        "fairSharing": _fair_sharing(),
        "preemption": _preemption(),
        "priorityClasses": fields.sequence(
            """Priorities for the order of gangs and for preemption alone. A pod names one in its label or annotation
            muster.dev/priority-class; it counts in place of the pod's own priority, by which kube-scheduler preempts as
            well.""",
            fields.record(
                "A priority class of this queue.",
                {
                    "name": fields.text("What pods name. Example: urgent.", minLength=1, maxLength=63),
                    "value": fields.integer("The priority: higher goes first. Example: 100.", minimum=-(2**31)),
                },
                required=("name", "value"),
            ),
            most=64,
            keys=("name",),
        ),
        "lending": fields.choice(
            """When other queues may borrow what this one does not use of its nominal quota. WhenIdle: not while a gang
            of this queue waits for quota, as far as the gang needs it, unless preemption.reclaim is Any, which takes it
            back, or the gang has a reserved start. Always: at any time. Default: WhenIdle.""",
            *Lending,
            default=Lending.WHEN_IDLE,
        ),
        "stopPolicy": fields.choice(
            """Stops the queue and the queues below it. Hold admits nothing more; HoldAndDrain evicts what was admitted
            as well, whole gangs, which wait again; None does neither. Default: None.""",
            *StopPolicy,
            default=StopPolicy.NONE,
        ),
    }


def _start_fields() -> dict[str, Schema]:
    return {
        "startTimeout": fields.duration(
            """How long an admitted gang may take until all its pods run. After that it is evicted as a whole, its quota
            is returned, and it waits again. Default: 5m.""",
            default="5m",
        ),
        "requeue": _requeue(),
        "maxWait": fields.duration(
            """How long a gang of the queue may wait once it is complete. The alert MusterGangWaitsLong tells of one
            that waits for longer, which goes on waiting. Default: 24h.""",
            default="24h",
        ),
        "idle": queue_options.idle(),
        "provisioning": queue_options.provisioning(),
        "placement": fields.choice(
            """Who picks the devices. Auto: Allocate where kube-scheduler is kept off the devices, else Pin. Allocate:
            Muster, for the whole gang at once. Pin: Muster picks the nodes, kube-scheduler the devices there. Count:
            quota only, nothing is planned. Default: Auto.""",
            *PlacementMode,
            default=PlacementMode.AUTO,
        ),
        "holdAt": fields.choice(
            """What waits until its gang may start. Pod: the pods, behind a scheduling gate. Workload: what makes them
            (a Job, a JobSet, a training job of Kubeflow, an MPIJob, a RayJob) is suspended, and no pod exists before;
            other pods wait as with Pod. Auto: as Workload while the queue is stopped or gangs of it wait for quota,
            devices or their turn, else as Pod. Counts for workloads that are created, or resumed, from then on.
            Default: Auto.""",
            *HoldAt,
            default=HoldAt.AUTO,
        ),
    }


def _runtime_fields() -> dict[str, Schema]:
    return {
        "maxRuntime": fields.duration(
            """The longest that a gang may run here, from when it was let in: then it is evicted as a whole, and waits
            again after a back-off. Budgets reckon with it where a gang states no muster.dev/runtime and there is no
            defaultRuntime. Absent: no limit. Example: 72h."""
        ),
        "defaultRuntime": fields.duration(
            """The runtime of gangs that state none; backfill and budgets reckon with it. Absent: maxRuntime; without
            that too, such a gang delays nobody only where it leaves alone what is reserved, and a budget reckons with
            one hour. Example: 4h."""
        ),
    }


def _quota() -> Schema:
    return fields.record(
        "The entitlement on one meter.",
        {
            "meter": fields.name("The Meter. Example: gpus."),
            "nominal": fields.amount(
                """What the queue may always use, as a quantity in the meter's base unit. What it leaves idle may be
                borrowed by other queues of its tree. Examples: 8, "640Gi"."""
            ),
            "borrowingLimit": fields.amount(
                """The most that the queue may use beyond nominal, when others of its tree leave it idle. Absent: no
                limit. "0": nothing. Example: 4."""
            ),
            "lendingLimit": fields.amount(
                """The most of nominal that others may borrow while the queue leaves it idle. Absent: all of it. "0":
                nothing, it stays reserved. Example: 2."""
            ),
        },
        required=("meter", "nominal"),
    )


def _budgets() -> Schema:
    return fields.sequence(
        """Meter-hours that the queue and those below it may spend over time, as the ledger counts them. Several budgets
        may limit one meter, for example a day and a month; a gang needs room in all of them, and in those of the queues
        above.""",
        _budget(),
        most=16,
        rules=(
            fields.rule(
                """self.all(a, self.exists_one(b, b.meter == a.meter && b.scope == a.scope &&
                b.onExhausted == a.onExhausted && (has(a.period) ?
                has(b.period) && b.period == a.period && b.timeZone == a.timeZone :
                !has(a.start) || !has(a.end) ||
                (has(b.start) && b.start == a.start && has(b.end) && b.end == a.end))))""",
                """two budgets of a meter have the same span, scope and onExhausted, so that only the smaller binds:
                keep one of them, or let the smaller one Warn and the larger one Hold""",
            ),
        ),
    )


def _budget() -> Schema:
    return fields.record(
        "Meter-hours that may be spent within a period that comes again, or once between start and end.",
        {
            "meter": fields.name("The Meter. Example: gpus."),
            "hours": fields.hours(
                """Meter-hours, as a quantity: 1000 on a meter of GPUs is one GPU for 1000 hours, or 100 GPUs for 10.
                Steps of 0.0025, which are 9 seconds. Examples: 5000, "0.5", "80Ti"."""
            ),
            "period": fields.choice(
                """The period after which the budget is full again, by the calendar: a Week begins on Monday, a Quarter
                in January, April, July and October. Either period, or start and end. Example: Month.""",
                *Period,
            ),
            "start": fields.time(
                """When a budget without a period begins, inclusive; before, it limits nothing. Example:
                2026-10-01T00:00:00Z."""
            ),
            "end": fields.time(
                """When a budget without a period ends, exclusive; from then on it limits nothing. Example:
                2027-04-01T00:00:00Z."""
            ),
            "timeZone": fields.text(
                """The IANA time zone whose midnight begins a period. Start and end carry their own. Default: UTC.
                Example: Europe/Berlin.""",
                default=time_zones.UTC,
                minLength=1,
                maxLength=time_zones.LONGEST,
                pattern=r"^[A-Za-z0-9_+/-]+$",
            ),
            "onExhausted": fields.choice(
                """What happens to a gang that the remaining budget cannot pay for. Hold keeps it waiting; Warn admits
                it and says so in a condition. Default: Hold.""",
                *OnExhausted,
                default=OnExhausted.HOLD,
            ),
            "scope": fields.choice(
                """Whose use the budget pays for. Cluster: that of this cluster. Global: that of the queues of this name
                in all clusters that share the ledger's database, from one balance. Default: Cluster.""",
                *Scope,
                default=Scope.CLUSTER,
            ),
        },
        required=("meter", "hours"),
        rules=(
            fields.rule(
                "has(self.period) ? !has(self.start) && !has(self.end) : has(self.start) && has(self.end)",
                "a budget has either a period or both start and end: remove the one or complete the other",
            ),
            fields.rule(
                "!has(self.start) || !has(self.end) || self.start < self.end",
                "end must be later than start",
                fieldPath=".end",
            ),
        ),
    )


def _fair_sharing() -> Schema:
    return fields.record(
        """How the queue ranks against those under the same parent when several have gangs that wait and borrow: the one
        goes first that borrows the smallest part of what the parent could lend, of the meter of which that is most, by
        weight. Queues within their quota come before them. Absent: the queue declares none; it has weight 1 where
        another one beside it does. As soon as one queue under a parent declares it, its siblings are ordered so, and
        priority counts inside each of them only.""",
        {
            "weight": fields.decimal(
                """The queue's importance: twice the weight is entitled to twice the loan. 0 comes after all others.
                Examples: "2", "0.5". Default: "1".""",
                default="1",
            ),
            "halfLife": fields.duration(
                """Shares by history: of all that is used and was used, not only of what is borrowed, with the time
                after which past use counts half. It holds for all queues under the parent as soon as one says it.
                Absent: what is borrowed now counts. Example: 168h, a week."""
            ),
            "within": _within(),
        },
    )


def _within() -> Schema:
    return fields.record(
        """How gangs of this very queue rank: those of the member first that uses the smallest part of what the queue
        can have, of the meter of which that is most, by weight; then by priority and wait. What the member's gangs
        ahead would take counts as well, so members take turns. Absent: by priority and wait alone.""",
        {
            "by": fields.choice(
                """Whose gangs are one member's. Namespace: those of one namespace. User: those of one creator, as the
                webhook records it. Label: those of namespaces with one value of a label.""",
                *MemberKind,
            ),
            "label": fields.text("The label of namespaces, for by: Label. Example: team.", minLength=1, maxLength=317),
            "halfLife": fields.duration(
                """The time after which past use counts half; what is used now counts beside it. Absent: what is used
                now alone counts. Example: 168h, a week."""
            ),
            "weights": fields.sequence(
                "Members of another weight than 1.",
                fields.record(
                    "The weight of a member.",
                    {
                        "name": fields.text(
                            "The namespace, the user, or the value of the label. Example: vision.",
                            minLength=1,
                            maxLength=253,
                        ),
                        "weight": fields.decimal(
                            """Twice the weight is entitled to twice the use; 0 comes after all others. Example: "2"."""
                        ),
                    },
                    required=("name", "weight"),
                ),
                most=256,
                keys=("name",),
            ),
        },
        required=("by",),
        rules=(
            fields.rule(
                f"(self.by == '{MemberKind.LABEL}') == has(self.label)",
                f"label goes together with by: {MemberKind.LABEL}: set both, or leave it out",
                fieldPath=".label",
            ),
        ),
    )


def _preemption() -> Schema:
    return fields.record(
        """Whether gangs that run may be evicted to make room. Only whole gangs are, the fewest and youngest that make
        the plan feasible, and only after the plan was proved without them.""",
        {
            "withinQueue": fields.choice(
                """Which gangs of this queue may be evicted for a gang of this queue. LowerPriority: those of lower
                priority. LowerOrNewerEqualPriority: also those of the same priority that were queued later. Default:
                Never.""",
                *WithinQueue,
                default=WithinQueue.NEVER,
            ),
            "reclaim": fields.choice(
                """Which gangs of queues that borrow from this one may be evicted to take its nominal quota back.
                LowerPriority: those of lower priority. Any: all of them. Default: Never.""",
                *Reclaim,
                default=Reclaim.NEVER,
            ),
            "byShares": fields.choice(
                """Which gangs of queues that borrow may be evicted for a gang with which this queue borrows less, by
                the shares of fairSharing where the paths of both queues meet. Of those that reclaim allows.
                LessThanOrEqualToFinalShare: where this side's share, with the gang, is at most theirs without the
                victims. LessThanInitialShare: also where it is less than theirs with the victim. Default: Never.""",
                *ByShares,
                default=ByShares.NEVER,
            ),
            "borrowWithinCohort": fields.record(
                """Which gangs of queues that borrow may be evicted also for a gang with which this queue would borrow
                itself. Of those that reclaim allows.""",
                {
                    "policy": fields.choice(
                        "LowerPriority: those of lower priority. Default: Never.",
                        *BorrowPolicy,
                        default=BorrowPolicy.NEVER,
                    ),
                    "maxPriorityThreshold": fields.integer(
                        "The highest priority of gangs that are evicted so. Absent: any lower one. Example: 100.",
                        minimum=-(2**31),
                    ),
                },
            ),
        },
        default={},
        rules=(
            fields.rule(
                """!has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never' ||
                self.reclaim != 'Never'""",
                "borrowWithinCohort needs a reclaim other than Never: set it, or leave borrowWithinCohort out",
                fieldPath=".borrowWithinCohort",
            ),
            fields.rule(
                "!has(self.byShares) || self.byShares == 'Never' || self.reclaim != 'Never'",
                "byShares needs a reclaim other than Never: set it, or leave byShares out",
                fieldPath=".byShares",
            ),
        ),
    )


def _requeue() -> Schema:
    return fields.record(
        "When a gang that did not start in time is tried again: after base, then twice as long each time, up to max.",
        {
            "base": fields.duration("The first wait. Default: 1m.", default="1m"),
            "max": fields.duration("The longest wait. Default: 1h.", default="1h"),
            "limit": fields.integer(
                "How often it is tried again before it is held for good. Absent: without end. Example: 5.", minimum=0
            ),
        },
        default={},
        rules=(
            fields.rule(
                # The API server validates the default {} before it sets the defaults inside.
                "!has(self.base) || !has(self.max) || duration(self.base) <= duration(self.max)",
                "base must not be longer than max: shorten the one or raise the other",
                fieldPath=".base",
            ),
        ),
    )
