"""How a queue comes to nodes that are not there yet: `spec.provisioning` of a Queue."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from admission.api.values import durations
from admission.api.values.decoding import Reader

TIMEOUT = timedelta(minutes=30)


class ProvisioningMode(StrEnum):
    """Who is asked for nodes that a gang needs, and how."""

    NONE = "None"
    """Nobody: what is needed is said."""
    PODS = "Pods"
    """Autoscalers that start nodes for pending pods: the gates of all pods are opened towards the shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """How nodes are asked for. timeout: how long a gang may take to run from then on, in place of `startTimeout`."""

    mode: ProvisioningMode = ProvisioningMode.NONE
    timeout: timedelta = TIMEOUT


def decode(reader: Reader) -> Provisioning:
    """Decode `spec.provisioning`."""
    text = reader.text("mode", ProvisioningMode.NONE)
    if text not in tuple(ProvisioningMode):
        reader.problem("mode", f"{text!r} is not one of {', '.join(ProvisioningMode)}")
        text = ProvisioningMode.NONE
    return Provisioning(
        mode=ProvisioningMode(text), timeout=reader.parsed("timeout", durations.parse_positive, TIMEOUT)
    )
