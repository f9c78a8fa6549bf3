from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.values.decoding import Reader
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy import admission, pod_view
from admission.podpolicy.known_claims import KnownClaim
from admission.podpolicy.queue_limits import Limits
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import RULES, World, either, exactly, held

GPU = "gpu.example.com"


def quota(nominal: int, **limits: str) -> list[dict[str, Any]]:
    return [{"meter": "gpus", "nominal": str(nominal), **limits}]


def needs(*requests: dict[str, Any], allocated: bool = False) -> KnownClaim:
    spec = claims.decode_spec(Reader({"devices": {"requests": list(requests)}}))
    return KnownClaim(source="ResourceClaim c", spec=spec, allocated=allocated)


ALONE = World().queue("team-a", quotas=quota(8))
FAMILY = (
    World()
    .queue("root", team=None, quotas=quota(0))
    .queue("team-a", parent="root", quotas=quota(8))
    .queue("team-b", parent="root", quotas=quota(8), team="b")
)
STINGY = (
    World()
    .queue("root", team=None, quotas=quota(0))
    .queue("team-a", parent="root", quotas=quota(8, borrowingLimit="2"))
    .queue("team-b", parent="root", quotas=quota(8), team="b")
)
ORPHAN = World().queue("team-a", parent="nowhere", quotas=quota(8))

CASES: dict[str, tuple[World, list[KnownClaim], tuple[int, int] | None]] = {
    "a pod without claims fits": (ALONE, [], None),
    "what the quota just holds fits": (ALONE, [needs(exactly("gpu", GPU, 8))], None),
    "one more never fits": (ALONE, [needs(exactly("gpu", GPU, 9))], (9, 8)),
    "claims are added up": (ALONE, [needs(exactly("gpu", GPU, 5)), needs(exactly("gpu", GPU, 4))], (9, 8)),
    "a sibling may lend": (FAMILY, [needs(exactly("gpu", GPU, 16))], None),
    "but no more than it has": (FAMILY, [needs(exactly("gpu", GPU, 17))], (17, 16)),
    "a limit caps the loan": (STINGY, [needs(exactly("gpu", GPU, 11))], (11, 10)),
    "the cheapest alternative counts": (ALONE, [needs(either("gpu", ("a", GPU, 16), ("b", GPU, 8)))], None),
    "a queue without quota holds nothing": (World().queue("team-a"), [needs(exactly("gpu", GPU))], (1, 0)),
    "an allocated claim is paid for": (ALONE, [needs(exactly("gpu", GPU, 9), allocated=True)], None),
    "an inactive queue refuses nothing": (ORPHAN, [needs(exactly("gpu", GPU, 9))], None),
    "what nobody meters costs nothing": (ALONE, [needs(exactly("card", "fpga.example.com", 32))], None),
}


RESOURCE = "gpu.example.com/gpu"


def resources(count: int, *, init: int = 0, sidecar: int = 0) -> dict[str, Any]:
    """Return the spec of a pod whose containers ask for so many of a resource."""

    def container(count: int, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"limits": {RESOURCE: str(count)}}, **more}

    first = [container(sidecar, restartPolicy="Always")] if sidecar else []
    return {"containers": [container(count)], "initContainers": [*first, *([container(init)] if init else [])]}


LISTED = World().queue("team-a", quotas=quota(8)).listed("plugged", RESOURCE)
BOTH_LISTED = (
    World().queue("team-a", quotas=[*quota(8), {"meter": "plugged", "nominal": "4"}]).listed("plugged", RESOURCE)
)

PODS: dict[str, tuple[World, dict[str, Any], tuple[str, int, int] | None]] = {
    "a resource that no meter lists is free": (ALONE, resources(100), None),
    "a meter without quota holds none of a resource that it lists": (LISTED, resources(1), ("plugged", 1, 0)),
    "what the quota just holds fits": (BOTH_LISTED, resources(4), None),
    "one more never fits": (BOTH_LISTED, resources(5), ("plugged", 5, 4)),
    "an init container that needs more counts": (BOTH_LISTED, resources(1, init=5), ("plugged", 5, 4)),
    "a sidecar is added": (BOTH_LISTED, resources(3, sidecar=2), ("plugged", 5, 4)),
    "where devices may serve it instead, only what both cost is certain": (
        World().queue("team-a", quotas=quota(8)).listed("plugged", RESOURCE).offered(GPU, RESOURCE),
        resources(100),
        None,
    ),
}


