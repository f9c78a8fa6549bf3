"""Validation of an object of resource.k8s.io by its kind."""

from collections.abc import Callable, Mapping

from admission.api.validation import claims, fields, node_selectors, slices
from admission.api.values import formats
from admission.api.values.decoding import Json, Reader
from admission.errors import Problem


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
    node_selectors.taint(spec.child("taint"))


_KINDS: Mapping[str, Callable[[Reader], None]] = {
    "ResourceSlice": _slice,
    "DeviceClass": _class,
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "DeviceTaintRule": _taint_rule,
}
