"""How a queue comes to nodes that are not there yet: `spec.provisioning` of a Queue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from admission.api.values import durations, formats
from admission.api.values.decoding import Reader

TIMEOUT = timedelta(minutes=30)

MOST_PARAMETERS = 100
LONGEST_PARAMETER = 255
"""The bounds of a ProvisioningRequest (autoscaling.x-k8s.io/v1)."""


class ProvisioningMode(StrEnum):
    """Who is asked for nodes that a gang needs, and how."""

    NONE = "None"
    """Nobody: what is needed is said."""
    PODS = "Pods"
    """Autoscalers that start nodes for pending pods: the gates of all pods are opened towards the shapes."""
    REQUEST = "ProvisioningRequest"
    """Cluster Autoscaler, by a ProvisioningRequest for each gang; the gates are opened when it is provisioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """How nodes are asked for. timeout: how long a gang may take to run from then on, in place of `startTimeout`.

    provisioning_class, parameters: of the ProvisioningRequests; empty in other modes.
    """

    mode: ProvisioningMode = ProvisioningMode.NONE
    timeout: timedelta = TIMEOUT
    provisioning_class: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


def decode(reader: Reader) -> Provisioning:
    """Decode `spec.provisioning`."""
    text = reader.text("mode", ProvisioningMode.NONE)
    if text not in tuple(ProvisioningMode):
        reader.problem("mode", f"{text!r} is not one of {', '.join(ProvisioningMode)}")
        text = ProvisioningMode.NONE
    mode, class_name, parameters = ProvisioningMode(text), reader.text("class"), reader.pairs("parameters")
    if mode is ProvisioningMode.REQUEST:
        _check_class(reader, class_name)
        _check_parameters(reader, parameters)
    else:
        for name in ("class", "parameters"):
            if name in reader and reader.raw(name):
                reader.problem(name, f"is only for mode {ProvisioningMode.REQUEST}; leave it out, or choose that mode")
        class_name, parameters = "", {}
    return Provisioning(
        mode=mode,
        timeout=reader.parsed("timeout", durations.parse_positive, TIMEOUT),
        provisioning_class=class_name,
        parameters=parameters,
    )


def _check_class(reader: Reader, name: str) -> None:
    if not name:
        reader.problem(
            "class",
            "is required with mode ProvisioningRequest: best-effort-atomic-scale-up.autoscaling.x-k8s.io,"
            " check-capacity.autoscaling.x-k8s.io, or one of your cloud",
        )
    elif message := formats.subdomain(name):
        reader.problem("class", message)


def _check_parameters(reader: Reader, parameters: Mapping[str, str]) -> None:
    if len(parameters) > MOST_PARAMETERS:
        reader.problem("parameters", f"has {len(parameters)} entries; a request may have {MOST_PARAMETERS}")
    for name, value in parameters.items():
        if len(value) > LONGEST_PARAMETER:
            reader.problem(f"parameters.{name}", f"has {len(value)} characters; it may have {LONGEST_PARAMETER}")
