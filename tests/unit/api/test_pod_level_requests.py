"""Pod-level requests as the API server completes them, and what a refused resize leaves of a pod's requests."""

from typing import Any

import pytest

from admission.api.kubernetes import pods

GIB = 2**30

CASES: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, int]]] = {
    "a limit of the pod is its request where no container requests any": (
        {"limits": {"memory": "2Gi"}},
        {},
        {"memory": 2 * GIB},
    ),
    "what containers request comes before a limit of the pod": (
        {"limits": {"memory": "2Gi", "cpu": "4"}},
        {"memory": "1Gi"},
        {"memory": GIB, "cpu": 4000},
    ),
    "a request of the pod comes before all": (
        {"requests": {"memory": "3Gi"}, "limits": {"memory": "4Gi"}},
        {"memory": "1Gi"},
        {"memory": 3 * GIB},
    ),
    "huge pages that the pod alone limits": ({"limits": {"hugepages-2Mi": "4Mi"}}, {}, {"hugepages-2Mi": 2**22}),
}


@pytest.mark.parametrize(("level", "container", "expected"), CASES.values(), ids=CASES)
def test_a_pod_requests(level: dict[str, Any], container: dict[str, str], expected: dict[str, int]) -> None:
    spec = {"resources": level, "containers": [{"name": "c", "resources": {"requests": container}}]}

    assert pods.decode({"metadata": {"name": "p"}, "spec": spec}).requests == {**expected, "pods": 1}


def test_a_resize_that_is_refused_leaves_what_statuses_name() -> None:
    requests = {"cpu": "2", "ephemeral-storage": "1Gi"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    status = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }

    assert pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": status}).requests == {"cpu": 1000, "pods": 1}
