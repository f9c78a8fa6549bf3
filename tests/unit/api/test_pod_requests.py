"""What a pod requests while it is resized in place: what kube-scheduler counts, and what the kubelet has given."""

from typing import Any

import pytest

from admission.api.kubernetes import pods

Json = dict[str, Any]


def container(name: str, cpu: str, **more: Any) -> Json:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "example.com/gpu": "2"}}, **more}


def given(name: str, *, allocated: str, actuated: str = "") -> Json:
    """Return the status of a container with so much CPU; actuated: the same if not given."""
    resources = {"requests": {"cpu": actuated or allocated, "example.com/gpu": "2"}}
    return {"name": name, "allocatedResources": {"cpu": allocated, "example.com/gpu": "2"}, "resources": resources}


def pending(reason: str) -> list[Json]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}]


MAIN = {"containers": [container("main", "4")]}
TWO = {"containers": [container("main", "4")], "initContainers": [container("side", "3", restartPolicy="Always")]}
FIRST = {"containers": [container("main", "4")], "initContainers": [container("first", "8")]}
LEVEL = {"containers": [container("main", "1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "1"}}

CASES: dict[str, tuple[Json, Json, int, int]] = {
    "a pod of which the kubelet says nothing": (MAIN, {}, 4, 4),
    "one that has what it wants": (MAIN, {"containerStatuses": [given("main", allocated="4")]}, 4, 4),
    "the same, written otherwise": (MAIN, {"containerStatuses": [given("main", allocated="4000m")]}, 4, 4),
    "one that wants more, and the kubelet has not answered": (
        MAIN,
        {"containerStatuses": [given("main", allocated="2")]},
        4,
        2,
    ),
    "more is put off": (
        MAIN,
        {"containerStatuses": [given("main", allocated="2")], "conditions": pending("Deferred")},
        4,
        2,
    ),
    "more is accepted, and not done yet": (
        MAIN,
        {"containerStatuses": [given("main", allocated="4", actuated="2")]},
        4,
        4,
    ),
    "more than the node has is not counted": (
        MAIN,
        {"containerStatuses": [given("main", allocated="2")], "conditions": pending("Infeasible")},
        2,
        2,
    ),
    "one that wants less, and the kubelet has not answered": (
        MAIN,
        {"containerStatuses": [given("main", allocated="6")]},
        6,
        6,
    ),
    "less is accepted, and not done yet": (
        MAIN,
        {"containerStatuses": [given("main", allocated="4", actuated="6")]},
        6,
        6,
    ),
    "a sidecar that wants more": (
        TWO,
        {
            "containerStatuses": [given("main", allocated="4")],
            "initContainerStatuses": [given("side", allocated="1")],
        },
        7,
        5,
    ),
    "a container whose init container needed more anyway": (
        FIRST,
        {
            "containerStatuses": [given("main", allocated="2")],
            "initContainerStatuses": [given("first", allocated="8")],
        },
        8,
        8,
    ),
    "a container without a status": (TWO, {"containerStatuses": [given("main", allocated="1")]}, 7, 4),
    "requests of the pod that are met": (
        LEVEL,
        {"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "4"}}},
        5,
        5,
    ),
    "requests of the pod that are not yet": (
        LEVEL,
        {"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}},
        5,
        3,
    ),
}


def test_1_36_adds_up_the_most_of_each_container() -> None:
    """One container grows while another shrinks: 1.37 counts the larger sum, 1.36 the sum of the larger."""
    spec = {"containers": [container("one", "4"), container("two", "1")]}
    statuses = [given("one", allocated="1"), given("two", allocated="4")]

    pod = pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": {"containerStatuses": statuses}})

    assert (pod.counted["cpu"], pod.counted_by_1_36["cpu"]) == (5000, 8000)


def test_1_36_counts_what_is_given_beside_a_pod_level_request_of_something_else() -> None:
    """It stores such requests as they are written; 1.37 completes them, and they then replace what containers have."""
    main = {"name": "main", "resources": {"requests": {"memory": "128Mi"}}}
    status = {
        "name": "main",
        "allocatedResources": {"memory": "128Mi"},
        "resources": {"requests": {"memory": "1Gi"}},
    }
    spec = {"containers": [main], "resources": {"requests": {"cpu": "1"}}}

    pod = pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": {"containerStatuses": [status]}})

    assert (pod.counted["memory"] >> 20, pod.counted_by_1_36["memory"] >> 20) == (128, 1024)


def test_a_name_that_is_no_text_is_no_name() -> None:
    spec = {"containers": [container("one", "4") | {"name": {}}]}

    pod = pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": {"containerStatuses": [{"name": []}]}})

    assert pod.counted["cpu"] == 4000


@pytest.mark.parametrize(("spec", "status", "counted", "taken"), CASES.values(), ids=CASES)
def test_a_resize_counts_for_nodes_at_once_and_is_taken_when_the_kubelet_gives_it(
    spec: Json, status: Json, counted: int, taken: int
) -> None:
    pod = pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": status})

    assert (pod.requests["cpu"], pod.taken["cpu"]) == (counted * 1000, taken * 1000)
    assert pod.taken["example.com/gpu"] == pod.requests["example.com/gpu"] == (4 if spec is TWO else 2)
    assert pod.taken["pods"] == 1
    assert (pod.given is None) == (counted == taken)
