"""Match conditions, evaluated as the API server does, and pods of Jobs to ask them of."""

from functools import cache
from typing import Any

from admission.cel import environment, expressions
from admission.cel.core import types, values
from admission.cel.expressions import Budget
from tests.unit.webhook.cases import held

VARIABLES = ("object", "oldObject", "request")
ENVIRONMENT = environment.for_variables(dict.fromkeys(VARIABLES, types.DYN), {}, release=37)
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "one", "controller": True}
JOBS = ("batch", "jobs")


@cache
def compiled(text: str) -> expressions.Expression:
    expression = expressions.compile_text(text, ENVIRONMENT)
    assert isinstance(expression, expressions.Expression), str(expression)
    return expression


def holds(
    text: str,
    new: dict[str, Any],
    old: dict[str, Any] | None = None,
    subresource: str = "",
    resource: tuple[str, str] = ("", "pods"),
    *,
    user: str = "alice",
) -> bool:
    """Evaluate a condition for an object that is created, or changed from `old`."""
    request = {
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"group": resource[0], "resource": resource[1]},
        "userInfo": {"username": user},
        **({"subResource": subresource} if subresource else {}),
    }
    answer = compiled(text).evaluate([values.from_json(one) for one in (new, old or {}, request)], Budget())
    assert isinstance(answer, bool)
    return answer


def owned(*owners: dict[str, Any], **rest: Any) -> dict[str, Any]:
    pod = held(**rest)
    pod["metadata"]["ownerReferences"] = list(owners)
    return pod
