"""How many pods of a Job may be evicted without that the Job fails."""

from typing import Any

import pytest

from admission.api.kubernetes import jobs

IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAILS = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
OTHER = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}

SPARE: dict[str, tuple[dict[str, Any], int, str, int | None]] = {
    "by default six pods may fail, of which one is left to the Job itself": ({}, 0, "", 5),
    "pods that have failed count": ({"backoffLimit": 4}, 2, "", 1),
    "none is left": ({"backoffLimit": 4}, 9, "", 0),
    "a Job that may lose none": ({"backoffLimit": 0}, 0, "", 0),
    "by index the pods of others do not count": ({"backoffLimitPerIndex": 3}, 9, "1", 1),
    "by index, the first pod": ({"backoffLimitPerIndex": 3}, 9, "", 2),
    "evicted pods are ignored": ({"podFailurePolicy": {"rules": [OTHER, IGNORED]}, "backoffLimit": 0}, 3, "", None),
    "the first rule that matches decides": ({"podFailurePolicy": {"rules": [FAILS, IGNORED]}}, 0, "", 0),
    "rules about something else": ({"podFailurePolicy": {"rules": [OTHER]}}, 0, "", 5),
}


@pytest.mark.parametrize(("spec", "failed", "of_index", "spare"), SPARE.values(), ids=SPARE)
def test_a_job_may_lose_so_many_pods(spec: dict[str, Any], failed: int, of_index: str, spare: int | None) -> None:
    obj = {"metadata": {"name": "a", "namespace": "team"}, "spec": spec, "status": {"failed": failed}}
    annotations = {jobs.INDEX_FAILURES: of_index} if of_index else {}

    assert jobs.decode(obj).spare_failures(annotations) == spare
