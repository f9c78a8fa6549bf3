"""The problems for which the API server would refuse an object from a file: of its kind's rules, and of its CEL.

For `muster simulate`, which must not decide about an object that no cluster would store. Pure.
"""

from collections.abc import Iterator
from functools import lru_cache

from admission.api.validation import claims, objects
from admission.api.values.decoding import Json, Reader
from admission.cel import environment, limits
from admission.dra.compatibility import SchedulerProfile
from admission.errors import Problem


def problems(kind: str, obj: Json, profile: SchedulerProfile) -> tuple[Problem, ...]:
    """Return all problems of an object of resource.k8s.io, with their fields; none for other kinds."""
    reader = Reader(obj)
    for selector in _selectors(kind, reader):
        text = selector.child("cel").raw("expression")
        # The rules of the kind report an expression that is too long or not a text.
        if isinstance(text, str) and 0 < len(text.encode(errors="replace")) <= claims.LONGEST_EXPRESSION:
            refusal = _objection(text, profile.cel)
            if refusal is not None:
                selector.problem("cel.expression", f"is not CEL that Kubernetes takes: {refusal.message}")
    return tuple(dict.fromkeys((*objects.problems(kind, obj), *reader.problems)))


@lru_cache(maxsize=1024)
def _objection(text: str, compiler: environment.Profile) -> limits.Inadmissible | None:
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
