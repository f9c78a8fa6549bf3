"""Validation of a pod, or of the template that pods are made of.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), after the defaults of
`pkg/apis/core/v1`. tests/e2e/test_validation.py compares the two.
"""

from collections.abc import Collection, Mapping
from typing import Any

from admission.api.validation import fields
from admission.api.validation.pods import (
    annotations,
    containers as of_containers,
    environment,
    network,
    placement,
    resources,
    security,
    volumes as pod_volumes,
)
from admission.api.values import formats
from admission.api.values.decoding import Reader
from admission.errors import Problem


def problems(pod: Any, path: str = "", *, volumes: Collection[str] | None = ()) -> tuple[Problem, ...]:
    """Return the problems for which the API server would refuse a pod, or the pods of a template.

    path: of the pod or template. volumes: the names of those that the controller of a template adds to its pods; None:
    it may add any, so that mounts of volumes that the template lacks are not judged.
    """
    reader = Reader(pod, path)
    labels = fields.labels(reader.child("metadata"), "labels")
    fields.annotations(reader.child("metadata"), "annotations")
    spec = reader.child("spec")
    if not isinstance(reader.raw("spec") or {}, Mapping):
        # What is no object has no containers.
        return reader.problems
    claims = _claims(spec)
    sources = pod_volumes.validate(spec) | dict.fromkeys(volumes or (), "persistentVolumeClaim")
    containers, init = list(spec.children("containers")), list(spec.children("initContainers"))
    if not containers and not spec.raw("containers"):
        spec.problem("containers", "Required value: a pod has at least one container")
    for at, container in enumerate((*init, *containers)):
        of_containers.validate(container, spec)
        of_containers.validate_handlers(container, spec, is_init=at < len(init))
        resources.validate(container, claims)
        pod_volumes.validate_mounts(container, sources, all_known=volumes is not None)
        environment.validate_files(container, sources, all_known=volumes is not None)
    # Init containers are judged after the others, so that a name that both have is theirs.
    _unique_names((*containers, *init))
    _host_ports(spec, containers, init)
    if "resources" in spec:
        resources.validate_pod(spec)
    if spec.raw("ephemeralContainers"):
        spec.problem("ephemeralContainers", "Forbidden: cannot be set on create")
    _scalars(spec)
    _gates(spec)
    resources.validate_overhead(spec)
    annotations.validate(reader.child("metadata"), spec, [*init, *containers], is_template=bool(path))
    security.validate_pod(spec)
    security.validate_system(spec, [*init, *containers])
    network.validate(spec, [*init, *containers])
    placement.validate(spec, labels)
    return reader.problems


def _claims(spec: Reader) -> tuple[str, ...]:
    """Judge the claims of a pod; return their names."""
    names = [claim.text("name") for claim in spec.children("resourceClaims")]
    fields.unique(spec, names, lambda index: f"resourceClaims[{index}].name")
    for claim in spec.children("resourceClaims"):
        fields.text(claim, "name", formats.label)
        fields.optional(claim, "resourceClaimName", formats.subdomain)
        fields.optional(claim, "resourceClaimTemplateName", formats.subdomain)
        if ("resourceClaimName" in claim) == ("resourceClaimTemplateName" in claim):
            claim.problem("", "needs exactly one of resourceClaimName and resourceClaimTemplateName")
    return tuple(sorted({name for name in names if name}))


def _unique_names(containers: Collection[Reader]) -> None:
    seen: set[str] = set()
    for container in containers:
        name = container.text("name")
        if name and name in seen:
            container.problem("name", f"Duplicate value: {name!r}")
        seen.add(name)


def _host_ports(spec: Reader, containers: list[Reader], init: list[Reader]) -> None:
    """Judge the ports of the node that a pod takes: all of them at once, but init containers one by one.

    A pod in its node's network takes its containers' own ports where none is named; the API server says so of pods,
    and of templates only when pods are made of them.
    """
    shares_network = spec.flag("hostNetwork")
    for group in (containers, *([container] for container in init)):
        taken: set[tuple[str, str, int]] = set()
        for port in (port for container in group for port in container.children("ports")):
            own, wanted = port.integer("containerPort"), port.integer("hostPort")
            if shares_network and group is containers and wanted and wanted != own:
                fields.invalid(port, "hostPort", "must match `containerPort` when `hostNetwork` is true")
            number = wanted or (own if shares_network else 0)
            key = (port.text("protocol") or "TCP", port.text("hostIP"), number)
            if number and key in taken:
                port.problem("hostPort", f"Duplicate value: '{key[0]}/{key[1]}/{key[2]}'")
            taken.add(key)


def _scalars(spec: Reader) -> None:
    """Judge the fields that are one text or number."""
    for field, known in (
        ("restartPolicy", of_containers.RESTARTS),
        ("dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
    ):
        if spec.text(field):
            fields.supported(spec, field, known)
    fields.supported(spec, "preemptionPolicy", ("Never", "PreemptLowerPriority"))
    _names(spec)
    if "activeDeadlineSeconds" in spec and not 1 <= spec.integer("activeDeadlineSeconds", 1) <= fields.LARGEST_INT32:
        fields.invalid(spec, "activeDeadlineSeconds", f"must be between 1 and {fields.LARGEST_INT32}, inclusive")
    if "os" in spec and fields.needed(spec.child("os"), "name"):
        fields.supported(spec.child("os"), "name", ("linux", "windows"))
    spec.int32("priority")
    for gate in spec.children("readinessGates"):
        if message := formats.key(gate.text("conditionType")):
            gate.problem("conditionType", f"Invalid value: {message}")


def _names(spec: Reader) -> None:
    """Judge the names of other objects, and the pod's own."""
    for field, rule in (
        ("nodeName", formats.subdomain),
        ("serviceAccountName", formats.subdomain),
        ("priorityClassName", formats.subdomain),
        ("hostname", formats.label),
        ("subdomain", formats.label),
    ):
        if spec.text(field) and (message := rule(spec.text(field))):
            spec.problem(field, f"Invalid value: {message}")
    if "runtimeClassName" in spec and (message := formats.subdomain(spec.text("runtimeClassName"))):
        spec.problem("runtimeClassName", f"Invalid value: {message}")


def _gates(spec: Reader) -> None:
    """Judge the scheduling gates."""
    names = [gate.text("name") for gate in spec.children("schedulingGates")]
    for index, name in enumerate(names):
        if message := formats.key(name):
            spec.problem(f"schedulingGates[{index}]", f"Invalid value: {message}")
        if name in names[:index]:
            spec.problem(f"schedulingGates[{index}]", f"Duplicate value: {name!r}")
    if names and spec.text("nodeName"):
        spec.problem("nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")
