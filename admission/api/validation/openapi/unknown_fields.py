"""Fields that no release of Kubernetes knows, and where they belong: the strict field validation of the API server.

The API server refuses them when it is asked to (`fieldValidation=Strict`, as kubectl does), else warns and drops them,
so that a claim asks for less than its author wrote. Only what is kept as written still has them afterwards.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from admission.api.schemas import known_fields
from admission.api.values.decoding import MAX_PROBLEMS, Json
from admission.errors import Problem

LONGEST_NAME = 100
"""Characters of a name that messages show."""

MOST_PLACES = 2
"""A name that stands in more places below is no hint, such as `name`."""

DEEPEST_TEMPLATE = 5
"""Levels from an object to the pod templates that are looked for: `spec.replicatedJobs[].template.spec.template`."""

QUEUE = "Queue"

OF_KUEUE: Mapping[str, str] = {
    "cohort": "spec.parent",
    "cohortName": "spec.parent",
    "parentName": "spec.parent",
    "resourceGroups": "spec.quotas",
    "coveredResources": "spec.quotas",
    "resources": "spec.quotas",
    "nominalQuota": "spec.quotas[].nominal",
    "flavors": "spec.preferences.kinds",
    "flavorFungibility": "spec.preferences",
    "withinClusterQueue": "spec.preemption.withinQueue",
    "reclaimWithinCohort": "spec.preemption.reclaim",
    "preemptionStrategies": "spec.preemption.byShares",
    "admissionScope": "spec.fairSharing.within",
    "usageHalfLifeTime": "spec.fairSharing.within.halfLife",
}
"""What a field of Kueue's ClusterQueue, Cohort or configuration is called in a Queue; similar names mean others."""


OF_EARLIER: Mapping[tuple[str, str], str] = {
    ("core.v1.PodResourceClaim", "source"): "resourceClaimName or resourceClaimTemplateName beside the claim's name",
    ("core.v1.PodSpec", "resourceClaimTemplates"): "a ResourceClaimTemplate of its own, named in resourceClaims",
    ("resource.v1.Device", "basic"): "its fields in the device itself",
    ("resource.v1.DeviceConstraint", "cel"): "a selector of each request",
    ("resource.v1.ResourceClaimSpec", "resourceClassName"): "devices.requests, with a deviceClassName",
    ("resource.v1.ResourceClaimSpec", "parametersRef"): "selectors and config of the requests",
}
"""What is written today in place of a field of an earlier DRA API, by the type that had it."""


REQUEST, EXACT_REQUEST = "resource.v1.DeviceRequest", "resource.v1.ExactDeviceRequest"
"""A request, and what stands in its field `exactly`; up to v1beta1 that stood in the request itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An object on the way to a field. type: its own; path: of it. elsewhere: a type that others judge."""

    type: str
    path: str
    above: "_Place | None" = None
    elsewhere: str = ""

    def at(self, name: str) -> str:
        return f"{self.path}.{name[:LONGEST_NAME]}".removeprefix(".")


def problems(
    obj: Any, type_name: str, path: str = "", *, release: str = "", elsewhere: str = ""
) -> tuple[Problem, ...]:
    """Return the fields of a value that its type does not have.

    type_name: one of `known_fields`. path: of the value in its object. release: the release that must know the field;
    empty: any. elsewhere: a type within it that is judged elsewhere.
    """
    found = _unknown(obj, _Place(type=type_name, path=path, elsewhere=elsewhere), release)
    return tuple(islice(found, MAX_PROBLEMS))


def of_object(obj: Json, *, release: str = "") -> tuple[Problem, ...]:
    """Return the fields of a whole object that its kind does not have; none if the kind is not known."""
    type_name = known_fields.type_of(str(obj.get("apiVersion")), str(obj.get("kind")))
    return problems(obj, type_name, release=release) if type_name else ()


def of_workload(obj: Json) -> tuple[Problem, ...]:
    """Return the fields outside its pod templates that a workload of another project does not have.

    None of other kinds. A newer release of the project than the one that is known may have them.
    """
    kind = str(obj.get("apiVersion")), str(obj.get("kind"))
    type_name = known_fields.type_of_workload(*kind)
    if not type_name:
        return ()
    release = known_fields.release_of_workload(*kind)
    found = problems(obj, type_name, elsewhere=known_fields.POD_TEMPLATE)
    return tuple(Problem(one.field, f"{one.message} (fields are known as of {release})") for one in found)


def of_pod_template(template: Any, path: str, *, release: str = "") -> tuple[Problem, ...]:
    """Return the fields that a pod template of any kind does not have. path: of the template in its object."""
    return problems(template, known_fields.POD_TEMPLATE, path, release=release)


def is_judged(obj: Json) -> bool:
    """Return whether the fields of an object's kind are known."""
    return bool(known_fields.type_of(str(obj.get("apiVersion")), str(obj.get("kind"))))


