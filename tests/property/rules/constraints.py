"""What the devices of one claim must have in common, or must not."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from tests.property.rules.reading import World
from tests.property.rules.records import Device, Json, Use


def broken(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """What a constraint names must be the same on all devices that it binds, or different on each."""
    for claim, obj in enumerate(cluster_state.record["claims"]):
        for constraint in obj["spec"].get("devices", {}).get("constraints") or ():
            scope = constraint.get("requests") or ()
            bound = [
                use
                for use in uses
                if use.ask.claim == claim and (not scope or use.ask.name in scope or use.ask.request in scope)
            ]
            kind = "matchAttribute" if constraint.get("matchAttribute") is not None else "distinctAttribute"
            attribute = constraint[kind]
            found = [_lookup(use.device, attribute) for use in bound]
            if None in found:
                yield f"{kind} {attribute} of claim {claim}: a device does not have it"
            else:
                sets = [
                    _values(each, lists=cluster_state.features["ListTypeAttributes"])
                    for each in found
                    if each is not None
                ]
                if not (_match if kind == "matchAttribute" else _differ)(sets):
                    yield f"{kind} {attribute} of claim {claim}: {found}"


def _lookup(device: Device, attribute: str) -> Json | None:
    domain, _, name = attribute.partition("/")
    own: Json = device.obj.get("attributes", {})
    found: Json | None = own.get(attribute)
    return found if found is not None or domain != device.driver else own.get(name)


def _values(attribute: Json, *, lists: bool) -> frozenset[tuple[str, Any]] | None:
    """Return the attribute's values, each with its type, one for a scalar; None for what cannot be compared."""
    for kind in ("string", "int", "bool", "version"):
        if kind in attribute:
            return frozenset({(kind, attribute[kind])})
        if lists and attribute.get(kind + "s"):
            return frozenset((kind, value) for value in attribute[kind + "s"])
    return None


def _match(sets: Sequence[frozenset[tuple[str, Any]] | None]) -> bool:
    """What cannot be compared is taken alone."""
    known = [each for each in sets if each is not None]
    return (len(known) == len(sets) and (not known or bool(frozenset.intersection(*known)))) or len(sets) == 1


def _differ(sets: Sequence[frozenset[tuple[str, Any]] | None]) -> bool:
    """What cannot be compared is taken only as the first."""
    known = [each for each in sets if each is not None]
    return None not in sets[1:] and not any(one & other for one, other in itertools.combinations(known, 2))
