"""A pod that grows in place: what its queue has left now, by the status of Gangs, and what it could ever have."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.admission_review import ALLOWED, Verdict
from admission.api.muster import gangs
from admission.api.values.reasons import DenyReason
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import RULES, MemoryView, World, a_pod, held, update

CORES = [{"meter": "cores", "nominal": "8"}]
ALONE = World().queue("team-a", quotas=CORES).rated("cores", {"name": "cpu"})
LENT = (
    World()
    .queue("root", team=None, quotas=[])
    .queue("team-a", parent="root", quotas=[{"meter": "cores", "nominal": "2"}])
    .queue("team-b", team="b", parent="root", quotas=CORES)
    .rated("cores", {"name": "cpu"})
)


def running(cpu: str, **pod: Any) -> dict[str, Any]:
    return held(gates=[], containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **pod)


def a_gang(name: str, queue: str, cores: int) -> gangs.Gang:
    return gangs.decode(
        {
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"queue": queue, "size": 1},
            "status": {"phase": "Running", "charges": {"cores": str(cores)}},
        }
    )


def resized(cluster: World, old: dict[str, Any], new: dict[str, Any], *live: gangs.Gang) -> Verdict:
    snapshot = replace(cluster.build(), gangs={gang.meta.key: gang for gang in live})
    review = update(old, new, subresource="resize")
    return reviewer.validate(review, MemoryView(snapshot), rules=RULES, caches=ReviewCaches())


CASES: dict[str, tuple[World, dict[str, Any], dict[str, Any], int, DenyReason | None]] = {
    "what the queue has left may be added": (ALONE, running("2"), running("4"), 6, None),
    "not a core more": (ALONE, running("2"), running("5"), 6, DenyReason.OVER_QUOTA),
    "nor a part of one": (ALONE, running("2"), running("4001m"), 6, DenyReason.OVER_QUOTA),
    "a part of a core that is paid for": (ALONE, running("1500m"), running("2"), 8, None),
    "less is always let through": (ALONE, running("4"), running("2"), 100, None),
    "more than the queue could ever have": (ALONE, running("2"), running("9"), 2, DenyReason.NEVER_FITS),
    "what may be borrowed": (LENT, running("2"), running("10"), 2, None),
    "what is borrowed by others may not": (LENT, running("2"), running("10"), 3, DenyReason.OVER_QUOTA),
    "a pod that still waits is charged nothing yet": (
        ALONE,
        held(containers=running("2")["spec"]["containers"]),
        held(containers=running("5")["spec"]["containers"]),
        8,
        None,
    ),
    "one that could then never start": (
        ALONE,
        held(containers=running("2")["spec"]["containers"]),
        held(containers=running("9")["spec"]["containers"]),
        0,
        DenyReason.NEVER_FITS,
    ),
    "a pod in no queue": (ALONE, a_pod(containers=running("2")["spec"]["containers"]), a_pod(), 8, None),
    "nothing counts CPU": (World().queue("team-a", quotas=CORES), running("2"), running("99"), 8, None),
}


@pytest.mark.parametrize(("cluster", "old", "new", "used", "refused"), CASES.values(), ids=CASES)
def test_a_resize_is_held_back_where_it_is_over_quota(
    cluster: World, old: dict[str, Any], new: dict[str, Any], used: int, refused: DenyReason | None
) -> None:
    verdict = resized(cluster, old, new, a_gang("g", "team-a", used))

    if refused is None:
        assert verdict == ALLOWED
    else:
        assert verdict.denial is not None
        assert verdict.denial.reason is refused


def test_a_resize_that_is_refused_says_what_is_left() -> None:
    denial = resized(ALONE, running("2"), running("5"), a_gang("g", "team-a", 6)).denial

    assert denial is not None
    assert denial.message.startswith("the pod would take 3 more cores, and queue team-a has 2 left; try again")
    assert denial.details == {"queue": "team-a", "meter": "cores", "needed": "3", "left": "2"}


def test_an_inactive_queue_holds_no_resize_back() -> None:
    orphan = World().queue("team-a", parent="nowhere", quotas=CORES).rated("cores", {"name": "cpu"})

    assert resized(orphan, running("2"), running("99")) == ALLOWED
