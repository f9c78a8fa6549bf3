"""The schema of Gang: the pods that must start together, with the reason for their hold or their plan."""

from enum import StrEnum

from admission.api.device_use.idle import IdleAction
from admission.api.muster.gang_requests import Action
from admission.api.muster.gangs import Phase
from admission.api.muster.queues import PlacementMode
from admission.api.schemas import fields, kubernetes, references
from admission.api.schemas.fields import Schema
from admission.api.values.reasons import EvictionReason, HoldReason

COLUMNS = (
    fields.column("Queue", "string", ".spec.queue", "The queue that it waits in."),
    fields.column("Size", "integer", ".spec.size", "How many pods it has."),
    fields.column("Phase", "string", ".status.phase", "How far it has come."),
    fields.column(
        "Reason",
        "string",
        ".status.summary.reason",
        "Why it waits; `kubectl describe` has the sentence and the numbers.",
    ),
    fields.column("Requests", "string", ".status.summary.requests", "What it asks for or has, by meter."),
    fields.column("Position", "integer", ".status.position", "Its place in the queue."),
    fields.column("Priority", "integer", ".spec.priority", "Its priority.", wide=True),
    fields.column("Placement", "string", ".status.placement", "Who picks its devices.", wide=True),
    fields.column("Evictions", "integer", ".status.evictions", "How often it was taken back.", wide=True),
    # Not of type date: kubectl shows dates as ages, and a future date as "<invalid>".
    fields.column("Start", "string", ".status.startEstimate", "When it may start.", wide=True),
    fields.age(),
)

SELECTABLE = (".spec.queue", ".status.phase")

LARGEST = 10_000
"""Pods in one gang."""


_USED = tuple(mode for mode in PlacementMode if mode is not PlacementMode.AUTO)


def schema() -> Schema:
    """Return the schema of a whole Gang."""
    return fields.record(
        """A Gang is the pods that must start together. Muster makes one for every group of pods that it recognises; one
        may also be written by hand, and pods join it by the label muster.dev/gang.""",
        {"spec": _spec(), "status": _status()},
        required=("spec",),
    )


def _spec() -> Schema:
    return fields.record(
        "Which pods, in which queue.",
        {
            "queue": fields.ruled(
                fields.name(
                    "The Queue that the gang waits in and is charged to. It cannot change. Example: research-vision."
                ),
                fields.rule(
                    "self == oldSelf", "a gang stays in its queue: delete it, and create it again in the other queue"
                ),
            ),
            "size": fields.integer(
                "How many pods the gang has when it is complete. Example: 4.", minimum=1, maximum=LARGEST
            ),
            "minCount": fields.integer(
                """How many pods are enough to start; the rest is added as it fits. Absent: all of them. Example: 2.""",
                minimum=1,
                maximum=LARGEST,
            ),
            "priority": fields.integer(
                "Its rank in the queue; the highest starts first, and the oldest among equals. Default: 0.", default=0
            ),
            "runtime": fields.duration(
                """How long the gang will run at most, for backfill and budgets. Absent: the queue's defaultRuntime.
                Example: 4h."""
            ),
            "placement": fields.choice(
                """Who picks the devices, as in the queue. Absent: as the queue says. Example: Pin.""",
                *PlacementMode,
            ),
            "topology": _topology(),
            "workload": _workload(),
            "request": _request(),
        },
        required=("queue", "size"),
        rules=(
            fields.rule(
                "!has(self.minCount) || self.minCount <= self.size",
                "minCount must not be more than size: lower the one or raise the other",
                fieldPath=".minCount",
            ),
        ),
    )


def _request() -> Schema:
    return fields.record(
        """Asks Muster to do something with the gang now; who may change Gangs may ask. Each request is answered once,
        in status.request. `muster gang evict`, `requeue` and `prioritize` write it.""",
        {
            "id": fields.text(
                "Tells the request from earlier ones: any other text than theirs.", minLength=1, maxLength=64
            ),
            "action": fields.choice(
                """What to do. Evict: take a gang that was let in back as a whole; it waits again, after a back-off.
                Requeue: forget the back-off of a gang that waits, and on which nodes it did not start, and try it now.
                Prioritize: give a gang that waits the priority class in priorityClass.""",
                *Action,
            ),
            "priorityClass": _priority_class("One of the queue's priorityClasses, for Prioritize. Example: urgent."),
            "by": fields.text(
                "Who asks: your own name, as the API server knows you.", minLength=1, maxLength=LONGEST_USER
            ),
            "reason": fields.text("Why, for those who ask later. Example: node gpu-7 is repaired.", maxLength=256),
        },
        required=("id", "action", "by"),
        rules=(
            fields.rule(
                "has(self.priorityClass) == (self.action == 'Prioritize')",
                "name a class of the queue in priorityClass for Prioritize, and for nothing else",
            ),
        ),
    )


