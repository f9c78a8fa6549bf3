"""Validation of an object of Kubernetes by its kind."""

from collections.abc import Callable, Mapping

from admission.api.validation import (
    apps,
    claims,
    fields,
    job_policies,
    jobs,
    node_shapes,
    pod_groups,
    selectors,
    slices,
    storage,
)
from admission.api.validation.pods import placement, resources, templates
from admission.api.values import formats, names
from admission.api.values.decoding import Json, Reader
from admission.errors import Problem

LARGEST_PRIORITY = 10**9
"""The highest value of a PriorityClass that is not Kubernetes' own."""
LONGEST_CRON_JOB = 52
"""Characters of a CronJob's name, so that those of its Jobs are no more than 63."""


def problems(kind: str, obj: Json) -> tuple[Problem, ...]:
    """Return the problems for which the API server would refuse an object, with their fields; none for other kinds.

    The object is one of `resource.k8s.io/v1`, or of another version of the same shape.
    """
    validate = _KINDS.get(kind)
    if validate is None:
        return ()
    reader = Reader(obj)
    fields.text(reader.child("metadata"), "name", formats.subdomain)
    validate(reader)
    return reader.problems


def other_problems(obj: Json) -> tuple[Problem, ...]:
    """Return the problems for which the API server would refuse to make an object outside resource.k8s.io.

    Pod templates are judged by `templates.problems`.
    """
    of = (str(obj.get("apiVersion")), str(obj.get("kind")))
    if of == ("v1", "Pod"):
        return (*_named(obj), *templates.problems(obj))
    validate = _OTHER_KINDS.get(of)
    if validate is None:
        return ()
    reader = Reader(obj)
    fields.labels(reader.child("metadata"), "labels")
    fields.annotations(reader.child("metadata"), "annotations")
    validate(reader)
    return (*_named(obj), *reader.problems)


def _named(obj: Json) -> tuple[Problem, ...]:
    """Return the problem of an object's name, if it has one."""
    metadata = Reader(obj).child("metadata")
    if metadata.text("name") and (message := formats.subdomain(metadata.text("name"))):
        metadata.problem("name", f"Invalid value: {message}")
    return metadata.problems


def _slice(reader: Reader) -> None:
    slices.validate(reader.child("spec"))


def _class(reader: Reader) -> None:
    claims.validate_class(reader.child("spec"))


def _claim(reader: Reader) -> None:
    claims.validate(reader.child("spec"))
    claims.validate_status(reader.child("status"), reader.child("spec"))


def _template(reader: Reader) -> None:
    claims.validate(reader.child("spec").child("spec"))


def _taint_rule(reader: Reader) -> None:
    spec = reader.child("spec")
    selector = spec.child("deviceSelector")
    fields.optional(selector, "driver", formats.driver)
    fields.optional(selector, "pool", formats.pool)
    fields.optional(selector, "device", formats.label)
    selectors.taint(spec.child("taint"))


def _job(reader: Reader) -> None:
    indexes = jobs.validate(reader.child("spec"))
    job_policies.validate_selector(reader.child("spec"))
    jobs.validate_name(reader.child("metadata"), indexes)
    jobs.validate_restarts(reader.child("spec"))


def _cron_job(reader: Reader) -> None:
    fields.needed(reader.child("spec"), "schedule")
    whole = reader.child("spec")
    fields.not_negative(whole, "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if whole.text("concurrencyPolicy"):
        fields.supported(whole, "concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    if len(reader.child("metadata").text("name")) > LONGEST_CRON_JOB:
        fields.invalid(reader.child("metadata"), "name", f"must be no more than {LONGEST_CRON_JOB} characters")
    spec = whole.child("jobTemplate").child("spec")
    for field in ("selector", "manualSelector"):
        if field in spec and spec.raw(field) is not False:
            spec.problem(field, "Invalid value: `selector` will be auto-generated")
    jobs.validate(spec, has_defaults=False)
    jobs.validate_restarts(spec)


def _job_set(reader: Reader) -> None:
    """Judge the Jobs that a JobSet makes, after the defaults of its webhook (jobset_webhook.go, `Default`)."""
    all_jobs, seen = [*reader.child("spec").children("replicatedJobs")], set[str]()
    for at, name in enumerate(one.text("name") for one in all_jobs):
        if name and name in seen:
            # The CRD's list is a map by name.
            reader.child("spec").problem(f"replicatedJobs[{at}]", f'Duplicate value: {{"name":"{name}"}}')
        seen.add(name)
    for replicated in all_jobs:
        spec = replicated.child("template").child("spec")
        jobs.validate(spec, mode="Indexed")
        jobs.validate_restarts(spec, default="OnFailure")


def _node(reader: Reader) -> None:
    placement.validate_taints(reader.child("spec"))
    for field in ("capacity", "allocatable"):
        resources.validate_node_amounts(reader.child("status"), field)


def _priority_class(reader: Reader) -> None:
    if reader.child("metadata").text("name").startswith("system-"):
        # Those that an API server has made itself are in a dump without UIDs, too.
        return
    if reader.int32("value") > LARGEST_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {LARGEST_PRIORITY}"
        reader.problem("value", f"Forbidden: {why}")
    fields.supported(reader, "preemptionPolicy", ("Never", "PreemptLowerPriority"))


def _runtime_class(reader: Reader) -> None:
    if fields.needed(reader, "handler"):
        fields.text(reader, "handler", formats.label)


_OTHER_KINDS: Mapping[tuple[str, str], Callable[[Reader], None]] = {
    ("batch/v1", "Job"): _job,
    ("batch/v1", "CronJob"): _cron_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
    ("v1", "ReplicationController"): apps.validate_pods,
    ("apps/v1", "Deployment"): apps.validate_deployment,
    ("apps/v1", "ReplicaSet"): apps.validate_selection,
    ("apps/v1", "DaemonSet"): apps.validate_daemon_set,
    ("apps/v1", "StatefulSet"): apps.validate_stateful_set,
    ("v1", "Node"): _node,
    ("scheduling.k8s.io/v1", "PriorityClass"): _priority_class,
    ("node.k8s.io/v1", "RuntimeClass"): _runtime_class,
    ("scheduling.k8s.io/v1alpha2", "PodGroup"): pod_groups.validate,
    ("scheduling.k8s.io/v1beta1", "PodGroup"): pod_groups.validate,
    ("v1", "PersistentVolumeClaim"): lambda reader: storage.validate_claim_spec(reader.child("spec")),
    ("v1", "PersistentVolume"): storage.validate_volume,
    ("storage.k8s.io/v1", "StorageClass"): storage.validate_class,
    (names.API_VERSION, "NodeShape"): node_shapes.validate,
}
"""By apiVersion and kind."""

_KINDS: Mapping[str, Callable[[Reader], None]] = {
    "ResourceSlice": _slice,
    "DeviceClass": _class,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "DeviceTaintRule": _taint_rule,
}
