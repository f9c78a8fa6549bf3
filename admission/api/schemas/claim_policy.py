"""The schema of ClaimPolicy: defaults of claims, templates, conversions, and rules on claims."""

from admission.api.schemas import fields, kubernetes
from admission.api.schemas.fields import Schema

COLUMNS = (
    fields.column("Order", "integer", ".spec.order", "Its place among the policies; the lowest comes first."),
    fields.column(
        "Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "Whether Muster applies the policy."
    ),
    fields.column(
        "Message", "string", ".status.conditions[?(@.type=='Ready')].message", "Why it is ready or not.", wide=True
    ),
    fields.age(),
)

GIVEN = ("deviceClassName", "count", "selectors", "tolerations", "capacity", "config", "labels")
"""The fields of an entry of `defaults`, of which each entry has at least one."""


def schema() -> Schema:
    """Return the schema of a whole ClaimPolicy."""
    return fields.record(
        """A ClaimPolicy says what claims get when their author is silent (defaults), provides claim templates for whole
        namespaces (templates), turns extended resources into claims (conversions), and says what claims may not ask
        (rules).""",
        {"spec": _spec(), "status": _status()},
        required=("spec",),
    )


def _spec() -> Schema:
    return fields.record(
        "Where the policy applies, and what it does there.",
        {
            "namespaceSelector": kubernetes.label_selector(
                """The namespaces where the policy applies, by the labels of the namespace. Absent or empty ({}): every
                namespace. Example: {matchLabels: {muster.dev/queued: "true"}}."""
            ),
            "queues": fields.sequence(
                """The queues to whose pods and claims the policy applies. Absent or empty: every queue. Example:
                [research-vision].""",
                fields.name("The name of a Queue."),
                most=256,
                unique=True,
            ),
            "order": fields.integer(
                """The policy's place among those that apply; the lowest comes first, and names decide between equals.
                The first that gives a default wins. Default: 0.""",
                minimum=-1_000_000,
                maximum=1_000_000,
                default=0,
            ),
            "defaults": fields.sequence(
                """What requests of claims and claim templates get on creation where their author wrote nothing. Nothing
                that the author wrote is changed. For each field, the first entry that matches wins.""",
                _default(),
                most=64,
            ),
            "templates": fields.sequence(
                """ResourceClaimTemplates that exist in every selected namespace, kept as written here. A pod uses one
                by name, or by the annotation muster.dev/claims.""",
                _template(),
                most=64,
                keys=("name",),
            ),
            "conversions": fields.sequence(
                """Extended resources that are turned into claims, so that manifests written for a device plugin work
                with DRA: nvidia.com/gpu: 8 becomes a request for 8 devices.""",
                _conversion(),
                most=32,
                keys=("extendedResource",),
            ),
            "variables": fields.sequence(
                """Values that conditions share, each read as variables.NAME by the expressions after it. Each is
                computed when it is first read, and once for a request.""",
                _variable(),
                most=64,
                keys=("name",),
            ),
            "rules": fields.sequence(
                "What must be true of every request of a claim, in the manner of ValidatingAdmissionPolicy.",
                _rule(),
                most=64,
            ),
        },
    )


def _default() -> Schema:
    return fields.record(
        "Defaults for the requests that match.",
        {
            "deviceClasses": fields.sequence(
                """The device classes of the requests that get the defaults; they may be aliases that do not exist.
                Absent or empty: every class. Example: [gpu].""",
                fields.object_name("The deviceClassName that a request states."),
                most=64,
                unique=True,
            ),
            "when": fields.cel(
                """A CEL expression that is true for the requests that get the defaults, over the same variables as
                rules. Absent: all of the classes. Example: claim.metadata.namespace == 'vision'."""
            ),
            "deviceClassName": fields.object_name(
                """The class that replaces an alias: a class that the request names and that deviceClasses lists.
                Example: gpu.example.com."""
            ),
            "count": fields.integer(
                """How many devices, for requests of which it is known that their author stated neither count nor
                allocationMode: Kubernetes fills in 1 first, so only kubectl apply lets that be known. Example: 4.""",
                minimum=1,
                maximum=32,
            ),
            "selectors": kubernetes.device_selectors("Conditions on devices, for requests that state none."),
            "tolerations": kubernetes.device_tolerations("Tolerations of device taints, for requests that state none."),
            "capacity": _capacity(),
            "config": kubernetes.device_config("Configuration of drivers, for claims that have none for the driver."),
            "labels": fields.mapping(
                "Labels of the claim or template, each where it is not there yet. Example: {cost-centre: r-17}.",
                fields.text("The label's value.", maxLength=63),
                most=32,
            ),
        },
        rules=(
            fields.rule(
                f"[{', '.join(f'has(self.{given})' for given in GIVEN)}].exists(given, given)",
                f"an entry without a default does nothing: give at least one of {', '.join(GIVEN)}",
            ),
            fields.rule(
                "!has(self.deviceClassName) || (has(self.deviceClasses) && self.deviceClasses.size() > 0)",
                "deviceClassName replaces an alias: name the aliases in deviceClasses",
                fieldPath=".deviceClasses",
            ),
        ),
    )