def _priority_class(description: str) -> Schema:
    return fields.text(description, minLength=1, maxLength=63)


LONGEST_USER = 256


def _topology() -> Schema:
    label = "A label of nodes. Example: topology.kubernetes.io/rack."
    return fields.record(
        """Keeps the pods together: on nodes that have one value of a label, as those of a rack, a zone or an NVLink
        domain. Absent: as the pods say by muster.dev/topology, or anywhere.""",
        {
            "required": fields.qualified_name(f"The gang does not start unless one domain takes all of it. {label}"),
            "preferred": fields.qualified_name(
                f"One domain if one takes all of it, else anywhere, or anywhere in the one that is required. {label}"
            ),
            "subgroups": fields.record(
                """Keeps the pods of each subgroup together. A pod says by muster.dev/subgroup in which it is; else it
                is the Job of a JobSet, the replica type of a training job, and the like.""",
                {
                    "required": fields.qualified_name(
                        f"The gang does not start unless each subgroup finds a domain that takes all of it. {label}"
                    ),
                    "preferred": fields.qualified_name(f"The same, as far as all of them find one. {label}"),
                },
                rules=(
                    fields.rule("has(self.required) || has(self.preferred)", "name a label in required or preferred"),
                ),
            ),
        },
        rules=(
            fields.rule(
                "has(self.required) || has(self.preferred) || has(self.subgroups)",
                "name a label in required or preferred, or say what keeps subgroups together",
            ),
        ),
    )


def _domains() -> dict[str, Schema]:
    value = fields.text("A value of the label.", maxLength=63)
    return {
        "required": fields.text("The label of nodes, where being together is required.", maxLength=317),
        "preferred": fields.text("The label of nodes, where it is preferred.", maxLength=317),
        "domains": fields.sequence(
            """The values of the label where the pods are: one, unless being together was only preferred, or nodes were
            labelled anew. Of the label that is required, if there is one. Absent while the gang waits.""",
            value,
            most=LARGEST,
        ),
        "preferredDomains": fields.sequence(
            "The values of the label that is preferred, where another one is required.", value, most=LARGEST
        ),
    }


def _workload() -> Schema:
    return fields.record(
        "The object that makes the pods, in the gang's namespace. Muster fills it in when it recognises the gang.",
        {
            "apiVersion": fields.text("The object's API group and version. Example: batch/v1.", minLength=1),
            "kind": fields.text("The object's kind. Example: Job.", minLength=1, maxLength=63),
            "name": fields.object_name("The object's name. Example: train."),
            "uid": fields.text("The object's metadata.uid, which tells it from later ones of its name.", maxLength=64),
        },
        required=("apiVersion", "kind", "name"),
    )


