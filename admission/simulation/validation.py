"""The problems for which the API server would refuse an object from a file: of its fields, its kind's rules, its CEL.

For `muster simulate`, which must not decide about an object that no cluster would store. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.validation import apps, claims, objects
from admission.api.validation.openapi import field_types, unknown_fields
from admission.api.validation.pods import templates
from admission.api.values.decoding import Json, Reader
from admission.cel.limits import Inadmissible
from admission.conversion import selectors
from admission.device_cel import environment, limits
from admission.dra.compatibility import SchedulerProfile
from admission.errors import Problem
from admission.workloads import template_labels

_CONVERTED = "; `muster convert` writes such look-ups of early walkthroughs as they are today"
_UNTYPED = re.compile(r"spec\.devices\[\d+\]\.attributes\[.*\]")


def problems(kind: str, obj: Json, profile: SchedulerProfile) -> tuple[Problem, ...]:
    """Return all problems of an object of resource.k8s.io, with their fields; none for other kinds."""
    reader = Reader(obj)
    for selector in _selectors(kind, reader):
        text = selector.child("cel").raw("expression")
        # The rules of the kind report an expression that is too long or not a text.
        if isinstance(text, str) and 0 < len(text.encode(errors="replace")) <= claims.LONGEST_EXPRESSION:
            refusal = _objection(text, profile.cel)
            if refusal is not None:
                remedy = _CONVERTED if selectors.is_of_walkthroughs(text) else ""
                selector.problem("cel.expression", f"is not CEL that Kubernetes takes: {refusal.message}{remedy}")
    return tuple(dict.fromkeys((*objects.problems(kind, obj), *reader.problems)))


def of_any_kind(obj: Json, profile: SchedulerProfile) -> tuple[Problem, ...]:
    """Return the fields of an object that its kind does not have, and the problems of the pod that it is or makes.

    Of kinds of other systems only the pod templates are judged; see `doubts`. An object with a UID was stored by an API
    server, which took it, and kept only the fields that it knew.
    """
    if "uid" in Reader(obj).child("metadata"):
        return ()
    found = [*unknown_fields.of_object(obj, release=profile.release), *objects.other_problems(obj)]
    volumes = template_labels.added_volumes(obj)
    for place in template_labels.pod_templates(obj):
        path = template_labels.field_of(place.base)
        if not unknown_fields.is_judged(obj):
            found += unknown_fields.of_pod_template(place.reader.value, path, release=profile.release)
        template = place.reader.value
        if volumes is not None and obj.get("kind") in ("StatefulSet", "LeaderWorkerSet"):
            template = apps.without_overwritten(template, volumes)
        found += templates.problems(template, path, volumes=volumes)
    return tuple(dict.fromkeys(found))


def wrong_types(obj: Json, profile: SchedulerProfile) -> tuple[Problem, ...]:
    """Return the values of another type than their field has, for which no API server could read an object.

    They replace what is said of the same values otherwise (`field_types.beside`).
    """
    if "uid" in Reader(obj).child("metadata"):
        return ()
    found = [*field_types.of_object(obj, release=profile.release), *field_types.of_workload(obj)]
    if not unknown_fields.is_judged(obj):
        for place in template_labels.pod_templates(obj):
            path = template_labels.field_of(place.base)
            found += field_types.of_pod_template(place.reader.value, path, release=profile.release)
    return tuple(dict.fromkeys(map(_with_remedy, found)))


def _with_remedy(problem: Problem) -> Problem:
    """Return a problem with what types an attribute, if it is one of an attribute of a device without a type."""
    is_untyped = _UNTYPED.fullmatch(problem.field) is not None
    return replace(problem, message=f"{problem.message}; `muster convert` types it") if is_untyped else problem


def doubts(obj: Json) -> tuple[Problem, ...]:
    """Return the fields of a workload of another system that it probably does not have, and that would be dropped."""
    return () if "uid" in Reader(obj).child("metadata") else unknown_fields.of_workload(obj)


ADMIN_LABEL = "resource.kubernetes.io/admin-access"
"""The label of namespaces whose claims may have admin access."""


def admin_access(spec: ClaimSpec, labels: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return the problems of a claim that asks for admin access. labels: of its namespace.

    Mirrors `pkg/registry/resource/utils.go`, AuthorizedForAdmin (v1.36.3, v1.37.1), which names the first request.
    """
    asked = (at for at, one in enumerate(spec.requests) if any(option.admin_access for option in one.alternatives))
    first = next(asked, None)
    if first is None or labels.get(ADMIN_LABEL) == "true":
        return ()
    message = f"Forbidden: admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    return (Problem(f"devices.requests[{first}].exactly.adminAccess", message),)


@lru_cache(maxsize=1024)
def _objection(text: str, compiler: environment.Profile) -> Inadmissible | None:
    """Return why an expression does not compile. Cached, since thousands of claims have the same selectors."""
    return limits.check(text, profile=compiler)


def _selectors(kind: str, obj: Reader) -> Iterator[Reader]:
    spec = obj.child("spec")
    match kind:
        case "DeviceClass":
            yield from spec.children("selectors")
        case "ResourceClaim":
            yield from _of_claim(spec)
        case "ResourceClaimTemplate":
            yield from _of_claim(spec.child("spec"))
        case _:
            pass


def _of_claim(spec: Reader) -> Iterator[Reader]:
    for request in spec.child("devices").children("requests"):
        yield from request.child("exactly").children("selectors")
        for alternative in request.children("firstAvailable"):
            yield from alternative.children("selectors")
