"""Validation of the environment of a container: variables, and where their values come from.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), ValidateEnv and
ValidateEnvFrom, with the relaxed names that are on by default.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

from admission.api.validation import fields
from admission.api.values import formats
from admission.api.values.decoding import Reader

NAME = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
KEY = re.compile(r"[-._a-zA-Z0-9]+")
LONGEST_KEY = 253
SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)

SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
POD_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
"""Fields of pods that variables may have, beside single labels and annotations."""
OLD_POD_FIELD = "spec.host"
AMOUNTS = tuple(f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
CPU_DIVISORS = frozenset({Fraction(1), Fraction(1, 1000)})
DIVISORS = frozenset(Fraction(base**power) for base in (1000, 1024) for power in range(7))


def validate(container: Reader) -> None:
    """Judge the variables of a container."""
    for variable in container.children("env"):
        _name(variable, "name", fields.needed(variable, "name"))
        if "valueFrom" in variable:
            _value_from(variable)
    for source in container.children("envFrom"):
        _name(source, "prefix", source.text("prefix"))
        found = [name for name in ("configMapRef", "secretRef") if name in source]
        for name in found:
            _reference(source.child(name))
        if len(found) != 1:
            source.problem("", f"Invalid value: {_count(found, ('configMapRef', 'secretRef'))}")


def validate_files(container: Reader, volumes: Mapping[str, str], *, all_known: bool) -> None:
    """Judge from which volumes a container's variables come. volumes: as for mounts, `volumes.validate_mounts`."""
    for variable in container.children("env"):
        file = variable.child("valueFrom").child("fileKeyRef")
        name = file.text("volumeName")
        if name in volumes and volumes[name] != "emptyDir":
            fields.invalid(file, "volumeName", "referenced volume must be of type emptyDir")
        elif name and name not in volumes and all_known:
            file.problem("volumeName", f"Not found: {name!r}")


def pod_field(reference: Reader, known: Collection[str]) -> None:
    """Judge a reference to a field of the pod. known: fields that it may be of, beside one label or annotation."""
    path = fields.needed(reference, "fieldPath")
    version = reference.text("apiVersion") or "v1"
    subscript = SUBSCRIPT.fullmatch(path)
    if version != "v1":
        reference.problem("fieldPath", f"Invalid value: {path!r}: error converting fieldPath: unsupported pod version")
    elif subscript is not None:
        name = subscript[2].lower() if subscript[1].endswith("annotations") else subscript[2]
        if message := formats.key(name):
            reference.problem("fieldPath", f"Invalid value: {message}")
    elif path and path != OLD_POD_FIELD and path not in known:
        reference.problem("fieldPath", fields.unsupported(path, tuple(known)))


def amount(reference: Reader, *, of_volume: bool) -> None:
    """Judge a reference to the resources of a container. of_volume: whether it has to name the container."""
    if of_volume and not fields.needed(reference, "containerName"):
        return
    name = fields.needed(reference, "resource")
    if name and name not in AMOUNTS and not name.startswith(HUGE_PAGES):
        reference.problem("resource", fields.unsupported(name, AMOUNTS))
    divisor = fields.amount(reference, "divisor")
    known = CPU_DIVISORS if name.endswith(".cpu") else DIVISORS
    if divisor and (name in AMOUNTS or name.startswith(HUGE_PAGES)) and divisor not in known:
        values = "1m and 1" if known is CPU_DIVISORS else "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
        fields.invalid(reference, "divisor", f"only divisor's values {values} are supported with this resource")


def _name(reader: Reader, field: str, name: str) -> None:
    if name and NAME.fullmatch(name) is None:
        fields.invalid(
            reader, field, "a valid environment variable name must consist only of printable ASCII characters but '='"
        )


def _value_from(variable: Reader) -> None:
    source = variable.child("valueFrom")
    found = [name for name in SOURCES if name in source]
    if "fieldRef" in source:
        pod_field(source.child("fieldRef"), POD_FIELDS)
    if "resourceFieldRef" in source:
        amount(source.child("resourceFieldRef"), of_volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            _key(source.child(name))
    if "fileKeyRef" in source:
        _file(source.child("fileKeyRef"))
    if found and variable.text("value"):
        variable.problem("valueFrom", "Invalid value: may not be specified when `value` is not empty")
    elif len(found) != 1:
        variable.problem("valueFrom", f"Invalid value: {_count(found, SOURCES)}")


def _file(reference: Reader) -> None:
    """Judge a variable of a file of variables."""
    _name(reference, "key", fields.needed(reference, "key"))
    name = fields.needed(reference, "volumeName")
    if name and (message := formats.label(name)):
        reference.problem("volumeName", f"Invalid value: {message}")
    if ".." in fields.needed(reference, "path").split("/"):
        fields.invalid(reference, "path", "must not contain '..'")


def _count(found: list[str], known: tuple[str, ...]) -> str:
    if found:
        return "may not have more than one field specified at a time"
    return f"must specify one of: {', '.join(f'`{name}`' for name in known)}"


def _reference(reference: Reader) -> None:
    name = fields.needed(reference, "name")
    # A name may be the beginning of one.
    if name and (message := formats.subdomain(f"{name[:-1]}a" if name.endswith("-") else name)):
        reference.problem("name", f"Invalid value: {message}")


def _key(reference: Reader) -> None:
    if message := formats.subdomain(reference.text("name")):
        reference.problem("name", f"Invalid value: {message}")
    key = fields.needed(reference, "key")
    if key and (KEY.fullmatch(key) is None or len(key) > LONGEST_KEY or key == "." or key.startswith("..")):
        fields.invalid(
            reference, "key", "a valid config key must consist of alphanumeric characters, '-', '_' or '.', up to 253"
        )
