"""A text is written for its reader: nothing that users of one namespace read names what is in another one."""

import pytest

from admission.api.muster import gang_references
from admission.api.values.reasons import DenyReason, EventReason, EvictionReason, HoldReason
from admission.api.values.references import EVERYWHERE
from tests import teams

OWN = "its words are about the gang itself, its own namespace and queues"

DECISIONS: dict[str, dict[str, str]] = {
    "HoldReason": {
        "GangIncomplete": OWN,
        "QueueStopped": OWN,
        "QueueInactive": OWN,
        "QuotaExceeded": "preempted_for_quota",
        "BudgetExhausted": OWN,
        "DevicesBusy": "busy",
        "NoFeasiblePlacement": "fenced_in_vain",
        "WaitingForClaims": "fenced_later",
        "BehindInOrder": "strict",
        "PoolIncomplete": OWN,
        "StartTimedOut": OWN,
        "PlacementFailed": "taken_meanwhile",
        "RuntimeExceeded": OWN,
        "SearchLimit": OWN,
        "NotSimulated": OWN,
        "NotHoldable": OWN,
        "LedgerUnavailable": OWN,
        "InternalError": OWN,
    },
    "EvictionReason": {
        "Preempted": "preempted",
        "Reclaimed": "reclaimed",
        "RuntimeExceeded": OWN,
        "QueueDrained": OWN,
    },
    "EventReason": {
        "Admitted": OWN,
        "NotTogether": OWN,
        "FellBack": "tolerated",
        "Evicted": "taken_after_the_first_gate",
        "PlacedAnew": "taken_meanwhile",
        "WriteFailed": OWN,
        "DevicesProtected": OWN,
        "ProtectionLost": "breached",
        "FinalizerKept": OWN,
    },
    "DenyReason": {str(reason): OWN for reason in DenyReason} | {"PolicyViolation": "same_name"},
}
"""For each reason, whether its words refer to other objects than the gang's own, and the scene that shows it then."""


@pytest.mark.parametrize("reasons", [HoldReason, EvictionReason, EventReason], ids=lambda one: one.__name__)
def test_of_every_reason_it_is_decided_whether_it_refers_to_others(reasons: type[HoldReason]) -> None:
    decided = DECISIONS[reasons.__name__]

    assert decided.keys() == {str(reason) for reason in reasons}
    assert {scene for scene in decided.values() if scene != OWN} <= teams.SCENES.keys()


SCENES_OF = sorted(
    {(scene, reason) for decided in DECISIONS.values() for reason, scene in decided.items() if scene != OWN}
)


@pytest.mark.parametrize(("scene", "reason"), SCENES_OF)
async def test_a_reason_that_refers_to_others_is_seen_in_its_scene(scene: str, reason: str) -> None:
    cluster = (await teams.SCENES[scene]()).cluster

    holds = {obj["status"]["hold"]["reason"] for _, obj in cluster.written if "hold" in obj.get("status", {})}
    assert reason in cluster.referring() | cluster.events() | (holds & set(DenyReason))


@pytest.mark.parametrize(("scene", "condition"), [("deleted", "Active"), ("tolerated", "DevicesProtected")])
async def test_the_condition_of_a_queue_refers_to_others_in_its_scene(scene: str, condition: str) -> None:
    assert condition in (await teams.SCENES[scene]()).cluster.referring()


@pytest.mark.parametrize("scene", teams.SCENES)
async def test_nothing_that_is_written_for_one_namespace_names_another(scene: str) -> None:
    cluster = (await teams.SCENES[scene]()).cluster

    assert cluster.written
    assert not [*cluster.leaks()]


NAMED = {
    "busy": "claim hidden-ns/merger-with-acme-first-0-gpus of gang hidden-ns/merger-with-acme-first-",
    "strict": "gang hidden-ns/merger-with-acme-large-",
    "backfilled": "when gang hidden-ns/merger-with-acme-runs-",
    "unknown_ends": "nobody says how long gang hidden-ns/merger-with-acme-endless-",
    "preempted": "gang plain-ns/our-work-high-",
    "reclaimed": "gang plain-ns/our-work-owns-",
    "preempted_for_quota": "gang hidden-ns/merger-with-acme-low-",
    "taken_meanwhile": "is in use by claim hidden-ns/merger-with-acme-stray",
    "tolerated": "claim hidden-ns/merger-with-acme-stray (request gpus) tolerates",
    "fenced_in_vain": "claim hidden-ns/merger-with-acme-stray (request gpus) tolerates",
    "breached": "claim hidden-ns/merger-with-acme-stray has device",
    "fenced_later": "the fence waits until gang hidden-ns/merger-with-acme-pinned-",
}


@pytest.mark.parametrize(("scene", "named"), NAMED.items(), ids=NAMED)
async def test_who_may_read_everything_is_given_the_names(scene: str, named: str) -> None:
    """So that the other tests would fail if nobody but the gang itself were in the scene."""
    reports = (await teams.SCENES[scene]()).reports()

    assert named in repr([gang_references.for_reader(report, EVERYWHERE) for report in reports])
