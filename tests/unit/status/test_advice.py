"""What would have to change for each reason, with the numbers."""

from typing import Any

import pytest

from admission.api.values.reasons import Hold, HoldReason
from admission.status import advice


@pytest.mark.parametrize("reason", list(HoldReason))
def test_every_reason_has_advice(reason: HoldReason) -> None:
    assert len(advice.for_hold(Hold(reason, ""), "team")) > 20


ADVICE: dict[str, tuple[HoldReason, dict[str, Any], str]] = {
    "quota that is missing": (
        *(HoldReason.QUOTA_EXCEEDED, {"meter": "gpus", "left": "1", "needed": "6"}),
        "5 more gpus have to become free in queue team: gangs end, its quota or borrowingLimit is raised",
    ),
    "quota that was overdrawn, in another unit": (
        *(HoldReason.QUOTA_EXCEEDED, {"meter": "memory", "left": "-1Gi", "needed": "3Gi"}),
        "4Gi more memory have to become free in queue team: gangs end, its quota or borrowingLimit is raised",
    ),
    "one pod that is missing": (
        *(HoldReason.GANG_INCOMPLETE, {"missing": 1, "pods": 3, "size": 4}),
        "1 more pod has to be created; look at the events of what makes them if that does not happen",
    ),
    "a queue above that is stopped": (
        *(HoldReason.QUEUE_STOPPED, {"queue": "lab"}),
        "`muster queue resume lab`, or its spec.stopPolicy set to None in another way",
    ),
    "a budget that is smaller than the gang": (
        HoldReason.BUDGET_EXHAUSTED,
        {"queue": "lab", "meter": "gpus", "hours": "1", "left": "1", "needed": "2"},
        (
            "the whole budget of queue lab is 1 gpus-hours, and the gang needs 2: raise the budget, or state a shorter"
            " muster.dev/runtime"
        ),
    ),
    "a budget": (
        HoldReason.BUDGET_EXHAUSTED,
        {"queue": "lab", "meter": "gpus", "hours": "100", "left": "7.5", "needed": "16", "reset": "2026-12-01"},
        (
            "8.5 more gpus-hours: the budget of queue lab is raised from 100 to at least 108.5, gangs give back what"
            " they were promised, its next period begins (2026-12-01), or the gang makes do with 7.5"
        ),
    ),
    "devices that are in use": (
        HoldReason.DEVICES_BUSY,
        {"deviceClass": "gpu", "needed": 4, "mostFree": 1, "node": "a", "holders": ["ml/x", "ml/y"]},
        "3 more devices of class gpu have to become free on node a, or as many on another; such are held by ml/x, ml/y",
    ),
    "more devices than a node has": (
        HoldReason.NO_FEASIBLE_PLACEMENT,
        {"deviceClass": "gpu", "needed": 9, "mostFree": 8, "matching": 8, "request": "r", "claim": "c"},
        (
            "waiting does not help: at most 8 in request r of claim c, which is the most that a node has; or a node"
            " with 9 devices of class gpu"
        ),
    ),
    "devices that the gang's own pods take": (
        *(HoldReason.NO_FEASIBLE_PLACEMENT, {"deviceClass": "gpu", "needed": 1, "mostFree": 0, "matching": 1}),
        "waiting does not help: fewer pods in the gang, or more nodes for it with devices of class gpu",
    ),
    "a claim that does not exist": (
        *(HoldReason.WAITING_FOR_CLAIMS, {"pod": "p", "claim": "c"}),
        "the claim or template that is named has to exist; Kubernetes makes claims from templates by itself",
    ),
    "a claim that still has devices": (
        *(HoldReason.WAITING_FOR_CLAIMS, {"claim": "ns/c"}),
        "claim ns/c has to be seen as the sentence above says; that mostly passes by itself",
    ),
    "a fence that counts soon": (
        *(HoldReason.WAITING_FOR_CLAIMS, {"driver": "d"}),
        "nothing: what the sentence above waits for passes by itself",
    ),
    "devices that no node has": (
        HoldReason.NO_FEASIBLE_PLACEMENT,
        {"deviceClass": "gpu", "needed": 1, "mostFree": 0, "matching": 0, "request": "r", "claim": "c"},
        (
            "waiting does not help: another class or selector for request r of claim c, or nodes with devices of class"
            " gpu that match"
        ),
    ),
    "a request that is not answered": (
        *(HoldReason.NODES_NEEDED, {"nodes": 2, "provisioningRequest": "train-1"}),
        (
            "an autoscaler has to answer ProvisioningRequest train-1 (`kubectl describe provreq train-1`);"
            " until then its quota is reserved, at most for the queue's provisioning.timeout"
        ),
    ),
    "nodes where kube-scheduler refused its pods": (
        HoldReason.START_TIMED_OUT,
        {"evictions": 1, "refusedOn": ["n1", "n2"]},
        (
            "what kube-scheduler says is in the way on n1, n2: a node is tried again once a pod ends there or it"
            " changes, at the latest after an hour; until then the gang needs a place on others"
        ),
    ),
    "more than the queue can ever have": (
        *(HoldReason.QUOTA_EXCEEDED, {"meter": "gpus", "needed": "28", "left": "0", "potential": "24"}),
        (
            "waiting does not help: ask for at most 24 gpus, or raise what queue team can have: its quota or"
            " borrowingLimit, or the quotas of the queues that it borrows from"
        ),
    ),
    "a constraint": (
        *(HoldReason.NO_FEASIBLE_PLACEMENT, {"constraints": ["matchAttribute pcieRoot"], "claims": ["c"]}),
        (
            "waiting does not help: fewer devices on one node, or without matchAttribute pcieRoot; or nodes that have"
            " them so"
        ),
    ),
}


@pytest.mark.parametrize(("reason", "details", "said"), ADVICE.values(), ids=ADVICE)
def test_the_advice_for_a_hold_names_what_is_missing(reason: HoldReason, details: dict[str, Any], said: str) -> None:
    assert advice.for_hold(Hold(reason, "", details), "team") == said
