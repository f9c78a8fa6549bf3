"""Laws of what the API server decides about pods by itself: of a change it says what the webhook would, word by word.

And the pods of Jobs that it shows to nobody are those that Muster counts on not to see.
"""

from functools import cache
from typing import Any

import pytest
from hypothesis import assume, example, given, settings, strategies as st

from admission.api.values import names
from admission.cel import environment, expressions
from admission.cel.core import types, values
from admission.cel.expressions import Budget
from admission.kube.webhook_config import match_conditions, pod_policy
from admission.podpolicy import annotations, job_pods, pod_view, update
from admission.podpolicy.admission import JOB_CONTROLLERS
from admission.workloads.kinds import foreign_queues
from tests.unit.webhook.cases import CONTROLLER, GATES, RULES, a_pod

VARIABLES = ("object", "oldObject", "request", "variables")
RELEASES = (36, 37)
ENVIRONMENTS = {
    release: environment.for_variables(dict.fromkeys(VARIABLES, types.DYN), {}, release=release) for release in RELEASES
}
SPEC = pod_policy.policy(namespace="muster-system", controller=CONTROLLER)
CHECKED = tuple(
    dict.fromkeys((names.QUEUE, names.USER, names.PRIORITY_CLASS, names.RUNTIME, *update.FIXED_KEYS, "app"))
)
USERS = (CONTROLLER, "alice", *sorted(update.JOB_CHANGERS), "system:kube-scheduler", "system:node:n", CONTROLLER + "x")

TEXTS = st.sampled_from(["a", "b", "", "x.y/z", "{}", '"'])
KEYS = st.sampled_from([names.QUEUE, names.USER, names.PRIORITY_CLASS]) | st.sampled_from(CHECKED)
QUEUED = st.sampled_from([{names.QUEUE: "a"}, {names.QUEUE: "a"}, {names.QUEUE: "b"}, {names.QUEUE: ""}, {}])
FEW = st.dictionaries(KEYS, TEXTS, max_size=3)
GATE_LISTS = st.lists(st.sampled_from([*GATES, {"name": "other"}]), max_size=2, unique_by=lambda gate: gate["name"])
OWNERS = st.builds(
    lambda version, kind, uid, controls: (
        {"apiVersion": version, "kind": kind, "name": f"o-{uid}", "uid": uid} | controls
    ),
    st.sampled_from(["batch/v1", "batch/v1", "apps/v1"]),
    st.sampled_from(["Job", "Job", "ReplicaSet"]),
    st.sampled_from(["1", "2"]),
    st.sampled_from([{"controller": True}, {"controller": True}, {"controller": False}, {}]),
)


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return a pod in a queue before and after a change of any parts, most often of one, and by whom it is made."""
    parts: dict[str, st.SearchStrategy[Any]] = {
        "labels": st.builds(lambda rest, queue: rest | queue, FEW, QUEUED),
        "annotations": FEW,
        "gates": GATE_LISTS,
        "owners": st.lists(OWNERS, max_size=2),
    }
    old = {part: draw(strategy) for part, strategy in parts.items()}
    new = old | {part: draw(parts[part]) for part in sorted(draw(st.sets(st.sampled_from(["gates", "owners"]))))}
    for field, key, text in draw(
        st.lists(st.tuples(st.sampled_from(["labels", "annotations"]), KEYS, TEXTS), max_size=2)
    ):
        new[field] = {name: value for name, value in new[field].items() if name != key} | ({key: text} if text else {})
    assume(names.QUEUE in old["labels"] or names.QUEUE in new["labels"])
    return pod(**old), pod(**new), draw(st.sampled_from(USERS))


def pod(*, owners: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    """Return a pod; what is empty is left out, as by the API server."""
    made = a_pod(**{name: part for name, part in parts.items() if part})
    if owners:
        made["metadata"]["ownerReferences"] = owners
    return made


@cache
def compiled(text: str, release: int) -> expressions.Expression:
    expression = expressions.compile_text(text, ENVIRONMENTS[release])
    assert isinstance(expression, expressions.Expression), str(expression)
    return expression


class Evaluation:
    """One request as the policy sees it: an API server of a release, a pod before and after, and a user."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any], user: str, release: int) -> None:
        request = {"operation": "UPDATE", "resource": {"group": "", "resource": "pods"}, "userInfo": {"username": user}}
        self._seen = [values.from_json(one) for one in (new, old, request)]
        self._variables: dict[str, Any] = {}
        self._release = release
        self.budget = Budget()

    def of(self, text: str) -> Any:
        return compiled(text, self._release).evaluate([*self._seen, self._variables], self.budget)

    def refusal(self) -> str | None:
        """Return what the API server tells; None where it lets the change pass."""
        if not all(self.of(one["expression"]) for one in SPEC["matchConditions"]):
            return None
        for one in SPEC["variables"]:
            self._variables[one["name"]] = self.of(one["expression"])
        refused = next((one for one in SPEC["validations"] if not self.of(one["expression"])), None)
        return None if refused is None else str(self.of(refused["messageExpression"]))


