"""Whether devices are Muster's alone to give: every check of a fence and of coverage, and its mend."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.api.kubernetes import claims, device_taint_rules
from admission.api.kubernetes.claims import Allocation
from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.errors import MalformedObjectError, Problem
from admission.scheduling.placement import protection
from admission.scheduling.placement.protection import (
    Barriers,
    Breach,
    FenceInputs,
    Judgement,
    Means,
    Protection,
    Webhooks,
)
from tests import readers
from tests.builders import CLASS, NOON, a_cluster, claim_manifest, let_in, pod_of, running, with_pods

LONG_AGO = NOON - timedelta(hours=1)
JUST_NOW = NOON - timedelta(seconds=1)
A_WHILE_AGO = NOON - timedelta(seconds=20)
FENCED = Barriers(fence=(CLASS,), rules={CLASS: LONG_AGO}, policy=LONG_AGO)
COVERED = Barriers(webhooks=Webhooks(since=LONG_AGO, exempt=("kube-system",), kept_out=LONG_AGO))
WILDCARD = {"operator": "Exists"}


def a_snapshot(**queue: Any) -> Snapshot:
    """A gang of two that waits, and the rule of a fence, as the API server would show it."""
    queue = {"default": True, **queue}
    snapshot = a_cluster().node("a", gpus=4).queue("q", gpus=4, **queue).job("train", queue="q", pods=2).snapshot()
    return with_rule(snapshot)


def with_rule(snapshot: Snapshot, **changes: Any) -> Snapshot:
    spec = {
        "deviceSelector": {"driver": CLASS},
        "taint": {"key": "muster.dev/fence", "effect": "NoSchedule", **changes},
    }
    rule = device_taint_rules.decode({"metadata": {"name": f"muster-fence-{CLASS}"}, "spec": spec})
    return replace(snapshot, taint_rules={rule.meta.name: rule})


def with_claim(snapshot: Snapshot, name: str = "c", *, namespace: str = "team", **exactly: Any) -> Snapshot:
    manifest = claim_manifest(name, 1, owner="-")
    manifest["metadata"] |= {"namespace": namespace, "ownerReferences": []}
    manifest["spec"]["devices"]["requests"][0]["exactly"] |= exactly
    claim = claims.decode(manifest)
    return replace(snapshot, claims={**snapshot.claims, claim.meta.key: claim})


def allocated(snapshot: Snapshot, key: str = "team/c") -> Snapshot:
    claim = replace(snapshot.claims[key], allocation=Allocation())
    return replace(snapshot, claims={**snapshot.claims, key: claim})


def judge(barriers: Barriers, snapshot: Snapshot | None = None, *placements: Placement) -> Judgement:
    scene = FenceInputs(barriers=barriers, snapshot=snapshot or a_snapshot(), placements=placements, now=NOON)
    return protection.judge(scene)


def of(barriers: Barriers, snapshot: Snapshot | None = None, *placements: Placement) -> Protection:
    return judge(barriers, snapshot, *placements).protections.of_driver(CLASS)


def a_placement(*, driver: str = CLASS, reserved: timedelta = timedelta(seconds=10)) -> Placement:
    """What the book has of the gang after it was let in."""
    pod, claim = Uid("pod-train-0"), Uid("claim-train-0-gpus")
    given = RequestDevice(request="gpus", device=DeviceId(driver, "a", "gpu-0"))
    return Placement(
        gang_uid=GangUid("job-train"),
        gang="team/train",
        queue=QueueName("q"),
        reserved_at=NOON - reserved,
        seats={pod: Seat(pod_uid=pod, pod="team/train-0", node=NodeName("a"), claims=(claim,))},
        holdings={claim: Holding(claim_uid=claim, claim="team/train-0-gpus", devices=(given,), charge={})},
    )


def test_a_settled_fence_that_no_claim_tolerates_protects_its_driver() -> None:
    found = judge(FENCED)

    assert found.protections.of_driver(CLASS) == Protection(
        driver=CLASS, why="its devices are fenced", by=Means.FENCE, closed=True
    )
    assert found.wanted == {CLASS}
    other = found.protections.of_driver("nic.example.com")
    assert (other.driver, other.by, other.closed, other.soon) == ("nic.example.com", None, False, False)


NEW = replace(FENCED, rules={CLASS: JUST_NOW})
LACKS: dict[str, tuple[Barriers, Snapshot, str, bool, bool]] = {
    "rules are not served": (
        replace(FENCED, served=False, rules={}),
        replace(a_snapshot(), taint_rules={}),
        "upgrade to Kubernetes 1.37",
        False,
        False,
    ),
    "something cannot be seen for a moment": (
        replace(FENCED, trouble="may not list policies", troubled=JUST_NOW),
        a_snapshot(),
        "may not list policies",
        True,
        True,
    ),
    "something cannot be seen for long": (
        replace(FENCED, trouble="may not list policies", troubled=LONG_AGO),
        a_snapshot(),
        "may not list policies",
        False,
        False,
    ),
    "a claim tolerates everything": (
        FENCED,
        with_claim(a_snapshot(), tolerations=[WILDCARD]),
        r"claim team/c \(request gpus\) tolerates every taint or muster.dev/fence",
        False,
        False,
    ),
    "a claim that pods share may lose its devices and get others": (
        FENCED,
        allocated(with_claim(a_snapshot(), tolerations=[WILDCARD])),
        "claim team/c",
        False,
        False,
    ),
    "the policy is not there, and the fence stands": (replace(FENCED, policy=None), a_snapshot(), "policy", True, True),
    "the policy is not there, nor the fence": (
        replace(FENCED, policy=None, rules={}),
        replace(a_snapshot(), taint_rules={}),
        "policy that refuses",
        True,
        False,
    ),
    "the policy is new": (replace(FENCED, policy=JUST_NOW), a_snapshot(), "policy that refuses .* is new", True, True),
    "the rule is not there": (
        replace(FENCED, rules={}),
        replace(a_snapshot(), taint_rules={}),
        f"DeviceTaintRule muster-fence-{CLASS} is not there yet",
        True,
        True,
    ),
    "the rule is new": (NEW, a_snapshot(), "the fence is new", True, True),
}


@pytest.mark.parametrize(("barriers", "snapshot", "why", "soon", "wanted"), LACKS.values(), ids=LACKS)
def test_a_fence_does_not_count_while(
    barriers: Barriers, snapshot: Snapshot, why: str, *, soon: bool, wanted: bool
) -> None:
    found = judge(barriers, snapshot)

    one = found.protections.of_driver(CLASS)
    assert one.by is None
    assert re.search(why, readers.why_in_full(one)), one.why
    assert one.soon is soon
    assert (CLASS in found.wanted) is wanted
    assert one.closed is bool(snapshot.taint_rules)


def test_templates_count_as_well_as_claims() -> None:
    snapshot = with_claim(a_snapshot(), tolerations=[WILDCARD])
    claim = snapshot.claims["team/c"]
    template = claims.ClaimTemplate(meta=replace(claim.meta, name="t"), spec=claim.spec)
    snapshot = replace(a_snapshot(), templates={"team/t": template})

    assert "ResourceClaimTemplate team/t (request gpus)" in readers.why_in_full(of(FENCED, snapshot))


HARMLESS: dict[str, Snapshot] = {
    "it names another taint": with_claim(a_snapshot(), tolerations=[{"key": "example.com/x", "operator": "Exists"}]),
    "it tolerates another effect": with_claim(
        a_snapshot(), tolerations=[{"operator": "Exists", "effect": "NoExecute"}]
    ),
    "it tolerates another value": with_claim(a_snapshot(), tolerations=[{"key": "muster.dev/fence", "value": "other"}]),
    "it takes its devices from nobody": with_claim(a_snapshot(), tolerations=[WILDCARD], adminAccess=True),
}


@pytest.mark.parametrize("snapshot", HARMLESS.values(), ids=HARMLESS)
def test_a_claim_does_not_weaken_a_fence_if(snapshot: Snapshot) -> None:
    assert of(FENCED, snapshot).by is Means.FENCE


def test_a_claim_made_for_a_pod_is_allocated_only_once() -> None:
    snapshot = with_claim(a_snapshot(), "train-0-gpus", tolerations=[WILDCARD])
    key = "team/train-0-gpus"
    made = replace(snapshot.claims[key], meta=a_snapshot().claims[key].meta)
    snapshot = replace(snapshot, claims={**snapshot.claims, key: made})

    assert of(FENCED, snapshot).by is None
    assert of(FENCED, allocated(snapshot, key)).by is Means.FENCE


def test_a_new_fence_waits_for_what_kube_scheduler_may_be_placing_but_not_for_ever() -> None:
    snapshot = a_snapshot()
    outsider = replace(
        let_in(pod_of(snapshot, "train-0")), meta=replace(pod_of(snapshot, "train-0").meta, created=LONG_AGO)
    )
    snapshot = with_pods(snapshot, outsider)

    younger, older = (replace(FENCED, rules={CLASS: since}) for since in (A_WHILE_AGO, NOON - protection.PATIENCE))

    assert "team/train-0" in readers.why_in_full(of(younger, snapshot))
    assert of(younger, snapshot).soon
    assert of(older, snapshot).by is Means.FENCE
    assert of(younger, with_pods(snapshot, running(outsider, "a"))).by is Means.FENCE
    made_since = replace(outsider, meta=replace(outsider.meta, created=NOON))
    assert of(younger, with_pods(snapshot, made_since)).by is Means.FENCE, "it has met the fence"


def test_a_fence_does_not_go_up_before_pinned_gangs_that_still_look_for_their_devices() -> None:
    snapshot = with_pods(replace(a_snapshot(), taint_rules={}), let_in(pod_of(a_snapshot(), "train-0")))
    nothing = replace(FENCED, rules={})

    found = judge(nothing, snapshot, a_placement())
    assert not found.wanted
    assert found.protections.of_driver(CLASS).soon
    assert "waits until gang team/train has its devices" in readers.why_in_full(found.protections.of_driver(CLASS))

    assert judge(nothing, snapshot, a_placement(reserved=protection.PATIENCE)).wanted, "not for ever"
    assert judge(nothing, snapshot, a_placement(driver="nic.example.com")).wanted, "of another driver"
    has_them = allocated(snapshot, "team/train-0-gpus")
    assert judge(nothing, has_them, a_placement()).wanted


def test_an_unreadable_claim_may_get_past_every_fence() -> None:
    error = MalformedObjectError("ResourceClaim", "team/odd", (Problem("spec", "is odd"),))
    odd = replace(a_snapshot(), malformed={("ResourceClaim", "team/odd"): error})
    pod = replace(an_open_cluster(), malformed={("Pod", "team/odd"): error})

    assert "claim team/odd (which cannot be read)" in readers.why_in_full(of(FENCED, odd))
    assert "team/odd (which cannot be read) came before" in readers.why_in_full(covered(pod))
    assert of(FENCED, replace(a_snapshot(), malformed={("Queue", "q"): error})).by is Means.FENCE


def test_a_fence_that_was_breached_counts_no_more_and_goes() -> None:
    scene = FenceInputs(
        barriers=FENCED,
        snapshot=a_snapshot(),
        placements=(),
        now=NOON,
        breaches={CLASS: Breach("team/c", DeviceId(CLASS, "a", "gpu-0"))},
    )

    found = protection.judge(scene)

    assert not found.wanted
    told = f"claim team/c has device {CLASS}/a/gpu-0, which somebody gave it in spite of the fence"
    assert told in readers.why_in_full(found.protections.of_driver(CLASS))


def test_a_fence_that_the_settings_do_not_name_any_more_is_on_its_way_out() -> None:
    found = judge(Barriers())

    assert not found.wanted
    assert found.protections.of_driver(CLASS).closed
    assert found.protections.of_driver(CLASS).soon


def test_the_planner_sees_no_fence_but_every_other_taint() -> None:
    snapshot = a_snapshot()
    other = replace(next(iter(snapshot.taint_rules.values())), meta=replace(snapshot.pods[Uid("pod-train-0")].meta))
    both: dict[str, TaintRule] = {**snapshot.taint_rules, "other": other}

    assert protection.without_fences(replace(snapshot, taint_rules=both)).taint_rules == {"other": other}
    assert not protection.without_fences(snapshot).taint_rules
    edited = with_rule(snapshot, key="example.com/other")
    assert protection.without_fences(edited) is edited, "what somebody has made of it is no fence"


# Coverage.


def covered(snapshot: Snapshot | None = None, *placements: Placement, **webhooks: Any) -> Protection:
    assert COVERED.webhooks is not None
    barriers = replace(COVERED, webhooks=replace(COVERED.webhooks, **webhooks))
    return of(barriers, snapshot or replace(a_snapshot(), taint_rules={}), *placements)


def test_coverage_protects_every_driver() -> None:
    snapshot = replace(a_snapshot(), taint_rules={})

    found = judge(COVERED, snapshot).protections

    assert found.of_driver(CLASS).by is found.of_driver("nic.example.com").by is Means.COVERAGE
    assert found.of_driver("nic.example.com").driver == "nic.example.com"
    assert not found.of_driver(CLASS).closed


def an_open_cluster() -> Snapshot:
    return replace(a_snapshot(), taint_rules={})


def two_defaults() -> Snapshot:
    builder = a_cluster().queue("q", default=True)
    return builder.queue("r", default=True, namespaceSelector={"matchLabels": {"a": "b"}}).snapshot()


UNCOVERED: dict[str, tuple[Snapshot, dict[str, Any], str, bool]] = {
    "no queue is the default": (replace(a_snapshot(default=False), taint_rules={}), {}, "default: true", False),
    "the default is not for all": (
        replace(a_snapshot(namespaceSelector={"matchLabels": {"a": "b"}}), taint_rules={}),
        {},
        "empty namespaceSelector",
        False,
    ),
    "a second queue is a default": (two_defaults(), {}, "besides .* r is marked default", False),
    "the webhook is not registered for all": (an_open_cluster(), {"since": None}, "failurePolicy Fail", False),
    "the webhook is new": (an_open_cluster(), {"since": JUST_NOW}, "registration is new", True),
    "claims are not kept out of spared namespaces": (an_open_cluster(), {"kept_out": None}, "kube-system", True),
    "claims have not been kept out for long": (an_open_cluster(), {"kept_out": JUST_NOW}, "is new", True),
    "a claim is in a spared namespace": (
        with_claim(an_open_cluster(), namespace="kube-system"),
        {},
        "claim kube-system/c: delete it",
        False,
    ),
    "a pod came before the webhook": (
        with_pods(an_open_cluster(), let_in(pod_of(a_snapshot(), "train-0"))),
        {},
        "pod team/train-0 came before",
        False,
    ),
}


@pytest.mark.parametrize(("snapshot", "webhooks", "why", "soon"), UNCOVERED.values(), ids=UNCOVERED)
def test_not_every_pod_is_covered_while(snapshot: Snapshot, webhooks: dict[str, Any], why: str, *, soon: bool) -> None:
    found = covered(snapshot, **webhooks)

    assert found.by is None
    assert re.search(why, readers.why_in_full(found)), found.why
    assert found.soon is soon


def test_a_claim_with_admin_access_may_be_anywhere() -> None:
    assert covered(with_claim(an_open_cluster(), namespace="kube-system", adminAccess=True)).by is Means.COVERAGE


def test_under_coverage_muster_waits_while_kube_scheduler_chooses_for_a_pinned_gang() -> None:
    snapshot = with_pods(an_open_cluster(), let_in(pod_of(a_snapshot(), "train-0")))

    found = covered(snapshot, a_placement())
    assert found.soon
    assert "gang team/train, since Muster has pinned it" in readers.why_in_full(found)

    assert covered(allocated(snapshot, "team/train-0-gpus"), a_placement()).by is Means.COVERAGE
    taken_back = replace(
        a_placement(), holdings={uid: replace(h, settled=True) for uid, h in a_placement().holdings.items()}
    )
    assert covered(snapshot, taken_back).soon, (
        "kube-scheduler takes devices back where a pod does not fit, and chooses anew"
    )


def test_on_a_kubernetes_newer_than_all_nothing_protects_and_a_fence_goes() -> None:
    barriers = replace(FENCED, webhooks=COVERED.webhooks)

    found = protection.judge(
        FenceInputs(barriers=barriers, snapshot=a_snapshot(), placements=(), now=NOON, mismatch="1.38 is new")
    )

    fenced, rest = found.protections.of_driver(CLASS), found.protections.rest
    assert found.wanted == frozenset()
    assert (fenced.by, fenced.soon, fenced.closed, rest.by, rest.soon) == (None, False, True, None, False)
    assert "1.38 is new: upgrade Muster" in fenced.why
    assert "1.38 is new: upgrade Muster" in rest.why


def test_coverage_that_cannot_be_observed_protects_nothing() -> None:
    barriers = replace(COVERED, trouble="the watch is broken", troubled=LONG_AGO)

    found = of(barriers, an_open_cluster())

    assert found.by is None
    assert "the watch is broken" in found.why


def test_coverage_serves_where_a_fence_cannot_be_had() -> None:
    barriers = replace(COVERED, fence=(CLASS,), served=False)

    assert of(barriers, an_open_cluster()).by is Means.COVERAGE


SETTLED = NOON - protection.SETTLING
UNTIL = {"while": timedelta(microseconds=1), "from": timedelta(0)}


@pytest.mark.parametrize("since", [SETTLED + left for left in UNTIL.values()], ids=UNTIL)
def test_new_protection_counts_once_it_has_stood_for_the_settling_time(since: datetime) -> None:
    settled = since <= SETTLED

    assert (covered(since=since).by is Means.COVERAGE) is settled
    assert (covered(kept_out=since).by is Means.COVERAGE) is settled
    assert (of(replace(FENCED, policy=since)).by is Means.FENCE) is settled
    assert (of(replace(FENCED, rules={CLASS: since})).by is Means.FENCE) is settled


@pytest.mark.parametrize("since", [NOON - protection.PATIENCE + left for left in UNTIL.values()], ids=UNTIL)
def test_trouble_passes_until_patience_ends(since: datetime) -> None:
    passing = since > NOON - protection.PATIENCE

    fenced = judge(replace(FENCED, trouble="may not list policies", troubled=since))
    assert fenced.protections.of_driver(CLASS).soon is passing
    assert (CLASS in fenced.wanted) is passing
    assert of(replace(COVERED, trouble="the watch is broken", troubled=since), an_open_cluster()).soon is passing
