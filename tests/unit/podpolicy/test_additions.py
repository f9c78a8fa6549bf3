"""What the mutating half adds to a new pod."""

from typing import Any

import pytest

from admission.api.values import names
from admission.errors import RetryError
from admission.podpolicy import pod_view
from tests.unit.scheduling import plan_inputs
from tests.unit.webhook.cases import GATES, World, a_cluster, a_pod, held


def add_gate(gates: Any = None) -> dict[str, Any]:
    if gates is None:
        return {"op": "add", "path": "/spec/schedulingGates", "value": GATES}
    return {"op": "add", "path": "/spec/schedulingGates/-", "value": gates}


KUEUE_CLASS = "kueue.x-k8s.io/priority-class"
LABEL_POINTER = "/metadata/labels/muster.dev~1queue"

ADDITIONS: dict[str, tuple[World, dict[str, Any], list[dict[str, Any]]]] = {
    "a pod that names its queue gets the gate": (a_cluster(), a_pod(labels={names.QUEUE: "team-a"}), [add_gate()]),
    "gates of others stay": (
        a_cluster(),
        a_pod(labels={names.QUEUE: "team-a"}, gates=[plan_inputs.OTHER_GATE]),
        [add_gate(GATES[0])],
    ),
    "an empty list of gates is added to": (
        a_cluster(),
        a_pod(labels={names.QUEUE: "team-a"}, gates=[]),
        [add_gate(GATES[0])],
    ),
    "a pod that has all gets nothing": (a_cluster(), held(), []),
    "the default queue is written on a pod without labels": (
        World().queue("team-a", default=True),
        a_pod(),
        [add_gate(), {"op": "add", "path": "/metadata/labels", "value": {names.QUEUE: "team-a"}}],
    ),
    "the default queue is written beside other labels": (
        World().queue("team-a", default=True),
        a_pod(labels={"app": "x"}),
        [add_gate(), {"op": "add", "path": LABEL_POINTER, "value": "team-a"}],
    ),
    "an empty label names no queue": (
        World().queue("team-a", default=True),
        a_pod(labels={names.QUEUE: ""}),
        [add_gate(), {"op": "add", "path": LABEL_POINTER, "value": "team-a"}],
    ),
    "a named queue goes before the default": (
        World().queue("team-a", default=True).queue("other"),
        held("other"),
        [],
    ),
    "Kueue's priority class is written as the queue's of that name": (
        World().queue("team-a", priorityClasses=[{"name": "urgent", "value": 9}]),
        held(labels={KUEUE_CLASS: "urgent"}),
        [{"op": "add", "path": "/metadata/labels/muster.dev~1priority-class", "value": "urgent"}],
    ),
    "Kueue's priority class that the queue does not have says nothing": (
        a_cluster(),
        held(labels={KUEUE_CLASS: "urgent"}),
        [],
    ),
    "Kueue's priority class does not replace one of the queue": (
        World().queue("team-a", priorityClasses=[{"name": "urgent", "value": 9}]),
        held(labels={KUEUE_CLASS: "urgent"}, annotations={names.PRIORITY_CLASS: "low"}),
        [],
    ),
    "two defaults are none": (World().queue("a", default=True).queue("b", default=True), a_pod(), []),
    "a default that is being deleted makes room for another": (
        World().queue("a", default=True).queue("b", default=True).deleted("a"),
        a_pod(labels={"app": "x"}),
        [add_gate(), {"op": "add", "path": LABEL_POINTER, "value": "b"}],
    ),
    "a default that is being deleted is better than none": (
        World().queue("a", default=True).deleted("a"),
        a_pod(labels={"app": "x"}),
        [add_gate(), {"op": "add", "path": LABEL_POINTER, "value": "a"}],
    ),
    "a queue that is not the default is not entered unasked": (a_cluster(), a_pod(), []),
    "a default of another namespace is none": (World().queue("team-b", team="b", default=True), a_pod(), []),
    "a parent is nobody's default": (World().queue("root", team=None, default=True), a_pod(), []),
    "an unknown queue is left for the validating half": (a_cluster(), a_pod(labels={names.QUEUE: "nope"}), []),
    "a queue that is not open is left for the validating half": (
        a_cluster(),
        a_pod(labels={names.QUEUE: "team-b"}),
        [],
    ),
    "a bound pod gets no gate, which the API server would refuse in other words": (
        a_cluster(),
        a_pod(labels={names.QUEUE: "team-a"}, nodeName="n1"),
        [],
    ),
}


@pytest.mark.parametrize(("cluster_state", "pod", "wanted"), ADDITIONS.values(), ids=ADDITIONS)
def test_a_new_pod_gets_the_expected_patch(
    cluster_state: World, pod: dict[str, Any], wanted: list[dict[str, Any]]
) -> None:
    arrival = pod_view.decode(pod, "ml")

    assert list(plan_inputs.added(arrival, cluster_state.build())) == wanted


@pytest.mark.parametrize("pod", [a_pod(), held()], ids=["default", "named"])
def test_a_pod_in_a_namespace_that_was_not_seen_yet_is_answered_later(pod: dict[str, Any]) -> None:
    cluster_state = World().queue("team-a", default=True).build()

    with pytest.raises(RetryError, match="namespace new has not been seen yet"):
        plan_inputs.added(pod_view.decode(pod, "new"), cluster_state)


def test_a_pod_of_no_queue_is_answered_though_its_namespace_was_not_seen_yet() -> None:
    assert plan_inputs.added(pod_view.decode(a_pod(), "new"), a_cluster().build()) == ()
