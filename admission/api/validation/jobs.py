"""Validation of how a Job makes and ends its pods, beside what its pods have.

In the API server's words. Mirrors `pkg/apis/batch/validation` of Kubernetes (v1.36.3, v1.37.1), after the defaults of
`pkg/apis/batch/v1`; the rules of policies for failure and success are left to the API server.
"""

from collections.abc import Mapping

from admission.api.validation import fields
from admission.api.values import formats
from admission.api.values.decoding import Reader

MODES = ("NonIndexed", "Indexed")
MOST_INDEXED_PODS = 100_000
"""The largest parallelism of an Indexed Job."""

COUNTS = (
    "parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "ttlSecondsAfterFinished",
)  # fmt: skip
OF_INDEXES = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
"""Fields of Indexed Jobs alone."""


def validate(spec: Reader, *, has_defaults: bool = True, mode: str = "NonIndexed") -> int:
    """Judge a batch/v1 JobSpec; return the number of its indexes, 0 without any.

    has_defaults: whether one pod is the default of Jobs that count none, as in all but the template of a CronJob.
    mode: the completion mode of a Job that names none.
    """
    for field in COUNTS:
        fields.int32(spec, field, least=0, most=fields.LARGEST_INT32)
    mode = fields.supported(spec, "completionMode", MODES, mode)
    indexes = _indexed(spec, has_defaults=has_defaults) if mode == "Indexed" else 0
    if mode == "NonIndexed":
        for field in OF_INDEXES:
            if field in spec:
                spec.problem(field, "Invalid value: requires indexed completion mode")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        spec.problem("backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified")
    return indexes


def validate_name(metadata: Reader, indexes: int) -> None:
    """Judge the name of a Job, of which the hostnames of its pods are made."""
    name = metadata.text("name")
    if name and indexes > 0 and (message := formats.label(f"{name}-{indexes - 1}")):
        metadata.problem("name", f"Invalid value: will not be able to create pods with these hostnames: {message}")


def validate_restarts(spec: Reader, *, default: str = "Always") -> None:
    """Judge what a Job does with pods that end. spec: a JobSpec. default: of the restart policy."""
    of_pod = spec.child("template").child("spec")
    if not isinstance(spec.child("template").raw("spec") or {}, Mapping):
        # What is no object has no restart policy.
        return
    restart = of_pod.text("restartPolicy") or default
    if restart == "Always":
        of_pod.problem("restartPolicy", "Required value: valid values: 'OnFailure', 'Never'")
    elif "podFailurePolicy" in spec and restart == "OnFailure":
        message = "only 'Never' is supported when podFailurePolicy is specified"
        of_pod.problem("restartPolicy", f"Invalid value: {restart!r}: {message}")


def _indexed(spec: Reader, *, has_defaults: bool) -> int:
    counts_none = "completions" not in spec and not (has_defaults and "parallelism" not in spec)
    if counts_none:
        spec.problem("completions", "Required value: when completion mode is Indexed")
    if spec.int32("parallelism") > MOST_INDEXED_PODS:
        message = f"must be less than or equal to {MOST_INDEXED_PODS} when completion mode is Indexed"
        fields.invalid(spec, "parallelism", message)
    completions = 1 if "completions" not in spec else spec.int32("completions")
    if "maxFailedIndexes" in spec and spec.int32("maxFailedIndexes") > completions:
        fields.invalid(spec, "maxFailedIndexes", "must be less than or equal to completions")
    return 0 if counts_none else completions
