"""Schemas of the parts of Muster's objects that Kubernetes defines: label selectors, conditions, and parts of claims.

Claims (resource.k8s.io/v1) grow with every release of Kubernetes. So the parts that Muster copies from a policy into a
claim are described only where Muster reads them, and otherwise kept as written: the API server validates them when
Muster creates the claim, by the rules of its own version. A full schema here would drop fields that it does not know.
"""

from admission.api.schemas import fields
from admission.api.schemas.fields import Schema


def label_selector(description: str) -> Schema:
    """Return a metav1.LabelSelector."""
    labels = fields.mapping(
        "Labels that must all be there with these values. Example: {team: vision}.",
        fields.text("The value that the label must have.", maxLength=63, pattern=fields.LABEL_VALUE),
        most=64,
    )
    expressions = fields.sequence(
        "Conditions on labels that must all hold, next to matchLabels.", _label_expression(), most=64
    )
    return fields.record(
        description,
        {"matchLabels": labels, "matchExpressions": expressions},
    ) | {"x-kubernetes-map-type": "atomic"}


def _label_expression() -> Schema:
    return fields.record(
        "One condition on one label.",
        {
            "key": fields.qualified_name("The label's key. Example: kubernetes.io/metadata.name."),
            "operator": fields.choice(
                "How the label is compared: In and NotIn with the values; Exists and DoesNotExist without.",
                *("In", "NotIn", "Exists", "DoesNotExist"),
            ),
            "values": fields.sequence(
                "What In and NotIn compare with. Empty for Exists and DoesNotExist.",
                fields.text("A value of the label.", maxLength=63, pattern=fields.LABEL_VALUE),
                most=64,
            ),
        },
        required=("key", "operator"),
        rules=(
            fields.rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                "In and NotIn need at least one entry in values; Exists and DoesNotExist take none",
                fieldPath=".values",
            ),
        ),
    )


def conditions(*described: str) -> Schema:
    """Return the standard list of metav1.Condition. described: sentences on the types that appear."""
    condition = fields.record(
        "What is known about one side of the object's state.",
        {
            "type": fields.text("The side of the state that this is about, in CamelCase.", minLength=1, maxLength=316),
            "status": fields.choice("Whether it holds: True, False or Unknown.", "True", "False", "Unknown"),
            "reason": fields.text(
                "Why, as one word for programs, in CamelCase.",
                minLength=1,
                maxLength=1024,
                pattern=fields.CAMEL_CASE,
            ),
            "message": fields.text("Why, as a sentence for people.", maxLength=32768),
            "lastTransitionTime": fields.time("When status last changed."),
            "observedGeneration": generation("The metadata.generation of the object that this was said about."),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return fields.sequence(
        " ".join(("The object's state, one entry per type.", *described)), condition, most=16, keys=("type",)
    )


def generation(
    description: str = "The metadata.generation that this status was computed from; an older one means that Muster "
    "has not seen the latest change yet.",
) -> Schema:
    return fields.integer(description, format="int64", minimum=0)


def device_selectors(description: str) -> Schema:
    """Return selectors in the form of a claim's device request."""
    expression = fields.cel(
        "A CEL expression over `device` that is true for the devices wanted. Example: device.driver == "
        "'gpu.example.com' && device.attributes['gpu.example.com'].model == 'H100'."
    )
    selector = fields.record(
        "One condition on a device.",
        {"cel": fields.record("The condition in CEL.", {"expression": expression}, required=("expression",))},
        required=("cel",),
    )
    return fields.sequence(description, selector, most=32)


def device_tolerations(description: str) -> Schema:
    """Return tolerations in the form of a claim's device request."""
    toleration = fields.open_record(
        "One toleration. Fields that are not described here are kept as they are written.",
        {
            "key": fields.text("The taint's key; absent tolerates every key, with operator Exists.", maxLength=317),
            "operator": fields.choice("Equal compares the value, Exists does not. Default: Equal.", "Equal", "Exists"),
            "value": fields.text("The taint's value, with operator Equal.", maxLength=63),
            "effect": fields.text(
                "The effect that is tolerated, NoSchedule or NoExecute; absent tolerates every effect.", maxLength=63
            ),
            "tolerationSeconds": fields.integer(
                "How long a NoExecute taint is tolerated, in seconds; absent means for ever.", format="int64"
            ),
        },
    )
    return fields.sequence(description, toleration, most=16)


def device_config(description: str) -> Schema:
    """Return configuration for drivers in the form of a claim."""
    config = fields.open_record(
        "Configuration of one driver. Fields that are not described here are kept as they are written.",
        {
            "requests": fields.sequence(
                "The claim's requests that it is for; absent means all of them.",
                fields.text("A request's name, or request/subrequest.", maxLength=127),
                most=32,
            ),
            "opaque": fields.open_record(
                "Parameters that only the driver understands.",
                {
                    "driver": fields.object_name("The driver that gets the parameters. Example: gpu.example.com."),
                    "parameters": fields.open_record("An object of the driver's own API, kept as it is written.", {}),
                },
            ),
        },
    )
    return fields.sequence(description, config, most=32)


def claim_spec(description: str) -> Schema:
    """Return a ResourceClaimSpec: described where Muster reads it, otherwise kept as written."""
    devices = fields.open_record(
        "The devices that the claim asks for.",
        {
            "requests": fields.sequence("What is asked for; all of it is allocated together.", _request(), most=32),
            "constraints": fields.sequence(
                "What must hold for several devices at once, for example the same PCIe root.",
                fields.open_record(
                    "One constraint, as resource.k8s.io/v1 defines it.",
                    {
                        "matchAttribute": fields.qualified_name(
                            "An attribute that must have the same value on all devices. "
                            "Example: resource.kubernetes.io/pcieRoot."
                        )
                    },
                ),
                most=32,
            ),
            "config": device_config("Configuration that drivers get with the devices."),
        },
        required=("requests",),
    )
    return fields.open_record(description, {"devices": devices}, required=("devices",))


def _request() -> Schema:
    alternatives = fields.sequence(
        "Alternatives in order of preference; the first that can be had, and that the quota covers, is taken.",
        fields.open_record("One alternative.", _device_request() | {"name": _request_name("The alternative's name.")}),
        most=8,
    )
    return fields.open_record(
        "One request: either exactly or firstAvailable.",
        {
            "name": _request_name("The request's name, unique in the claim. Example: gpu."),
            "exactly": fields.open_record("Devices of one kind.", _device_request()),
            "firstAvailable": alternatives,
        },
        required=("name",),
        rules=(
            fields.rule(
                "!(has(self.exactly) && has(self.firstAvailable))",
                "a request has either exactly or firstAvailable: remove one of them",
            ),
        ),
    )


def _device_request() -> dict[str, Schema]:
    return {
        "deviceClassName": fields.object_name("The DeviceClass. Example: gpu.example.com."),
        "allocationMode": fields.choice(
            "ExactCount takes count devices, All takes every device that matches. Default: ExactCount.",
            *("ExactCount", "All"),
        ),
        "count": fields.integer("How many devices, with ExactCount. Default: 1.", minimum=1, maximum=32),
        "selectors": device_selectors("Conditions on the devices, which must all hold."),
        "tolerations": device_tolerations("Taints of devices that do not matter."),
    }


def _request_name(description: str) -> Schema:
    return fields.text(description, minLength=1, maxLength=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
