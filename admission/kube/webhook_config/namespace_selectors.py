"""Selectors of namespaces that several webhooks share; for `registration`."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from admission.api.values.selectors import LabelSelector, Requirement

_OPPOSITE = {"NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}


def complement(selectors: Iterable[LabelSelector]) -> LabelSelector | None:
    """Return a selector that excludes the namespaces of these selectors; None when they select every namespace.

    A selector with several requirements has no opposite that can be expressed, so it is skipped: pods there that name
    a queue are sent twice.
    """
    requirements: list[Requirement] = []
    values: dict[str, set[str]] = {}
    for selector in selectors:
        match selector.requirements:
            case ():
                return None
            case (Requirement(operator="In") as requirement,):
                values.setdefault(requirement.key, set()).update(requirement.values)
            case (requirement,):
                requirements.append(replace(requirement, operator=_OPPOSITE[requirement.operator]))
            case _:
                continue
    requirements += (
        Requirement(key=key, operator="NotIn", values=tuple(sorted(values[key]))) for key in sorted(values)
    )
    return LabelSelector(requirements=tuple(requirements))


def distinct(selectors: Iterable[LabelSelector]) -> tuple[LabelSelector, ...]:
    """Return each selector once, in a stable order."""
    by_digest = {digest(selector): selector for selector in selectors}
    return tuple(by_digest[key] for key in sorted(by_digest))


def digest(selector: LabelSelector) -> str:
    """Return eight hex digits that identify a selector, independent of the order of its requirements."""
    text = json.dumps(sorted(json.dumps(expression(r), sort_keys=True) for r in selector.requirements))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def expression(requirement: Requirement) -> dict[str, Any]:
    """Return a requirement as an entry of `matchExpressions`."""
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
