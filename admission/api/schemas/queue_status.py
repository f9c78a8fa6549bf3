"""The schema of a Queue's status: conditions, use, budgets and gangs, as the controller reports them."""

from admission.api.schemas import fields, kubernetes, references
from admission.api.schemas.fields import Schema


def status() -> Schema:
    return fields.record(
        "What the queue uses, as Muster last saw it. Written by Muster only.",
        {
            "observedGeneration": kubernetes.generation(),
            "conditions": kubernetes.conditions(
                "Active: gangs can be admitted; when False, the reason says whether the queue is stopped, its parent "
                "is missing, or the tree has a cycle or is too deep. QuotaWithin: no more is used than the quotas "
                "allow. MetersKnown: every meter that the queue names exists. BudgetLeft: something is left of every "
                "budget. DevicesProtected: kube-scheduler is kept off the devices that Muster allocates. "
                "KubernetesKnown: False while the cluster's Kubernetes is newer or older than every known release. "
                "ProvisioningRequestsServed: False while the queue asks for nodes by them and they cannot be read."
            ),
            "meters": fields.sequence(
                "Use against quota, one entry per meter.", _meter_use(), most=128, keys=("meter",)
            ),
            "budgets": fields.sequence("The budgets and what was spent of them.", _budget_use(), most=16),
            "references": references.schema("conditions", detail="The type of the condition that has the phrase."),
            "summary": fields.record(
                "The queue with those below it, in short, for `kubectl get`.",
                {
                    "use": fields.text(
                        """What is used, of the nominal quota, of the meter of which the most is used of its quota:
                        the sums of the queue and all below it. Example: 6/8 gpus.""",
                        maxLength=256,
                    ),
                    "borrowed": fields.amount_seen("What the queue borrows of this meter."),
                    "waiting": _gang_count("that wait"),
                    "started": _gang_count("that were let in and hold something"),
                },
            ),
            "gangs": fields.record(
                "How many gangs of this queue are in each phase; finished ones are not counted.",
                {
                    "pending": _gang_count("that wait"),
                    "reserved": _gang_count("with a reservation in the ledger whose gates are not open yet"),
                    "admitted": _gang_count("whose gates are open and whose pods do not all run yet"),
                    "running": _gang_count("whose pods all run"),
                    "evicted": _gang_count("that were taken back and still hold devices"),
                },
            ),
        },
    )


def _meter_use() -> Schema:
    return fields.record(
        "Use of one meter by this queue itself, as quantities in the meter's base unit.",
        {
            "meter": fields.name("The Meter."),
            "nominal": fields.amount_seen("The entitlement, as the quota says."),
            "reserved": fields.amount_seen("Granted to gangs whose claims are not allocated yet."),
            "used": fields.amount_seen("Allocated to gangs."),
            "borrowed": fields.amount_seen("What the queue and those below it use beyond their quotas."),
            "lent": fields.amount_seen("The part of the quotas of the queue and those below it that other queues use."),
            "pending": fields.amount_seen("What the waiting gangs ask for, as far as it is known before planning."),
        },
        required=("meter",),
    )


def _budget_use() -> Schema:
    return fields.record(
        """One budget in its present period, in meter-hours: decimal, to four places, which tells any two numbers of
        meter-seconds apart.""",
        {
            "meter": fields.name("The Meter."),
            "hours": fields.hours_seen("The whole budget."),
            "spent": fields.hours_seen("What was used since start."),
            "promised": fields.hours_seen("What the gangs that were let in may still use before end."),
            "elsewhere": fields.hours_seen("What other clusters have spent and promised of a Global budget."),
            "left": fields.hours_seen("What hours has left over all of these; negative when it is overspent."),
            "period": fields.text("The kind of period; absent for a fixed start and end.", maxLength=16),
            "start": fields.time("When the present period began."),
            "end": fields.time("When it ends."),
            "scope": fields.text("Whose use it pays for, Cluster or Global.", maxLength=16),
            "onExhausted": fields.text("What happens when it is exhausted, Hold or Warn.", maxLength=16),
        },
        required=("meter",),
    )


def _gang_count(phase: str) -> Schema:
    return fields.integer(f"Gangs {phase}.", minimum=0)