def _status() -> Schema:
    return fields.record(
        "How far the gang has come, as Muster last saw it. Written by Muster only.",
        {
            "observedGeneration": kubernetes.generation(),
            "phase": fields.choice(
                """How far the gang has come. Pending: it waits and holds nothing. Reserved: its plan is granted and in
                the ledger. Admitted: its gates are open. Running: its pods run. Finished: its pods are done and its
                devices returned. Evicted: it is being taken back, to wait again.""",
                *Phase,
            ),
            "summary": _summary(),
            "conditions": kubernetes.conditions(
                "Admitted: the gates of all its pods are open. Running: all its pods run. Finished: all are done. "
                "NeverFits: it would not fit even if nothing else were in use, and why; absent otherwise."
            ),
            "pods": fields.integer("How many pods of the gang exist; Muster waits until they are size.", minimum=0),
            "expected": fields.integer(
                """How many pods its workload makes when it is resumed, where the queue holds workloads as a whole.
                Absent once they are there.""",
                minimum=1,
            ),
            "requests": fields.mapping(
                """The least that the gang will cost, as meter → quantity in the meter's base unit, as far as it is
                known before planning. Absent unless it waits. Example: {gpus: "8"}.""",
                fields.amount_seen("An amount of the meter."),
                most=128,
            ),
            "position": fields.integer(
                "Its place among the waiting gangs of its queue; 1 is next. Absent unless it waits.", minimum=1
            ),
            "hold": _hold(),
            "plan": fields.sequence(
                "Where each pod goes and which devices its claims get. Absent while it waits.",
                _planned_pod(),
                most=LARGEST,
            ),
            "charges": fields.mapping(
                'What the gang costs, as meter → quantity in the meter\'s base unit. Example: {gpus: "8"}.',
                fields.amount_seen("An amount of the meter."),
                most=128,
            ),
            "placement": fields.choice("Who picked the devices.", *_USED),
            "placementReason": fields.text("Why this placement was used, in words.", maxLength=1024),
            "placementReferences": references.schema("placementReason"),
            **_warnings(),
            "topology": _domain_report(),
            "idle": _idle(),
            "memory": _memory(),
            **_taken_back(),
            **_times(),
        },
    )


def _taken_back() -> dict[str, Schema]:
    return {
        "evictions": fields.integer(
            """How often in a row it was admitted and did not start, ran too long, or was taken back by request; its
            back-off grows with it.""",
            minimum=0,
        ),
        "evicted": _evicted(),
        "request": _answered(),
    }


def _summary() -> Schema:
    return fields.record(
        "The gang in short, for `kubectl get`.",
        {
            "reason": fields.text(
                "Why it waits: NeverFits where waiting does not help, else the reason of hold, or of evicted.",
                maxLength=64,
            ),
            "requests": fields.text(
                "What it asks for while it waits, or has, by meter. Example: 8 gpus.", maxLength=1024
            ),
        },
    )


def _warnings() -> dict[str, Schema]:
    return {
        "notSimulated": fields.sequence(
            """What kube-scheduler asks of its pods that Muster does not judge: the gang may be admitted and not
            start because of it.""",
            fields.text("A volume and its pod, with the filters that are about it.", maxLength=1024),
            most=16,
        ),
        "later": fields.sequence(
            """Why pods that its workload makes later never fit, where that is known: it may start, and they never
            will.""",
            fields.text("The roles of these pods in the workload, the reason and its sentence.", maxLength=1024),
            most=16,
        ),
    }


def _times() -> dict[str, Schema]:
    return {
        "startEstimate": fields.time(
            """When the gang is to start, by the runtimes of those that run: what it needs is reserved for it
            from then on. Only the first gang of a queue that waits for others has one. Absent: unknown."""
        ),
        "startReason": fields.text("Why then, or why that is not known, in words.", maxLength=1024),
        "startReferences": references.schema("startReason"),
        "queuedSince": fields.time("Since when the gang is complete and waits."),
        "nextTry": fields.time("When a gang that did not start in time is tried again."),
        "refused": fields.sequence(
            """Where kube-scheduler did not bind pods of earlier plans: pods like these are planned on other nodes until
            something there changes.""",
            fields.record(
                "A pod that was refused.",
                {
                    "pod": fields.text("The pod's name.", maxLength=253),
                    "node": fields.text("The node of its plan.", maxLength=253),
                    "shape": fields.text("A digest of what pods like it ask for.", maxLength=64),
                    "bound": fields.integer("How many pods like it were bound there.", minimum=0),
                    "message": fields.text("Why, in kube-scheduler's words.", maxLength=1024),
                    "at": fields.time("When the gang was taken back."),
                },
                required=("pod", "node", "shape", "at"),
            ),
            most=16,
        ),
    }


def _domain_report() -> Schema:
    return fields.record(
        "Where its pods are together. Absent where they may go anywhere.",
        {
            **_domains(),
            "subgroups": fields.sequence(
                "The same of the subgroups that are to be in one domain each.",
                fields.record(
                    "A subgroup.",
                    {"name": fields.text("The subgroup's name.", maxLength=253), **_domains()},
                    required=("name",),
                ),
                most=LARGEST,
            ),
        },
    )


