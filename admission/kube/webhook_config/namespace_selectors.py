"""Selectors of namespaces that several webhooks share; for `registration`."""

from collections.abc import Iterable
from dataclasses import replace

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