@pytest.mark.parametrize(("cluster_state", "spec", "refused"), PODS.values(), ids=PODS)
def test_resources_of_device_plugins_that_never_fit(
    cluster_state: World, spec: dict[str, Any], refused: tuple[str, int, int] | None
) -> None:
    found = at_the_door(cluster_state, spec)

    if refused is None:
        assert found is None
    else:
        assert found is not None
        assert found.reason == DenyReason.NEVER_FITS
        meter, needed, most = refused
        assert found.details == {
            "queue": "team-a",
            "meter": meter,
            "needed": str(needed),
            "potential": str(most),
            "sources": [RESOURCE],
        }


def test_of_a_meter_without_quota_the_queue_is_said_to_lack_it() -> None:
    found = at_the_door(LISTED, resources(1))

    assert found is not None
    assert found.message == (
        "the pod needs at least 1 plugged, and spec.quotas of queue team-a do not name that Meter (they name gpus), nor"
        " is there any to borrow; name another queue, or have a quota of it added"
    )


RATED = World().queue("team-a", quotas=[*quota(8), {"meter": "cores", "nominal": "4"}]).rated("cores", {"name": "cpu"})


def cores(main: str, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": main, "memory": "1Gi"}}}], **spec}


NODES: dict[str, tuple[dict[str, Any], int | None]] = {
    "what the quota just holds fits": (cores("4"), None),
    "a pod that requests none of it fits": (cores("0"), None),
    "a part of a core more never fits": (cores("4001m"), 5),
    "a limit without a request counts": (
        {"containers": [{"name": "c", "resources": {"limits": {"cpu": "5"}}}]},
        5,
    ),
    "pod-level requests count instead": (cores("1", resources={"requests": {"cpu": "6"}}), 6),
    "overhead counts": (cores("4", overhead={"cpu": "250m"}), 5),
}


@pytest.mark.parametrize(("spec", "needed"), NODES.values(), ids=NODES)
def test_pods_without_claims_that_never_fit(spec: dict[str, Any], needed: int | None) -> None:
    found = at_the_door(RATED, spec)

    assert (found is not None) == (needed is not None)
    if found is not None:
        assert found.reason == DenyReason.NEVER_FITS
        assert (found.details["meter"], found.details["needed"], found.details["sources"]) == (
            "cores",
            str(needed),
            ["cpu"],
        )


def test_pods_with_equal_claims_that_request_more_are_judged_anew() -> None:
    snapshot, memory = RATED.build(), ReviewCaches()

    def judged(cpu: str) -> Denial | None:
        return admission.judge_creation(
            pod_view.decode(held(**cores(cpu)), "ml"),
            snapshot,
            rules=RULES,
            defaults=memory.defaults(snapshot),
            limits=memory.limits(snapshot),
            passed=memory.passed(snapshot),
        ).denial

    assert [judged(cpu) is None for cpu in ("1", "1", "5", "4")] == [True, True, False, True]


def test_a_meter_for_device_plugins_and_dra_refuses_more_than_either_could_give() -> None:
    """Both ways cost 9 of the same meter, which is certain then."""
    cluster_state = World().queue("team-a", quotas=quota(8)).offered(GPU, RESOURCE)
    cluster_state.meter_of("gpus", GPU, RESOURCE)

    found = at_the_door(cluster_state, resources(9))

    assert found is not None
    assert found.details["meter"] == "gpus"
    assert at_the_door(cluster_state, resources(8)) is None


def at_the_door(cluster_state: World, spec: dict[str, Any]) -> Denial | None:
    snapshot = cluster_state.build()
    memory = ReviewCaches()
    return admission.judge_creation(
        pod_view.decode(held(**spec), "ml"),
        snapshot,
        rules=RULES,
        defaults=memory.defaults(snapshot),
        limits=memory.limits(snapshot),
    ).denial


@pytest.mark.parametrize(("cluster_state", "asked", "refused"), CASES.values(), ids=CASES)
def test_claims_for_more_than_the_queue_can_ever_have_are_denied(
    cluster_state: World, asked: list[KnownClaim], refused: tuple[int, int] | None
) -> None:
    snapshot = cluster_state.build()
    limits = Limits.build(snapshot.queues.values(), snapshot.meters.values())

    denial = limits(snapshot.queues[QueueName("team-a")], asked)

    if refused is None:
        assert denial is None
    else:
        assert denial is not None
        assert denial.reason == DenyReason.NEVER_FITS
        assert (denial.details["needed"], denial.details["potential"]) == tuple(map(str, refused))