def _reason(reasons: type[StrEnum]) -> Schema:
    # No enum: a newer Muster must be able to write its reason while older CRDs are installed.
    return fields.text(
        f"The reason as one word for programs, one of {', '.join(reasons)}.",
        minLength=1,
        maxLength=64,
        pattern=fields.CAMEL_CASE,
    )


def _hold() -> Schema:
    return fields.record(
        "Why the gang waits. Absent unless it waits.",
        {
            "reason": _reason(HoldReason),
            "message": fields.text("The reason as a sentence for people, with the numbers.", maxLength=4096),
            "details": fields.open_record(
                """The numbers and names behind the reason, as a map for programs. Its keys depend on the reason.
                Example: {meter: gpus, left: "2", needed: "8"}.""",
                {},
            ),
            "references": references.schema("message"),
            "since": fields.time("Since when the gang waits for this reason."),
        },
        required=("reason", "message"),
    )


def _evicted() -> Schema:
    return fields.record(
        "That the gang was let in and taken back as a whole, and why. Absent once it runs again.",
        {
            "reason": _reason(EvictionReason),
            "message": fields.text("The reason as a sentence for people.", maxLength=4096),
            "at": fields.time("When that was decided."),
            "madeRoomFor": fields.text(
                """The gang that gets its devices or quota, as namespace/name. Absent where that is a gang of another
                namespace.""",
                maxLength=317,
            ),
            "references": references.schema("message"),
        },
        required=("reason", "message", "at"),
    )


def _idle() -> Schema:
    return fields.record(
        "That its devices are idle, by spec.idle of its queue. Absent if they are not, or if that is not known.",
        {
            "since": fields.time("Since when they have been in so little use."),
            "belowPercent": fields.integer("In use for less than so many percent of the time.", minimum=1),
            "after": fields.text("For how long the queue allows that.", maxLength=32),
            "action": fields.choice("What else follows.", *IdleAction),
        },
        required=("since",),
    )


def _memory() -> Schema:
    return fields.record(
        """That more memory of a device of the gang was in use in the last recorded time than its claims asked for.
        Absent if it was not, or if that is not known.""",
        {
            "claim": fields.text("The claim of the gang that has the device.", maxLength=253),
            "sharers": fields.integer("How many claims had it.", minimum=1),
            "asked": fields.amount_seen("What they asked for together, in bytes."),
            "peak": fields.amount_seen("The most that was in use at once, in bytes."),
            "start": fields.time("When that time began."),
            "end": fields.time("When it ended."),
        },
        required=("claim", "asked", "peak", "start", "end"),
    )


def _answered() -> Schema:
    return fields.record(
        "The last request of spec.request that was answered.",
        {
            "id": fields.text("The id of the request.", maxLength=64),
            "action": fields.choice("What was asked.", *Action),
            "by": fields.text("Who asked.", maxLength=LONGEST_USER),
            "reason": fields.text("Why it was asked.", maxLength=256),
            "priorityClass": _priority_class(
                """The priority class that counts for the gang by this request or an earlier one. Absent: what its pods
                say counts."""
            ),
            "outcome": fields.text("What was done, or why nothing, as a sentence.", maxLength=1024),
            "at": fields.time("When it was answered."),
        },
        required=("id", "action", "by", "outcome", "at"),
    )


def _planned_pod() -> Schema:
    device = fields.record(
        "One device.",
        {
            "request": fields.text(
                "The claim's request that it serves, or request/subrequest for an alternative of it.", maxLength=127
            ),
            "driver": fields.text("The driver of the device. Example: gpu.example.com.", minLength=1),
            "pool": fields.text("The pool of the device. Example: node-1.", minLength=1),
            "device": fields.text("The name of the device in its pool. Example: gpu-0.", minLength=1),
        },
        required=("request", "driver", "pool", "device"),
    )
    claim = fields.record(
        "One claim of the pod.",
        {
            "claim": fields.text("The ResourceClaim's name.", minLength=1),
            "devices": fields.sequence("The devices that it gets.", device, most=32),
        },
        required=("claim",),
    )
    return fields.record(
        "The plan of one pod.",
        {
            "pod": fields.text("The pod's name.", minLength=1),
            "node": fields.text("The node that it goes to."),
            "claims": fields.sequence("The pod's claims.", claim, most=64),
        },
        required=("pod",),
    )
