"""ProvisioningRequests (autoscaling.x-k8s.io/v1): the capacity that Cluster Autoscaler is asked for, and its answers.

Source: cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go, and the FAQ of Cluster Autoscaler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import names
from admission.api.values.decoding import Json, Reader

GROUP = "autoscaling.x-k8s.io"
VERSION = "v1"
KIND = "ProvisioningRequest"
PLURAL = "provisioningrequests"

KEY = f"{KIND}.{GROUP}"
"""What `Snapshot.unwatched` calls the kind."""

MOST_POD_SETS = 32
"""The most sets of equal pods that one request may have."""

LONGEST_MESSAGE = 400
"""Characters that are kept of what an autoscaler says."""


class Answer(StrEnum):
    """The conditions that are read, each with the status True."""

    ACCEPTED = "Accepted"
    """The autoscaler works on it."""
    PROVISIONED = "Provisioned"
    """All of the capacity is there, or was started."""
    FAILED = "Failed"
    """The capacity cannot be had."""
    BOOKING_EXPIRED = "BookingExpired"
    """The capacity is no longer kept from others."""
    CAPACITY_REVOKED = "CapacityRevoked"
    """The capacity is being taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningRequest:
    """A ProvisioningRequest object. templates: the names of its PodTemplates.

    answers: what the autoscaler has said that holds, with its words. progress: what it says of `Provisioned` while that
    does not hold yet.
    """

    meta: Meta
    provisioning_class: str = ""
    templates: tuple[str, ...] = ()
    answers: Mapping[Answer, str] = field(default_factory=dict)
    progress: str = ""

    @property
    def is_ours(self) -> bool:
        """Return whether Muster made it."""
        return is_of_muster(self.meta)


def is_of_muster(one: Meta) -> bool:
    """Return whether Muster made a ProvisioningRequest, or a PodTemplate of one.

    The label alone says nothing: tools put it on what they manage, and others could.
    """
    return one.labels.get(names.MANAGED_BY) == names.FIELD_MANAGER and names.GANG in one.annotations


def decode(obj: Json) -> ProvisioningRequest:
    """Decode a ProvisioningRequest."""
    reader = Reader(obj)
    spec = reader.child("spec")
    answers: dict[Answer, str] = {}
    progress = ""
    for condition in reader.child("status").children("conditions"):
        kind, holds = condition.text("type"), condition.text("status") == "True"
        words = _words(condition.text("reason"), condition.text("message"))
        if holds and kind in tuple(Answer):
            answers[Answer(kind)] = words
        elif kind == Answer.PROVISIONED:
            progress = words
    result = ProvisioningRequest(
        meta=meta.decode(reader),
        provisioning_class=spec.text("provisioningClassName"),
        templates=tuple(one.child("podTemplateRef").text("name") for one in spec.children("podSets")),
        answers=answers,
        progress=progress,
    )
    reader.finish(KIND, result.meta.key)
    return result


def _words(reason: str, message: str) -> str:
    text = ": ".join(part for part in (reason, message) if part)
    text = text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"
    # Whoever may write the status of requests has words in logs and on terminals of others with this.
    return "".join(letter if letter.isprintable() else " " for letter in text)
