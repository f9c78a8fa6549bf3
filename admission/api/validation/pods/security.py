"""Validation of security contexts of pods and containers.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), ValidateSecurityContext
and validatePodSpecSecurityContext. Names of users of Windows are left to the API server.
"""

import re

from admission.api.validation import fields
from admission.api.values.decoding import Reader

PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
LONGEST_SYSCTL = 253
OF_IPC = ("kernel.shm", "kernel.msg", "fs.mqueue.")
"""Beginnings of sysctls that each pod has of its own, unless it shares its node's IPC."""

NOT_ON_WINDOWS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip
POD_NOT_ON_WINDOWS = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip


def validate(container: Reader, *, host_users: bool) -> None:
    """Judge the security context of a container. host_users: whether the pod has the users of its node."""
    context = container.child("securityContext")
    _ids(context, "runAsUser", "runAsGroup")
    if "procMount" in context:
        mount = fields.supported(context, "procMount", ("Default", "Unmasked"))
        if mount == "Unmasked" and host_users:
            fields.invalid(context, "procMount", "`hostUsers` must be false to use `Unmasked`")
    _profiles(context)
    if "allowPrivilegeEscalation" in context and not context.flag("allowPrivilegeEscalation", default=True):
        if context.flag("privileged"):
            container.problem(
                "securityContext",
                "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            )
        if "CAP_SYS_ADMIN" in context.child("capabilities").texts("add"):
            container.problem(
                "securityContext",
                "Invalid value: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            )


def validate_pod(spec: Reader) -> None:
    """Judge the security context of a pod."""
    context = spec.child("securityContext")
    _ids(context, "fsGroup", "runAsUser", "runAsGroup")
    groups = context.raw("supplementalGroups")
    for at, group in enumerate(groups if isinstance(groups, list) else ()):
        if isinstance(group, int) and not 0 <= group <= fields.LARGEST_INT32:
            context.problem(f"supplementalGroups[{at}]", f"Invalid value: {group}: {fields.between(0)}")
    for field, known in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
        ("seLinuxChangePolicy", ("MountOption", "Recursive")),
    ):
        fields.supported(context, field, known)
    _profiles(context)
    _sysctls(context, spec)


def validate_system(spec: Reader, containers: list[Reader]) -> None:
    """Judge what the operating system of a pod that names one does not have."""
    context = spec.child("securityContext")
    match spec.child("os").text("name"):
        case "linux":
            for one in (context, *(container.child("securityContext") for container in containers)):
                _forbidden(one, ("windowsOptions",), "windows options cannot be set for a linux pod")
        case "windows":
            why = "cannot be set for a windows pod"
            _forbidden(spec, ("resources",), "may not be set for a windows pod")
            _forbidden(context, POD_NOT_ON_WINDOWS, why)
            _forbidden(spec, ("hostUsers", "shareProcessNamespace"), why)
            _forbidden(spec, tuple(field for field in ("hostPID", "hostIPC") if spec.flag(field)), why)
            for container in containers:
                _forbidden(container.child("securityContext"), NOT_ON_WINDOWS, why)
        case _:
            pass


def _forbidden(reader: Reader, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in reader and reader.raw(name) != []:
            reader.problem(name, f"Forbidden: {why}")


def _ids(context: Reader, *names: str) -> None:
    for name in names:
        if name in context and not 0 <= context.integer(name) <= fields.LARGEST_INT32:
            fields.invalid(context, name, fields.between(0))


def _profiles(context: Reader) -> None:
    for field, kind in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if field in context:
            _profile(context.child(field), field, kind)


def _profile(profile: Reader, field: str, kind: str) -> None:
    if fields.needed(profile, "type", f"type is required when {field} is set"):
        fields.supported(profile, "type", PROFILES)
    path = profile.text("localhostProfile")
    if profile.text("type") != "Localhost":
        if "localhostProfile" in profile and profile.text("type"):
            fields.invalid(profile, "localhostProfile", f"can only be set when {kind} type is Localhost")
    elif "localhostProfile" not in profile or (kind == "AppArmor" and not path.strip()):
        profile.problem("localhostProfile", f"Required value: must be set when {kind} type is Localhost")
    elif kind == "seccomp" and (path.startswith("/") or ".." in path.split("/")):
        fields.invalid(profile, "localhostProfile", "must be a relative path without '..'")
    elif kind == "AppArmor" and path != path.strip():
        fields.invalid(profile, "localhostProfile", "must not be padded with whitespace")


def _sysctls(context: Reader, spec: Reader) -> None:
    seen: set[str] = set()
    for sysctl in context.children("sysctls"):
        name = fields.needed(sysctl, "name")
        dotted = name.replace("/", ".")
        if name and (SYSCTL.fullmatch(name) is None or len(name) > LONGEST_SYSCTL):
            fields.invalid(sysctl, "name", f"must have at most {LONGEST_SYSCTL} characters, as kernel.shm_rmid_forced")
        elif name and name in seen:
            sysctl.problem("name", f"Duplicate value: {name!r}")
        elif dotted.startswith("net.") and spec.flag("hostNetwork"):
            fields.invalid(sysctl, "name", "may not be specified when 'hostNetwork' is true")
        elif (dotted.startswith(OF_IPC) or dotted == "kernel.sem") and spec.flag("hostIPC"):
            fields.invalid(sysctl, "name", "may not be specified when 'hostIPC' is true")
        seen.add(name)
