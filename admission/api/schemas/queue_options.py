"""The schemas of what a Queue may say beside quota and order: preferred devices, nodes to come, idle gangs."""

from admission.api.capacity.node_provision import LONGEST_PARAMETER, MOST_PARAMETERS, ProvisioningMode
from admission.api.device_use.idle import IdleAction
from admission.api.muster.preferences import MOST_KINDS, WhenCanBorrow
from admission.api.schemas import fields
from admission.api.schemas.fields import Schema


def preferences() -> Schema:
    """Return the schema of spec.preferences."""
    return fields.record(
        """In which order kinds of devices are tried for what a claim leaves open: a device class with devices of
        several kinds, or the alternatives of firstAvailable. All claims of a gang that leave it open get one kind: the
        first of which there is a plan and quota. Quota by kind is a Meter for each kind, with the same selector.
        Absent: any device of the classes will do. Does not count with placement: Count.""",
        {
            "kinds": fields.sequence(
                """The kinds, the preferred one first. Devices of their classes that are of no kind are not given to
                gangs of this queue.""",
                _kind(),
                most=MOST_KINDS,
                keys=("name",),
                minItems=1,
            ),
            "whenCanBorrow": fields.choice(
                """What happens where the gang fits a kind, but only if the queue borrows for it, of a meter that counts
                the kinds' classes. Borrow: it starts there (Kueue's MayStopSearch). TryNext: the other kinds are tried
                first; where none fits within the quota, the kind is taken with which the nearest lender suffices
                (Kueue's TryNextFlavor). Default: Borrow.""",
                *WhenCanBorrow,
                default=WhenCanBorrow.BORROW,
            ),
        },
        required=("kinds",),
    )


def _kind() -> Schema:
    return fields.record(
        "A kind of devices.",
        {
            "name": fields.text("What messages call it. Example: a100.", minLength=1, maxLength=63),
            "deviceClasses": fields.sequence(
                "The DeviceClasses whose requests it serves. Example: [gpu.example.com].",
                fields.object_name("The name of a DeviceClass. Example: gpu.example.com."),
                most=64,
                unique=True,
                minItems=1,
            ),
            "selector": fields.cel(
                """A CEL expression over `device`; only devices for which it is true are of the kind. Absent: all of the
                classes. Example: device.attributes['gpu.example.com'].model == 'A100'."""
            ),
        },
        required=("name", "deviceClasses"),
    )


def provisioning() -> Schema:
    """Return the schema of spec.provisioning."""
    return fields.record(
        "How the queue comes to nodes that are not there yet and that a NodeShape describes.",
        {
            "mode": fields.choice(
                """Who is asked for the nodes that a gang needs, once the queue has quota and budget for it. None:
                nobody, what is needed is said. Pods: autoscalers that start nodes for pending pods, as Karpenter and
                Cluster Autoscaler do. Quota is reserved, and the gates of all pods of the gang are opened towards the
                shapes. ProvisioningRequest: Cluster Autoscaler, by one ProvisioningRequest for each gang; the gates are
                opened when it says that the capacity is there. Default: None.""",
                *ProvisioningMode,
                default=ProvisioningMode.NONE,
            ),
            "timeout": fields.duration(
                """How long a gang for which nodes were asked may take until all its pods run, in place of startTimeout.
                After that it is evicted as a whole, its quota is returned, and it waits again. Default: 30m.""",
                default="30m",
            ),
            "class": fields.object_name(
                """The provisioningClassName of the ProvisioningRequests; required with that mode, and only with it.
                best-effort-atomic-scale-up.autoscaling.x-k8s.io starts nodes for the whole gang or none;
                check-capacity.autoscaling.x-k8s.io only asks whether there is room; clouds have more."""
            ),
            "parameters": fields.mapping(
                """The parameters of the ProvisioningRequests, by name, as their class documents them. Example:
                {ValidUntilSeconds: "1200"}.""",
                fields.text("A value, as text.", maxLength=LONGEST_PARAMETER),
                most=MOST_PARAMETERS,
            ),
        },
        rules=(
            fields.rule(
                """(has(self.mode) && self.mode == 'ProvisioningRequest') == has(self.class)""",
                """class and mode ProvisioningRequest go together: name the class of the requests, or choose another
                mode""",
                fieldPath=".class",
            ),
        ),
        default={},
    )


def idle() -> Schema:
    """Return the schema of spec.idle."""
    return fields.record(
        """When a gang of the queue that holds devices counts as idle, by what is recorded of their use
        (usage.prometheus): it gets the condition Idle and an Event, and the alert MusterGangsIdle tells of it. What was
        not measured counts as use. Absent: no gang does.""",
        {
            "belowPercent": fields.integer(
                """The devices of each claim have been in use for less than so many percent of each recorded time.
                Default: 5.""",
                minimum=1,
                maximum=100,
                default=5,
            ),
            "after": fields.duration(
                "For so long, of at most 168h. Whole recorded times count (usage.interval). Default: 2h.", default="2h"
            ),
            "action": fields.choice(
                """What else follows. Report: nothing. PreemptFirst: where gangs are evicted to make room, those that
                are idle go before others. Evict: it is evicted as a whole, and waits again after a back-off, as requeue
                says. Default: Report.""",
                *IdleAction,
                default=IdleAction.REPORT,
            ),
        },
        rules=(
            fields.rule(
                "!has(self.after) || duration(self.after) <= duration('168h')",
                "after must not be longer than 168h: shorten it",
                fieldPath=".after",
            ),
        ),
    )
