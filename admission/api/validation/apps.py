"""Validation of workloads whose pods do not end: how they select and replace them, beside what the pods have.

In the API server's words. Mirrors `pkg/apis/apps/validation` of Kubernetes (v1.36.3, v1.37.1), after the defaults of
`pkg/apis/apps/v1`.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from admission.api.validation import fields, selectors, storage
from admission.api.values import formats, selectors as matching
from admission.api.values.decoding import Json, Reader

PERCENT = re.compile("[0-9]+%")
WHOLE = 100
MOST_DIGITS = 18
DEADLINE = 600
"""The default of a Deployment's progressDeadlineSeconds."""
ON_DELETE, RECREATE, ROLLING_UPDATE = "OnDelete", "Recreate", "RollingUpdate"


def validate_pods(reader: Reader) -> None:
    """Judge a workload of any kind whose pods do not end."""
    spec = reader.child("spec")
    fields.not_negative(spec, "replicas", "minReadySeconds", "revisionHistoryLimit")
    of_pod = spec.child("template").child("spec")
    if of_pod.text("restartPolicy") not in ("", "Always"):
        of_pod.problem("restartPolicy", fields.unsupported(of_pod.text("restartPolicy"), ("Always",)))
    if "activeDeadlineSeconds" in of_pod:
        kind = "ReplicaSet" if reader.text("kind") == "Deployment" else reader.text("kind")
        of_pod.problem("activeDeadlineSeconds", f"Forbidden: activeDeadlineSeconds in {kind} is not Supported")


def validate_selection(reader: Reader) -> None:
    """Judge a workload of apps/v1, which has to select the pods that it makes."""
    validate_pods(reader)
    spec = reader.child("spec")
    selector, metadata = spec.child("selector"), spec.child("template").child("metadata")
    labels = metadata.pairs("labels")
    if not (selector.raw("matchLabels") or selector.raw("matchExpressions")):
        spec.problem("selector", "Required value: it selects pods by labels of the template")
    selectors.label_selector(selector)
    wanted = Reader(selector.value)
    if not matching.decode_labels(wanted).matches(labels) and not wanted.problems:
        message = f"Invalid value: `selector` does not match template `labels`: {labels or 'there are none'}"
        metadata.problem("labels", message)


def validate_deployment(reader: Reader) -> None:
    """Judge a Deployment."""
    validate_selection(reader)
    spec = reader.child("spec")
    strategy = spec.child("strategy")
    match _strategy(spec, "strategy", (RECREATE, ROLLING_UPDATE)):
        case "Recreate" if "rollingUpdate" in strategy:
            strategy.problem("rollingUpdate", "Forbidden: may not be specified when strategy `type` is 'Recreate'")
        case "RollingUpdate":
            rolling = strategy.child("rollingUpdate")
            unavailable, surge = _share(rolling, "maxUnavailable", "25%"), _share(rolling, "maxSurge", "25%")
            if unavailable == surge == 0:
                fields.invalid(rolling, "maxUnavailable", "may not be 0 when `maxSurge` is 0")
            _at_most_all(rolling, "maxUnavailable")
        case _:
            pass
    fields.not_negative(spec, "progressDeadlineSeconds")
    if spec.integer("progressDeadlineSeconds", DEADLINE) <= spec.integer("minReadySeconds"):
        fields.invalid(spec, "progressDeadlineSeconds", "must be greater than minReadySeconds")


def validate_daemon_set(reader: Reader) -> None:
    """Judge a DaemonSet."""
    validate_selection(reader)
    spec = reader.child("spec")
    if _strategy(spec, "updateStrategy", (ROLLING_UPDATE, ON_DELETE)) != ROLLING_UPDATE:
        return
    rolling = spec.child("updateStrategy").child("rollingUpdate")
    unavailable, surge = _share(rolling, "maxUnavailable", 1), _share(rolling, "maxSurge", 0)
    for field in ("maxUnavailable", "maxSurge"):
        _at_most_all(rolling, field)
    if unavailable and surge:
        fields.invalid(rolling, "maxSurge", "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        rolling.problem("maxUnavailable", "Required value: cannot be 0 when maxSurge is 0")


def validate_stateful_set(reader: Reader) -> None:
    """Judge a StatefulSet. `maxUnavailable` is judged by 1.37 alone, and so not here."""
    validate_selection(reader)
    metadata, spec = reader.child("metadata"), reader.child("spec")
    if metadata.text("name") and (message := formats.label(metadata.text("name"))):
        metadata.problem("name", f"Invalid value: {message}")
    if spec.text("podManagementPolicy") not in ("", "OrderedReady", "Parallel"):
        fields.invalid(spec, "podManagementPolicy", "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.child("updateStrategy")
    match _strategy(spec, "updateStrategy", (ROLLING_UPDATE, ON_DELETE)):
        case "RollingUpdate":
            fields.not_negative(strategy.child("rollingUpdate"), "partition")
        case "OnDelete" if "rollingUpdate" in strategy:
            strategy.problem("rollingUpdate", "Invalid value: only allowed for updateStrategy 'RollingUpdate'")
        case _:
            pass
    retention = spec.child("persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled"):
        if retention.text(field):
            fields.supported(retention, field, ("Retain", "Delete"))
    fields.not_negative(spec.child("ordinals"), "start")
    if spec.text("serviceName") and (message := formats.label(spec.text("serviceName"))):
        spec.problem("serviceName", f"Invalid value: {message}")
    _claim_templates(spec)


def _claim_templates(spec: Reader) -> None:
    for template in spec.children("volumeClaimTemplates"):
        name = template.child("metadata").text("name")
        if message := formats.label(name):
            template.problem("metadata.name", f"Invalid value: {message}")
        storage.validate_claim_spec(template.child("spec"))


def without_overwritten(template: Json, volumes: Collection[str]) -> Json:
    """Return a pod template without what the controller of StatefulSets writes over, which nobody judges.

    volumes: the names of the volumes that it adds.
    """
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        return template
    kept = {name: value for name, value in spec.items() if name not in ("hostname", "subdomain")}
    if isinstance(spec.get("volumes"), list):
        kept["volumes"] = [
            {"name": one["name"]} if isinstance(one, Mapping) and one.get("name") in volumes else one
            for one in spec["volumes"]
        ]
    return {**template, "spec": kept}


def _strategy(spec: Reader, field: str, known: Collection[str]) -> str:
    """Return the type of a strategy, which is a rolling update by default."""
    found = spec.child(field).text("type") or ROLLING_UPDATE
    if found not in known:
        spec.problem(f"{field}.type", fields.unsupported(found, tuple(known)))
    return found


def _share(rolling: Reader, field: str, default: int | str) -> int | None:
    """Judge a number or percentage of pods. Return it without its sign; None if it is neither."""
    value: Any = default if rolling.raw(field) is None else rolling.raw(field)
    if isinstance(value, str):
        if PERCENT.fullmatch(value):
            return _percent(value)
        fields.invalid(rolling, field, "a valid percent string must be a numeric string followed by an ending '%'")
    elif isinstance(value, int) and not isinstance(value, bool):
        fields.not_negative(rolling, field)
        return value
    return None


def _at_most_all(rolling: Reader, field: str) -> None:
    value: Any = rolling.raw(field)
    if isinstance(value, str) and PERCENT.fullmatch(value) and _percent(value) > WHOLE:
        fields.invalid(rolling, field, "must not be greater than 100%")


def _percent(text: str) -> int:
    """Return a percentage; one of very many digits is more than the whole."""
    digits = text[:-1].lstrip("0")
    return int(digits or "0") if len(digits) <= MOST_DIGITS else WHOLE + 1