def _unknown(value: Any, place: _Place, release: str) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        return
    fields = known_fields.fields_of(place.type)
    absent = known_fields.absent(place.type, release)
    for name, inner in value.items():
        kind = fields.get(name)
        if _is_of_flat_request(name, value, place):
            said = f"stands in {place.at('exactly')} today; `muster convert` writes the request so"
            yield Problem(place.at(str(name)), said)
        elif kind is None or name in absent:
            yield Problem(place.at(str(name)), _message(str(name), place, release, is_absent=kind is not None))
        elif known_fields.object_type(kind) not in (known_fields.ANY, place.elsewhere):
            yield from _inner(inner, kind, place, str(name), release)


def _is_of_flat_request(name: Any, request: Mapping[Any, Any], place: _Place) -> bool:
    """Return whether it is a field of a request of the earlier form; one that has `exactly` is of neither form."""
    if place.type != REQUEST or not {"exactly", "firstAvailable"}.isdisjoint(request):
        return False
    return name in known_fields.fields_of(EXACT_REQUEST) and name not in known_fields.fields_of(REQUEST)


def _inner(value: Any, kind: str, place: _Place, name: str, release: str) -> Iterator[Problem]:
    elements: Iterator[tuple[str, Any]] = iter((("", value),))
    if kind.startswith(known_fields.LIST):
        elements = ((f"[{at}]", one) for at, one in enumerate(value if isinstance(value, list) else ()))
    elif kind.startswith(known_fields.MAPPING):
        elements = ((f"[{key}]", one) for key, one in (value if isinstance(value, Mapping) else {}).items())
    type_name = known_fields.object_type(kind)
    for at, one in elements:
        inner = _Place(type=type_name, path=f"{place.at(name)}{at}", above=place, elsewhere=place.elsewhere)
        yield from _unknown(one, inner, release)


def _message(name: str, place: _Place, release: str, *, is_absent: bool) -> str:
    if is_absent:
        return f"is a field that Kubernetes {release} does not have; another release has it"
    if (place.type, name) in OF_EARLIER:
        return f"is no field today: write {OF_EARLIER[place.type, name]}; `muster convert` does what it can"
    hints = " or ".join(_meant(name, place))
    return f"is an unknown field; did you mean {hints}?" if hints else "is an unknown field"


def _meant(name: str, place: _Place) -> list[str]:
    """Return where a name belongs.

    What Kueue's is called here, one level below, above, in the pods that are made below, or the most similar name.
    """
    if len(name) > LONGEST_NAME:
        return []
    if name in OF_KUEUE and place.type.partition(".")[0] == QUEUE:
        return [OF_KUEUE[name]]
    below = dict(_below(place))
    exact = [path for path, field in below.items() if field == name]
    if 0 < len(exact) <= MOST_PLACES:
        return exact
    elsewhere = _above(name, place) or _in_pods(name, place)
    if elsewhere:
        return elsewhere
    similar = difflib.get_close_matches(name, known_fields.fields_of(place.type), n=1)
    if similar:
        return similar
    closest = difflib.get_close_matches(name, set(below.values()), n=1, cutoff=0.75)
    return [path for path, field in below.items() if field in closest][:MOST_PLACES]


def _above(name: str, place: _Place) -> list[str]:
    above = place.above
    while above is not None:
        if name in known_fields.fields_of(above.type):
            return [above.at(name)]
        above = above.above
    return []


def _in_pods(name: str, place: _Place) -> list[str]:
    """Return where a field of pods belongs that stands somewhere above the template that makes them."""
    templates = _pod_templates(place.type) if name in known_fields.fields_of(known_fields.POD_SPEC) else ()
    return [f"{place.at(template)}.spec.{name}" for template in templates] if len(templates) <= MOST_PLACES else []


@cache
def _pod_templates(type_name: str) -> tuple[str, ...]:
    """Return the paths from objects of a type to the pod templates below that are nearest; none if they are too far."""
    seen, level = {type_name}, [("", type_name)]
    for _ in range(DEEPEST_TEMPLATE):
        below = [
            (f"{path}.{name}{'[]' if kind != inner else ''}".removeprefix("."), inner)
            for path, within in level
            for name, kind in known_fields.fields_of(within).items()
            if (inner := known_fields.object_type(kind)) and inner not in seen
        ]
        found = tuple(path for path, inner in below if inner == known_fields.POD_TEMPLATE)
        if found:
            return found
        seen |= {inner for _, inner in below}
        level = below
    return ()


def _below(place: _Place) -> Iterator[tuple[str, str]]:
    """Yield path and name of each field one level below."""
    for name, kind in known_fields.fields_of(place.type).items():
        mark = "[]" if kind.startswith(known_fields.LIST) else ""
        type_name = known_fields.object_type(kind)
        if type_name and not kind.startswith(known_fields.MAPPING):
            for field in known_fields.fields_of(type_name):
                yield f"{place.at(name)}{mark}.{field}", field
