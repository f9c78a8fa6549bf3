"""Rules of the webhooks: resources and operations, for workloads with match conditions; for `registration`."""

from collections.abc import Iterable
from typing import Any

from admission.api.values import names
from admission.kube.webhook_config import match_conditions
from admission.workloads import suspendable, template_labels

NAMED = ("names-queue", match_conditions.NAMES_QUEUE)
UNNAMED = ("names-none", match_conditions.NAMES_NONE)
NEW_UNNAMED = ("new-names-none", match_conditions.NEW_UNNAMED)
NOT_NEW_UNNAMED = ("not-new-names-none", f"!({match_conditions.NEW_UNNAMED})")
UNOWNED = ("unowned", match_conditions.UNOWNED)
MAY_BE_REFUSED = ("not-plain", match_conditions.MAY_BE_REFUSED)
NOT_HELD = ("not-held", match_conditions.NOT_HELD)
NOT_MARKED = ("not-marked", match_conditions.NOT_MARKED)
NOT_NAMED = ("not-named", f"!(({match_conditions.NAMES_QUEUE}) && {match_conditions.NOT_MARKED})")
"""False for new Jobs that name their queue, which are shown for that: their maker is written by the same call."""
NOT_AS_HELD = ("not-as-held", match_conditions.NOT_AS_HELD)


def pod(*operations: str, resource: str = "pods") -> dict[str, Any]:
    return rule("", resource, *operations)


def claim(*operations: str) -> dict[str, Any]:
    """Return the rule for claims and templates. With matchPolicy Equivalent, the API server sends them all as v1."""
    return {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["resourceclaims", "resourceclaimtemplates"],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def job(*operations: str) -> dict[str, Any]:
    return rule("batch", "jobs", *operations)


def rule(group: str, resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def workloads(controller: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    """Return rules and match conditions for all workloads, when they are made or their templates change.

    controller: Muster's user. conditions: name and CEL of further ones.
    """
    rules = [_workload(one.group, one.plural, one.versions) for one in template_labels.ALL]
    return {"rules": rules, "matchConditions": _conditions(controller, *conditions, _RENAMED)}


def held_workloads(controller: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    """Return the same for those that can be held as a whole, when they are made, suspended or resumed."""
    rules = [_workload(one.group, one.plural, one.versions) for one in suspendable.ALL]
    return {"rules": rules, "matchConditions": _conditions(controller, _RESUMED, _FREE, *conditions)}


_RENAMED = ("new-template", match_conditions.RENAMED)
_RESUMED = ("resumed", match_conditions.RESUMED)
_FREE = ("free", match_conditions.FREE)


def _conditions(controller: str, *conditions: tuple[str, str]) -> list[dict[str, str]]:
    found = (("not-by-muster", match_conditions.not_by(controller)), *conditions)
    return [{"name": name, "expression": expression} for name, expression in found]


def _workload(group: str, resource: str, versions: Iterable[str]) -> dict[str, Any]:
    """Return the rule for a kind that makes pods. versions: of the same shape."""
    return rule(group, resource, "CREATE", "UPDATE") | {"apiVersions": list(versions)}


def own_objects() -> list[dict[str, Any]]:
    """Return the rules for Muster's own objects."""
    common = {"apiGroups": [names.GROUP], "apiVersions": [names.VERSION]}
    cluster = {
        "resources": ["queues", "meters", "claimpolicies", "nodeshapes"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
    }
    namespaced = {"resources": ["gangs"], "operations": ["CREATE", "UPDATE"]}
    return [common | cluster | {"scope": "Cluster"}, common | namespaced | {"scope": "Namespaced"}]
