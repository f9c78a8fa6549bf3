"""Validation of how a Job makes and ends its pods, beside what its pods have.

In the API server's words. Mirrors `pkg/apis/batch/validation` of Kubernetes (v1.36.3, v1.37.1), after the defaults of
`pkg/apis/batch/v1`.
"""

from collections.abc import Mapping

from admission.api.validation import fields, job_policies
from admission.api.values import formats
from admission.api.values.decoding import Reader

MODES = ("NonIndexed", "Indexed")
MOST_INDEXED_PODS = 100_000
"""The largest parallelism of an Indexed Job, and the most failed indexes."""
MANY_INDEXES, MOST_OF_MANY = 100_000, 10_000
"""From which completions on each index with tries of its own has narrower limits, and these."""

COUNTS = (
    "parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "ttlSecondsAfterFinished",
)  # fmt: skip
LONGEST_MANAGER = 63
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
    fields.not_negative(spec, "activeDeadlineSeconds")
    if "managedBy" in spec:
        _managed_by(spec)
    job_policies.validate(spec, indexes=indexes if mode == "Indexed" and indexes else None)
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
    _many(spec, completions)
    return 0 if counts_none else completions


def _many(spec: Reader, completions: int) -> None:
    failed = spec.int32("maxFailedIndexes")
    if failed > MOST_INDEXED_PODS and failed <= completions:
        fields.invalid(spec, "maxFailedIndexes", f"must be less than or equal to {MOST_INDEXED_PODS}")
    if completions <= MANY_INDEXES or "backoffLimitPerIndex" not in spec:
        return
    above = f"when completions is above {MANY_INDEXES}"
    if "maxFailedIndexes" not in spec:
        spec.problem("maxFailedIndexes", f"Required value: must be specified {above}")
    for field in ("parallelism", "maxFailedIndexes"):
        if spec.int32(field) > MOST_OF_MANY:
            fields.invalid(spec, field, f"must be less than or equal to {MOST_OF_MANY} {above}")


def _managed_by(spec: Reader) -> None:
    """Judge a name with a domain: `example.com/controller`."""
    domain, slash, path = spec.text("managedBy").partition("/")
    if not slash or not path or formats.subdomain(domain):
        fields.invalid(spec, "managedBy", 'must be a domain-prefixed path (such as "acme.io/foo")')
    elif len(spec.text("managedBy")) > LONGEST_MANAGER:
        spec.problem("managedBy", f"Too long: may not be more than {LONGEST_MANAGER} bytes")