def owned(uid: str, version: str = "batch/v1") -> dict[str, Any]:
    """Return a pod in a queue that a Job controls."""
    owner = {"apiVersion": version, "kind": "Job", "name": "train", "uid": uid, "controller": True}
    return pod(labels={names.QUEUE: "a"}, owners=[owner])


def classed(labels: dict[str, str]) -> dict[str, Any]:
    """Return a pod that waits in a queue."""
    return pod(labels={names.QUEUE: "a", **labels}, gates=GATES, owners=[])


@pytest.mark.usefixtures("cel_grammars")
@pytest.mark.parametrize("release", RELEASES)
@settings(deadline=None)
@example(change=(owned("1"), owned("2"), "alice"))
@example(change=(owned("1"), owned("2"), min(update.JOB_CHANGERS)))
@example(change=(owned("1", "apps/v1"), owned("2", "apps/v1"), "alice"))
@example(change=(classed({names.PRIORITY_CLASS: "a"}), classed({}), "alice"))
@example(change=(classed({names.PRIORITY_CLASS: "a"}), classed({names.PRIORITY_CLASS: "b"}), "alice"))
@given(change=changes())
def test_the_api_server_refuses_of_a_change_what_the_webhook_refuses_and_says_the_same(
    release: int, change: tuple[dict[str, Any], dict[str, Any], str]
) -> None:
    """But for priority classes that the queue lacks, which it does not know."""
    old, new, user = change
    views = (pod_view.decode(one, "ml") for one in (old, new))
    denial = update.judge(*views, username=user, rules=RULES, queues={})
    evaluation = Evaluation(old, new, user, release)

    said = evaluation.refusal()

    assert said == (None if denial is None else f"muster: {denial.reason}: {denial.message}")
    assert said is None or evaluation.of(match_conditions.MATTERS), "the webhook is asked about it as well"
    assert evaluation.budget.cost > Budget().cost * 0.99, "a hundredth of what the API server spends on an expression"


READ = tuple(
    sorted(
        {*annotations.KEYS, *CHECKED, *foreign_queues.PRIORITY_LABELS, *(one.key for one in foreign_queues.QUEUE_KEYS)}
    )
)
OTHER = st.dictionaries(
    st.sampled_from([*READ, names.COMPLETE, names.HELD, "muster.dev", "muster.dev/x", "a/b"]), TEXTS
)
OF_A_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
COMPLETE: dict[str, Any] = {
    "labels": {names.QUEUE: "a"},
    "annotations": {names.USER: "alice", names.COMPLETE: "true"},
    "gates": GATES,
    "owners": [OF_A_JOB],
    "nodeName": "",
}
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "labels": st.builds(lambda queue, other: queue | other, QUEUED, OTHER),
    "annotations": st.builds(
        lambda user, mark, other: {names.USER: user} | mark | other,
        TEXTS,
        st.sampled_from([{}, {names.COMPLETE: ""}, {names.COMPLETE: "true"}]),
        OTHER,
    ),
    "gates": GATE_LISTS,
    "owners": st.lists(OWNERS, max_size=2).filter(
        lambda owners: sum(one.get("controller", False) for one in owners) < 2
    ),
    "nodeName": st.sampled_from(["", "n"]),
}


@st.composite
def nearly_complete(draw: st.DrawFn) -> dict[str, Any]:
    """Return a new pod that differs from a complete one in a few parts, in each by anything."""
    changed = draw(st.lists(st.sampled_from(sorted(PARTS)), max_size=2, unique=True))
    return pod(**COMPLETE | {part: draw(PARTS[part]) for part in changed})


@pytest.mark.usefixtures("cel_grammars")
@settings(deadline=None)
@example(made=pod(**COMPLETE), user=min(JOB_CONTROLLERS))
@example(made=pod(**COMPLETE | {"labels": {names.QUEUE: "a", "muster.dev/x": ""}}), user=min(JOB_CONTROLLERS))
@given(made=nearly_complete(), user=st.sampled_from(sorted(JOB_CONTROLLERS)) | st.sampled_from(USERS))
def test_the_pods_that_are_shown_to_nobody_are_the_complete_ones_of_the_job_controller(
    made: dict[str, Any], user: str
) -> None:
    request = {"operation": "CREATE", "resource": {"group": "", "resource": "pods"}, "userInfo": {"username": user}}
    seen = [values.from_json(one) for one in (made, {}, request, {})]

    unshown = compiled(match_conditions.COMPLETE, min(RELEASES)).evaluate(seen, Budget())

    assert unshown == (user in JOB_CONTROLLERS and job_pods.is_complete(pod_view.decode(made, "ml")))