def _capacity() -> Schema:
    return fields.record(
        "How much of a shared device, for requests that do not say.",
        {
            "requests": fields.mapping(
                "Capacity name → quantity, each for requests that do not state it. Example: {memory: 20Gi}.",
                fields.text(
                    "A quantity. Example: 20Gi.",
                    maxLength=fields.LONGEST_AMOUNT,
                    pattern=fields.QUANTITY,
                ),
                most=32,
            )
        },
        required=("requests",),
    )


def _template() -> Schema:
    return fields.record(
        "One claim template.",
        {
            "name": fields.object_name("The name of the ResourceClaimTemplate in each namespace. Example: h100x8."),
            "spec": kubernetes.claim_spec(
                """What the claims ask for: a ResourceClaimSpec of resource.k8s.io/v1, the spec.spec of a
                ResourceClaimTemplate. Fields that are not described here are kept as they are written and judged by the
                API server when Muster creates the template, because that API grows with every release."""
            ),
        },
        required=("name", "spec"),
    )


def _conversion() -> Schema:
    return fields.record(
        "One extended resource that becomes a request of a claim.",
        {
            "extendedResource": fields.qualified_name(
                "The extended resource that containers ask for. Example: nvidia.com/gpu."
            ),
            "deviceClassName": fields.object_name("The class of the devices instead. Example: gpu.example.com."),
            "selectors": kubernetes.device_selectors("Conditions on the devices. Absent: all of the class."),
        },
        required=("extendedResource", "deviceClassName"),
    )


def _variable() -> Schema:
    return fields.record(
        "One value that conditions share.",
        {
            "name": fields.text(
                "The name by which it is read. Example: gpus is read as variables.gpus.",
                minLength=1,
                maxLength=63,
                pattern=fields.IDENTIFIER,
            ),
            "expression": fields.cel(
                """A CEL expression of any type, over the same names as rules and the variables before it. Example:
                claim.metadata.?labels[?'team'].orValue('none')."""
            ),
        },
        required=("name", "expression"),
    )


def _rule() -> Schema:
    return fields.record(
        "One condition on requests.",
        {
            "cel": fields.cel(
                """A CEL expression that is true for what is allowed, over request, claim, pod, namespaceObject, user,
                queue and variables. It is checked for each request of a claim. Example: request.exactly.count <= 8."""
            ),
            "message": fields.text(
                """What the author is told when the expression is false: say what to change. Example: ask for at most 8
                GPUs per claim.""",
                minLength=1,
                maxLength=1024,
            ),
            "messageExpression": fields.cel(
                """A CEL expression that writes the message, over the same names. Where it fails, or writes nothing or
                several lines, message is told. Example: 'at most 8 GPUs, not ' + string(request.exactly.count)."""
            ),
            "reason": fields.text(
                "Why, as one word for programs, in CamelCase. Default: PolicyViolation.",
                minLength=1,
                maxLength=128,
                pattern=fields.CAMEL_CASE,
                default="PolicyViolation",
            ),
            "action": fields.choice(
                """What happens when the expression is false. Deny refuses the object; Warn lets it in and warns its
                author; Audit lets it in and notes it in the audit log. Default: Deny.""",
                *("Deny", "Warn", "Audit"),
                default="Deny",
            ),
            "failurePolicy": fields.choice(
                """What becomes of the rule while cel does not compile, or where it cannot be evaluated, as in
                ValidatingAdmissionPolicy. Fail: it counts as false, so Deny refuses everything that it would be asked
                about; Ignore: it counts as true. Default: Fail.""",
                *("Fail", "Ignore"),
                default="Fail",
            ),
        },
        required=("cel", "message"),
    )


def _status() -> Schema:
    return fields.record(
        "Whether the policy works, as Muster last saw it. Written by Muster only.",
        {
            "observedGeneration": kubernetes.generation(),
            "conditions": kubernetes.conditions(
                "Ready: all of the policy is applied; when False, the message names the entry and what is wrong."
            ),
        },
    )
