"""Validation of the annotations of a pod that Kubernetes reads: profiles of AppArmor and seccomp, and three others.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1),
ValidatePodSpecificAnnotations, validateSeccompAnnotationsAndFields and
validateAppArmorAnnotationsAndFieldsMatchOnCreate.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from admission.api.validation.pods import placement
from admission.api.values.decoding import Reader

MIRROR = "kubernetes.io/config.mirror"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
COST = re.compile("0|-[0-9]{1,32}|[1-9][0-9]{0,31}")
LARGEST_COST = 2**31 - 1
SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
UNCONFINED, LOCALHOST = "unconfined", "localhost/"


@dataclass(frozen=True, slots=True)
class _Profiles:
    """Profiles of one kind: the annotations' prefix, before a container's name, and the names of the default one."""

    field: str
    kind: str
    prefix: str
    defaults: tuple[str, ...]

    def is_known(self, value: str) -> bool:
        return value in (*self.defaults, UNCONFINED) or value.startswith(LOCALHOST)

    def differs(self, profile: Reader, annotation: str) -> str:
        """Return the field of a profile that an annotation contradicts, or nothing."""
        match profile.text("type"):
            case "Unconfined":
                return "type" * (annotation != UNCONFINED)
            case "RuntimeDefault":
                return "type" * (annotation not in self.defaults)
            case "Localhost" if not annotation.startswith(LOCALHOST):
                return "type"
            case "Localhost":
                has_same = annotation.removeprefix(LOCALHOST) == profile.raw("localhostProfile")
                return "localhostProfile" * (not has_same)
            case _:
                return ""


SECCOMP = _Profiles(
    "seccompProfile",
    "seccomp",
    "container.seccomp.security.alpha.kubernetes.io/",
    ("runtime/default", "docker/default"),
)
APP_ARMOR = _Profiles(
    "appArmorProfile", "apparmor", "container.apparmor.security.beta.kubernetes.io/", ("runtime/default",)
)


def validate(metadata: Reader, spec: Reader, containers: Sequence[Reader], *, is_template: bool) -> None:
    """Judge the annotations of a pod. containers: all that it has.

    is_template: whether it is a template. In a pod the API server first gives a container that has no profile the one
    of its annotation.
    """
    found = metadata.pairs("annotations")
    if MIRROR in found and not spec.text("nodeName"):
        _invalid(metadata, MIRROR, "must set spec.nodeName if mirror pod annotation is set")
    if found.get(TOLERATIONS):
        _tolerations(metadata, found[TOLERATIONS])
    cost = found.get(DELETION_COST, "0")
    if COST.fullmatch(cost) is None or not -LARGEST_COST - 1 <= int(cost) <= LARGEST_COST:
        _invalid(metadata, DELETION_COST, "must be a 32bit integer")
    _seccomp(metadata, found, spec, containers)
    _app_armor(metadata, found, containers)
    if spec.child("os").text("name") != "windows":
        _compare_app_armor(found, spec, containers, is_template=is_template)


def _seccomp(metadata: Reader, found: dict[str, str], spec: Reader, containers: Sequence[Reader]) -> None:
    for name, value in found.items():
        if name != SECCOMP_OF_POD and not name.startswith(SECCOMP.prefix):
            continue
        path = value.removeprefix(LOCALHOST)
        if not SECCOMP.is_known(value):
            _invalid(metadata, name, "must be a valid seccomp profile")
        elif path != value and (path.startswith("/") or ".." in path.split("/")):
            _invalid(metadata, name, "must be a relative path without '..'")
    if SECCOMP_OF_POD in found:
        _compare(SECCOMP, spec, spec, found[SECCOMP_OF_POD])
    for container in containers:
        annotation = found.get(f"{SECCOMP.prefix}{container.text('name')}")
        if annotation is not None:
            _compare(SECCOMP, container, container, annotation)


def _app_armor(metadata: Reader, found: dict[str, str], containers: Sequence[Reader]) -> None:
    names = {container.text("name") for container in containers}
    for name, value in found.items():
        if name.startswith(APP_ARMOR.prefix):
            _profile_of_container(metadata, name, value, names)


def _compare_app_armor(found: dict[str, str], spec: Reader, containers: Sequence[Reader], *, is_template: bool) -> None:
    for container in containers:
        annotation = found.get(f"{APP_ARMOR.prefix}{container.text('name')}")
        if annotation is not None:
            has_own = APP_ARMOR.field in container.child("securityContext")
            if has_own or is_template:
                _compare(APP_ARMOR, container if has_own else spec, container, annotation)


def _profile_of_container(metadata: Reader, name: str, value: str, names: Collection[str]) -> None:
    if (container := name.removeprefix(APP_ARMOR.prefix)) not in names:
        metadata.problem(f"annotations.{name}", f"Invalid value: {container!r}: container not found")
    if value and not APP_ARMOR.is_known(value):
        _invalid(metadata, name, "invalid AppArmor profile name")


def _compare(profiles: _Profiles, holder: Reader, container: Reader, annotation: str) -> None:
    """Hold the profile in a holder's security context against an annotation of a container."""
    profile = holder.child("securityContext").child(profiles.field)
    differing = profiles.differs(profile, annotation)
    if differing:
        what = "type" if differing == "type" else "profile"
        message = f"Forbidden: {profiles.kind} {what} in annotation and field must match"
        container.child("securityContext").child(profiles.field).problem(differing, message)


def _tolerations(metadata: Reader, text: str) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    reader = Reader({"tolerations": found})
    placement.validate_tolerations(reader)
    if not isinstance(found, list) or reader.problems:
        _invalid(metadata, TOLERATIONS, "must be a list of tolerations in JSON")


def _invalid(metadata: Reader, name: str, why: str) -> None:
    metadata.problem(f"annotations.{name}", f"Invalid value: {metadata.pairs('annotations')[name]!r}: {why}")
