"""Validation of a container, of every kind, apart from its resources and volumes.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), validateContainerCommon,
after the defaults of `pkg/apis/core/v1`.
"""

from admission.api.validation import fields
from admission.api.validation.pods import environment, handlers, security
from admission.api.values import formats
from admission.api.values.decoding import Reader

RESTARTS = ("Always", "Never", "OnFailure")
PROTOCOLS = ("SCTP", "TCP", "UDP")
LARGEST_PORT = 65535
ONLY_OF_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
"""Fields of containers that an init container may have only when it keeps running."""
MOST_RULES = 20
MOST_EXIT_CODES = 255
RESIZED = ("cpu", "memory")
RESIZES = ("NotRequired", "RestartContainer")


def validate(container: Reader, spec: Reader) -> None:
    """Judge what containers of all kinds have. spec: of the pod."""
    fields.text(container, "name", formats.label)
    image = fields.needed(container, "image")
    if image != image.strip():
        fields.invalid(container, "image", "must not have leading or trailing whitespace")
    if "restartPolicy" in container:
        fields.supported(container, "restartPolicy", RESTARTS)
    for field, known in (
        ("imagePullPolicy", ("Always", "IfNotPresent", "Never")),
        ("terminationMessagePolicy", ("FallbackToLogsOnError", "File")),
    ):
        if container.text(field):
            fields.supported(container, field, known)
    _ports(container)
    environment.validate(container)
    security.validate(container, host_users=spec.flag("hostUsers", default=True))
    _resizes(container, spec)
    _restart_rules(container)


def validate_handlers(container: Reader, spec: Reader, *, is_init: bool) -> None:
    """Judge the probes and handlers of a container, which only those have that keep running. spec: of the pod."""
    if is_init and container.text("restartPolicy") != "Always":
        for field in ONLY_OF_SIDECARS:
            if field in container:
                container.problem(field, "Forbidden: may not be set for init containers without restartPolicy=Always")
        for at, policy in enumerate(container.children("resizePolicy")):
            if policy.text("restartPolicy") == "RestartContainer":
                why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                container.problem(f"resizePolicy[{at}].restartPolicy", f"Invalid value: {why}")
        return
    grace = spec.integer("terminationGracePeriodSeconds", handlers.GRACE)
    # The API server makes a second of less than nothing.
    handlers.validate(container, grace if grace >= 0 else 1)


def _ports(container: Reader) -> None:
    names: set[str] = set()
    for port in container.children("ports"):
        if "containerPort" not in port or port.raw("containerPort") == 0:
            port.problem("containerPort", "Required value")
        fields.int32(port, "containerPort", least=0, most=LARGEST_PORT)
        fields.int32(port, "hostPort", least=0, most=LARGEST_PORT)
        if port.text("protocol"):
            fields.supported(port, "protocol", PROTOCOLS)
        name = port.text("name")
        if name and (message := formats.port_name(name)):
            port.problem("name", f"Invalid value: {message}")
        elif name in names:
            port.problem("name", f"Duplicate value: {name!r}")
        names.update({name} - {""})


def _resizes(container: Reader, spec: Reader) -> None:
    seen: set[str] = set()
    for policy in container.children("resizePolicy"):
        name, restart = fields.needed(policy, "resourceName"), fields.needed(policy, "restartPolicy")
        if name:
            fields.supported(policy, "resourceName", RESIZED)
        if name in seen:
            policy.problem("resourceName", f"Duplicate value: {name!r}")
        if restart:
            fields.supported(policy, "restartPolicy", RESIZES)
        if restart != "NotRequired" and spec.text("restartPolicy") == "Never":
            fields.invalid(policy, "restartPolicy", "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
        seen.add(name)


def _restart_rules(container: Reader) -> None:
    rules = list(container.children("restartPolicyRules"))
    if rules and "restartPolicy" not in container:
        why = "must specify restartPolicy when restart rules are used"
        container.problem("restartPolicy", f"Required value: {why}")
    if len(rules) > MOST_RULES:
        container.problem("restartPolicyRules", f"Too many: {len(rules)}: must have at most {MOST_RULES} items")
    for rule in rules:
        if rule.text("action") not in ("Restart", "RestartAllContainers"):
            known = ("Restart", "RestartAllContainers")
            rule.problem("action", fields.unsupported(rule.text("action"), known))
        codes = rule.child("exitCodes")
        if "exitCodes" not in rule:
            rule.problem("exitCodes", "Required value: must be specified")
        elif codes.text("operator") not in ("In", "NotIn"):
            codes.problem("operator", fields.unsupported(codes.text("operator"), ("In", "NotIn")))
        values = codes.raw("values")
        if isinstance(values, list) and len(values) > MOST_EXIT_CODES:
            codes.problem("values", f"Too many: {len(values)}: must have at most {MOST_EXIT_CODES} items")
