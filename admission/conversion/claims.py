"""Claims as early walkthroughs wrote them: constraints in CEL, and selectors in their words."""

from collections.abc import Container, Iterator, MutableMapping
from typing import Any

from admission.conversion import selectors
from admission.conversion.domains import Domains
from admission.conversion.equivalents import Object, items
from admission.conversion.findings import Findings


def constraints_to_selectors(spec: Any, path: str, findings: Findings) -> None:
    """Move the constraints of a claim that are CEL to the selectors of the requests that they are about."""
    devices = spec.get("devices") if isinstance(spec, MutableMapping) else None
    constraints = devices.get("constraints") if isinstance(devices, MutableMapping) else None
    if not isinstance(devices, MutableMapping) or not isinstance(constraints, list):
        return
    targets = [*items(devices, "requests", path)]
    kept = []
    for at, constraint in enumerate(constraints):
        place = f"{path}.devices.constraints[{at}]"
        if not _is_cel(constraint):
            kept.append(constraint)
            continue
        wanted = constraint.get("requests") or []
        meant = [one for _, one in targets if not wanted or (isinstance(wanted, list) and one.get("name") in wanted)]
        places = [owner for request in meant for _, owner in _owners(request, "")]
        if not places or set(constraint) - {"cel", "requests"}:
            kept.append(constraint)
            findings.left(place, "a constraint has no CEL: write a selector of each request, or matchAttribute")
            continue
        for number, owner in enumerate(places):
            # The first keeps the text that it was written in, with its comments.
            cel = constraint["cel"] if number == 0 else {**constraint["cel"]}
            own = owner.get("selectors")
            owner["selectors"] = [*(own if isinstance(own, list) else ()), {"cel": cel}]
        names = ", ".join(str(one.get("name")) for one in meant)
        findings.changed(place, f"CEL is a selector of each request: of {names}")
    if not kept:
        del devices["constraints"]
    elif len(kept) < len(constraints):
        constraints[:] = kept


def _is_cel(constraint: Any) -> bool:
    return isinstance(constraint, MutableMapping) and isinstance(constraint.get("cel"), MutableMapping)


def _owners(request: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Yield the parts of a request that have selectors, each with its path."""
    exactly = request.get("exactly")
    if isinstance(exactly, MutableMapping):
        yield f"{path}.exactly", exactly
    yield from items(request, "firstAvailable", path)


def flat_requests(spec: Any) -> frozenset[int]:
    """Return the places of the requests of a claim that are not in `exactly` yet."""
    devices = spec.get("devices") if isinstance(spec, MutableMapping) else None
    requests = [one for _, one in items(devices, "requests", "")]
    return frozenset(at for at, request in enumerate(requests) if "exactly" not in request)


def convert_selectors(
    spec: Any, path: str, flat: Container[int], domains: Domains, findings: Findings, *, compiles: bool
) -> None:
    """Write the selectors of a claim as they are written today. path: of the spec; flat: `flat_requests` as read."""
    devices = spec.get("devices") if isinstance(spec, MutableMapping) else None
    for at, (place, request) in enumerate(items(devices, "requests", f"{path}.devices")):
        for inner, owner in _owners(request, place):
            read = inner.removesuffix(".exactly") if at in flat else inner
            convert_in(owner, read, domains, findings, compiles=compiles)


def convert_in(owner: Object, path: str, domains: Domains, findings: Findings, *, compiles: bool) -> None:
    """Write the selectors of a class, of `exactly` or of an alternative as they are written today."""
    name = owner.get("deviceClassName")
    for place, selector in items(owner, "selectors", path):
        cel = selector.get("cel")
        text = cel.get("expression") if isinstance(cel, MutableMapping) else None
        if not isinstance(cel, MutableMapping) or not isinstance(text, str):
            continue
        converted = selectors.convert(text, domains.of(text, name), compiles=compiles)
        for level, message in converted.remarks:
            findings.add(level, f"{place}.cel.expression", message)
        if converted.text != text:
            cel["expression"] = converted.text
