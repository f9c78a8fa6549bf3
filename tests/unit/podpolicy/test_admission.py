"""Which new pods are let in, refused, or warned of."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import gangs
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.errors import RetryError
from admission.podpolicy import admission, outside_queues, pod_view
from admission.review.caches import ReviewCaches
from tests.unit.scheduling import plan_inputs
from tests.unit.webhook.cases import GATES, RULES, World, a_cluster, a_pod, either, every, exactly, held

GPU = "gpu.example.com"


def watching(device_class: str) -> dict[str, Any]:
    """Return a request with admin access, as monitoring has it."""
    request = exactly("gpu", device_class)
    return {**request, "exactly": {**request["exactly"], "adminAccess": True}}


OUTSIDE = "the pod enters no queue and takes devices that Meters count"
CLASSES = [{"name": "urgent", "value": 100}, {"name": "idle", "value": -1}]
DEMANDING = {"muster.dev/require-queue": "true"}

DENIED: dict[str, tuple[World, dict[str, Any], DenyReason, tuple[str, ...]]] = {
    "an unknown queue is named, with its nearest": (
        a_cluster().queue("team-archive"),
        held("taem-a"),
        DenyReason.UNKNOWN_QUEUE,
        ("there is no queue taem-a", "nearest by name: team-a", "kubectl get queues.muster.dev"),
    ),
    "an unknown queue with a name like none has those listed that are open to the namespace": (
        a_cluster().queue("archive"),
        held("xyz"),
        DenyReason.UNKNOWN_QUEUE,
        ("there is no queue xyz; open to namespace ml: archive, team-a;",),
    ),
    "a class that no Meter counts has those listed that are counted": (
        a_cluster().template("t", exactly("card", "fpga.example.com")),
        held(templates=("t",)),
        DenyReason.UNMETERED_CLASS,
        ("fpga.example.com, which no Meter counts (counted: gpu.example.com)",),
    ),
    "queues that the namespace may not enter are not suggested": (
        World().queue("team-b", team="b"),
        held("team-c"),
        DenyReason.UNKNOWN_QUEUE,
        ("no queue at all is open to namespace ml",),
    ),
    "a queue that cannot be read says what is wrong with it": (
        a_cluster().broken_queue("team-x"),
        held("team-x"),
        DenyReason.UNKNOWN_QUEUE,
        ("team-x exists but cannot be read", "spec.quotas[0].nominal"),
    ),
    "a queue that is not open shows its selector and the namespace's labels": (
        a_cluster(),
        held("team-b"),
        DenyReason.QUEUE_NOT_OPEN,
        ("team=b", "kubernetes.io/metadata.name=ml, team=a", "; open to it: team-a"),
    ),
    "a pod with a claim and no queue, where its namespace demands one": (
        a_cluster().namespace("ml", team="a", **DEMANDING).claim("c", exactly("gpu", GPU)),
        a_pod(claims=("c",)),
        DenyReason.QUEUE_REQUIRED,
        ("which namespace ml demands by its label muster.dev/require-queue", "in label muster.dev/queue", "team-a"),
    ),
    "a pod with a claim that is still to come, where its namespace demands a queue": (
        World().namespace("ml", **DEMANDING),
        a_pod(claims=("later",)),
        DenyReason.QUEUE_REQUIRED,
        ("no queue is open to namespace ml",),
    ),
    "a pod with an extended resource that devices serve, where its namespace demands a queue": (
        World().namespace("ml", **DEMANDING).offered(GPU, "example.com/gpu"),
        a_pod(containers=[{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]),
        DenyReason.QUEUE_REQUIRED,
        ("the pod asks for devices and enters no queue",),
    ),
    "a parent sends on to its children": (
        World().queue("research", team=None).queue("team-a", parent="research"),
        held("research"),
        DenyReason.QUEUE_NOT_OPEN,
        ("it is a parent", "name one below it: team-a"),
    ),
    "a bound pod is told to leave nodeName out": (
        a_cluster(),
        held(gates=[], nodeName="n1"),
        DenyReason.POLICY_VIOLATION,
        ("spec.nodeName is set to n1", "leave it out"),
    ),
    "a bound pod in a namespace with a default queue, too": (
        World().queue("team-a", default=True),
        a_pod(nodeName="n1"),
        DenyReason.POLICY_VIOLATION,
        ("queue team-a",),
    ),
    "a mirror without a node is no mirror": (
        a_cluster(),
        held(gates=[], annotations={pod_view.MIRROR: "x"}),
        DenyReason.GATE_TAMPERING,
        ("without scheduling gate",),
    ),
    "a gate that another webhook took is missed": (
        a_cluster(),
        held(gates=[plan_inputs.OTHER_GATE]),
        DenyReason.GATE_TAMPERING,
        ("without scheduling gate muster.dev/admission", "another webhook"),
    ),
    "a default label that another webhook took is missed": (
        World().queue("team-a", default=True),
        a_pod(gates=GATES),
        DenyReason.GATE_TAMPERING,
        ("without label muster.dev/queue", "the default of namespace ml"),
    ),
    "a gang has no capitals and underscores": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang="My_Gang")),
        DenyReason.MALFORMED_REQUEST,
        ("label muster.dev/gang is 'My_Gang'", "lower-case letters"),
    ),
    "a gang is no path": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang="../../other/gangs/x")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/gang is '../../other/gangs/x'",),
    ),
    "a gang is not the folder above": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang="..")),
        DenyReason.MALFORMED_REQUEST,
        ("'..'",),
    ),
    "a gang's name ends where the text ends": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang="train\n")),
        DenyReason.MALFORMED_REQUEST,
        ("'train\\n'",),
    ),
    "a gang's name is as long as a label at most, and not shown whole": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang="a" * 64)),
        DenyReason.MALFORMED_REQUEST,
        (f"'{'a' * 63}…'", "at most 63"),
    ),
    "label and annotation say the same gang": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang="a"), annotations=plan_inputs.gangs(gang="b")),
        DenyReason.MALFORMED_REQUEST,
        ("a as a label and b as an annotation",),
    ),
    "a size is a number": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang_size="four")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/gang-size is 'four'", "1 to 10000"),
    ),
    "a size is not zero": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_size="0")),
        DenyReason.MALFORMED_REQUEST,
        ("label",),
    ),
    "a size is at most 10000": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_size="10001")),
        DenyReason.MALFORMED_REQUEST,
        ("'10001'",),
    ),
    "a size has no sign": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_size="+4")),
        DenyReason.MALFORMED_REQUEST,
        ("'+4'",),
    ),
    "a size is written in ASCII": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang_size="٤")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-size",),
    ),
    "a size of very many digits is not even computed": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(gang_size="1" * 5000)),
        DenyReason.MALFORMED_REQUEST,
        ("gang-size",),
    ),
    "the least size is a number": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_min="-1")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-min",),
    ),
    "the least size is not above the size": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_size="4", gang_min="8")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-min is 8", "which is 4"),
    ),
    "label and annotation say the same size": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang_size="4"), annotations=plan_inputs.gangs(gang_size="8")),
        DenyReason.MALFORMED_REQUEST,
        ("4 as a label and 8 as an annotation",),
    ),
    "a topology is the key of a label": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(topology="one rack")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/topology: 'one rack' is not a label's key", "label of nodes"),
    ),
    "so is a preferred one": (
        a_cluster(),
        held(labels=plan_inputs.gangs(topology_preferred="-rack")),
        DenyReason.MALFORMED_REQUEST,
        ("label muster.dev/topology-preferred: '-rack' is not a label's key",),
    ),
    "label and annotation name the same topology": (
        a_cluster(),
        held(labels=plan_inputs.gangs(topology="rack"), annotations=plan_inputs.gangs(topology="example.com/rack")),
        DenyReason.MALFORMED_REQUEST,
        ("muster.dev/topology is rack as a label and example.com/rack as an annotation",),
    ),
    "that of subgroups is one, too": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(subgroup_topology="one rack")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/subgroup-topology: 'one rack' is not a label's key",),
    ),
    "a priority class is one of the queue": (
        World().queue("team-a", priorityClasses=CLASSES),
        held(labels={names.PRIORITY_CLASS: "urgnt"}),
        DenyReason.POLICY_VIOLATION,
        ("label muster.dev/priority-class names urgnt", "of queue team-a; it has urgent, idle"),
    ),
    "one in an annotation, too": (
        World().queue("team-a", priorityClasses=CLASSES),
        held(labels={names.PRIORITY_CLASS: "urgent"}, annotations={names.PRIORITY_CLASS: "high"}),
        DenyReason.POLICY_VIOLATION,
        ("annotation muster.dev/priority-class names high", "it has idle, urgent"),
    ),
    "a queue without any says so": (
        a_cluster(),
        held(labels={names.PRIORITY_CLASS: "urgent"}),
        DenyReason.POLICY_VIOLATION,
        ("is no priority class of queue team-a; it has none (spec.priorityClasses)",),
    ),
    "a subgroup is called what a label can hold": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(subgroup="workers of june")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/subgroup: 'workers of june' is not a label's value",),
    ),
    "a pod is in one subgroup": (
        a_cluster(),
        held(labels=plan_inputs.gangs(subgroup="a"), annotations=plan_inputs.gangs(subgroup="b")),
        DenyReason.MALFORMED_REQUEST,
        ("muster.dev/subgroup is a as a label and b as an annotation; keep one",),
    ),
    "the size of a group of another system is a number, too": (
        a_cluster(),
        held(annotations={"kueue.x-k8s.io/pod-group-total-count": "three"}),
        DenyReason.MALFORMED_REQUEST,
        ("annotation kueue.x-k8s.io/pod-group-total-count is 'three'", "write a whole number from 1"),
    ),
    "a runtime is a duration": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(runtime="soon")),
        DenyReason.MALFORMED_REQUEST,
        ("muster.dev/runtime", "90s, 5m or 1h30m"),
    ),
    "a runtime is longer than nothing": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(runtime="0s")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/runtime: '0s' must be longer than 0s",),
    ),
    "a runtime can be counted": (
        a_cluster(),
        held(annotations=plan_inputs.gangs(runtime=f"{'9' * 40}h")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/runtime: ", "is longer than can be counted"),
    ),
    "a claim of 33 devices is too large": (
        a_cluster().template("big", exactly("gpu", GPU, 33)),
        held(templates=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("ResourceClaimTemplate big asks for 33 devices", "at most 32"),
    ),
    "requests of one claim are counted together": (
        a_cluster().claim("big", exactly("a", GPU, 20), exactly("b", GPU, 20)),
        held(claims=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("ResourceClaim big asks for 40 devices",),
    ),
    "even the lightest alternative is too large": (
        a_cluster().template("big", either("gpu", ("a", GPU, 64), ("b", GPU, 33))),
        held(templates=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("33 devices",),
    ),
    "a class that no meter counts is named with its request": (
        a_cluster().template("fpga", exactly("card", "fpga.example.com")),
        held(templates=("fpga",)),
        DenyReason.UNMETERED_CLASS,
        ("ResourceClaimTemplate fpga", "request card", "class fpga.example.com", "unmeteredClasses: Allow"),
    ),
    "every alternative has to be metered": (
        a_cluster().template("any", either("card", ("gpu", GPU, 1), ("fpga", "fpga.example.com", 1))),
        held(templates=("any",)),
        DenyReason.UNMETERED_CLASS,
        ("request card/fpga",),
    ),
}


@pytest.mark.parametrize(("cluster_state", "pod", "reason", "words"), DENIED.values(), ids=DENIED)
def test_a_pod_against_the_policy_is_refused_with_its_reason(
    cluster_state: World, pod: dict[str, Any], reason: DenyReason, words: tuple[str, ...]
) -> None:
    denial = plan_inputs.judge(cluster_state, pod).denial

    assert denial is not None
    assert denial.reason == reason
    for word in words:
        assert word in denial.message


ALLOWED: dict[str, tuple[World, dict[str, Any], tuple[str, ...]]] = {
    "a held pod": (a_cluster(), held(), ()),
    "a pod of no queue": (a_cluster(), a_pod(), ()),
    "a pod of a priority class": (
        World().queue("team-a", priorityClasses=CLASSES),
        held(labels={names.PRIORITY_CLASS: "urgent"}),
        (),
    ),
    "a priority class of a pod of no queue": (a_cluster(), a_pod(labels={names.PRIORITY_CLASS: "any"}), ()),
    "a bound pod of no queue, as kubectl debug node makes": (a_cluster(), a_pod(nodeName="n1"), ()),
    "a mirror of a static pod, though it names a queue": (
        a_cluster(),
        held(gates=[], nodeName="n1", annotations={pod_view.MIRROR: "hash"}),
        (),
    ),
    "gang sizes of a pod of no queue": (a_cluster(), a_pod(labels=plan_inputs.gangs(gang_size="many")), ()),
    "gangs at the limits": (a_cluster(), held(annotations=plan_inputs.gangs(gang="a.0-" + "b" * 59)), ()),
    "a gang said twice": (
        a_cluster(),
        held(labels=plan_inputs.gangs(gang="a"), annotations=plan_inputs.gangs(gang="a")),
        (),
    ),
    "the gang of a pod of no queue": (a_cluster(), a_pod(annotations=plan_inputs.gangs(gang="..")), ()),
    "sizes at the limits": (a_cluster(), held(labels=plan_inputs.gangs(gang_size="10000", gang_min="1")), ()),
    "a known claim of a metered class": (a_cluster().claim("c", exactly("gpu", GPU, 32)), held(claims=("c",)), ()),
    "a lighter alternative": (
        a_cluster().template("t", either("gpu", ("many", GPU, 64), ("few", GPU, 8))),
        held(templates=("t",)),
        (),
    ),
    "all devices of a node, however many": (a_cluster().template("t", every("gpu", GPU)), held(templates=("t",)), ()),
    "an unmetered class where the queue allows it": (
        World().queue("team-a", unmeteredClasses="Allow").template("t", exactly("card", "fpga.example.com")),
        held(templates=("t",)),
        (),
    ),
    "a template and a claim that are still to come": (
        a_cluster(),
        held(templates=("late",), claims=("later",)),
        (
            "ResourceClaimTemplate late is not there in namespace ml; the pod waits until it exists",
            "ResourceClaim later is not there",
        ),
    ),
    "a misspelt template has those of the namespace listed": (
        a_cluster().template("eight-gpus", exactly("gpu", GPU)).template("one-gpu", exactly("gpu", GPU)),
        held(templates=("one-gpus",)),
        ("ResourceClaimTemplate one-gpus is not there in namespace ml (there are: one-gpu, eight-gpus)",),
    ),
    "another scheduler": (a_cluster(), held(schedulerName="volcano"), ("schedulerName volcano",)),
    "another scheduler outside queues": (a_cluster(), a_pod(schedulerName="volcano"), ()),
    "a claim of a metered class outside queues": (
        a_cluster().template("t", exactly("gpu", GPU)),
        a_pod(templates=("t",)),
        (f"{OUTSIDE} ({GPU}): they are on nobody's quota and in no ledger; name a queue in label muster.dev/queue",),
    ),
    "a claim of a class outside queues that no Meter counts": (
        a_cluster().template("t", exactly("card", "fpga.example.com")),
        a_pod(templates=("t",)),
        (),
    ),
    "a look at devices outside queues, which takes none": (
        a_cluster().namespace("ml", team="a", **DEMANDING).template("t", watching(GPU)),
        a_pod(templates=("t",)),
        (),
    ),
    "a resource of a device plugin outside queues that a Meter lists": (
        a_cluster().listed("plugged", "example.com/card"),
        a_pod(containers=[{"name": "main", "resources": {"requests": {"example.com/card": "1"}}}]),
        (f"{OUTSIDE} (example.com/card)",),
    ),
    "no device where the namespace demands a queue of those": (
        a_cluster().namespace("ml", team="a", **DEMANDING),
        a_pod(),
        (),
    ),
    "another value of the label demands nothing": (
        World().namespace("ml", **{"muster.dev/require-queue": "false"}),
        a_pod(claims=("later",)),
        (),
    ),
    "several defaults": (
        World().queue("b", default=True).queue("a", default=True),
        a_pod(),
        ("queues a, b are all marked default for namespace ml",),
    ),
    "a gate without a queue": (a_cluster(), a_pod(gates=GATES), ("nothing will ever open it",)),
}


def test_a_namespace_that_is_not_seen_yet_may_demand_a_queue() -> None:
    """Its webhook is closed, so the answer is to try again, not to let the pod in."""
    asked = outside_queues.Asked(classes=frozenset({GPU}))

    with pytest.raises(RetryError, match="namespace new has not been seen yet"):
        outside_queues.denial(asked, "new", World().build())


def test_the_audit_log_notes_a_pod_that_takes_devices_outside_queues() -> None:
    verdict = plan_inputs.judge(a_cluster().template("t", exactly("gpu", GPU)), a_pod(templates=("t",)))

    assert verdict.annotations == {"outside-queues": GPU}


@pytest.mark.parametrize(("cluster_state", "pod", "warnings"), ALLOWED.values(), ids=ALLOWED)
def test_an_allowed_pod_has_the_expected_warnings(
    cluster_state: World, pod: dict[str, Any], warnings: tuple[str, ...]
) -> None:
    verdict = plan_inputs.judge(cluster_state, pod)

    assert verdict.denial is None
    assert len(verdict.warnings) == len(warnings)
    for warning, words in zip(verdict.warnings, warnings, strict=True):
        assert words in warning


@pytest.mark.parametrize(
    ("manager", "workload", "refused"),
    [("muster", "Job", True), ("muster", "Pod", True), ("muster", None, False), ("alice", "Job", False)],
)
def test_the_gang_of_a_job_or_pod_is_joined_by_no_name(manager: str, workload: str | None, refused: bool) -> None:
    """Muster lists it under a name of its own, and two gangs of one name would have one Gang object."""
    meta = {"name": "train-1a2b3", "namespace": "ml", "labels": {names.MANAGED_BY: manager}}
    spec: dict[str, Any] = {"queue": "team-a"}
    if workload is not None:
        spec["workload"] = {"apiVersion": "v1", "kind": workload, "name": "train", "uid": "u"}
    gang = gangs.decode({"metadata": meta, "spec": spec})
    snapshot = replace(a_cluster().build(), gangs={gang.meta.key: gang})

    denial = plan_inputs.judged(
        pod_view.decode(held(labels=plan_inputs.gangs(gang="train-1a2b3")), "ml"), snapshot
    ).denial

    assert (denial is not None) is refused
    if denial is not None:
        assert denial.reason is DenyReason.POLICY_VIOLATION
        assert f"the gang of {workload} train, which no other pod can join" in denial.message


def test_a_held_pod_is_noted_in_the_audit_log() -> None:
    assert plan_inputs.judge(a_cluster(), held()).annotations == {"queue": "team-a"}


def test_limits_are_asked_last_with_the_claims_that_are_known() -> None:
    cluster_state = a_cluster().template("t", exactly("gpu", GPU)).claim("c", exactly("gpu", GPU), allocated=True)
    asked = []

    class Limits(admission.NoLimits):
        def __call__(self, queue: Any, claims: Any, *_requested: Any) -> Denial:
            asked.append((queue.name, [(claim.source, claim.allocated) for claim in claims]))
            return Denial(DenyReason.NEVER_FITS, "too much")

    pod = pod_view.decode(held(templates=("t", "late"), claims=("c",)), "ml")
    snapshot = cluster_state.build()
    defaults = ReviewCaches().defaults(snapshot)
    verdict = admission.judge_creation(pod, snapshot, rules=RULES, defaults=defaults, limits=Limits())

    assert verdict.denial == Denial(DenyReason.NEVER_FITS, "too much")
    assert asked == [("team-a", [("ResourceClaimTemplate t", False), ("ResourceClaim c", True)])]


def test_claims_that_passed_are_not_checked_again_for_the_next_pod_and_refused_ones_are() -> None:
    cluster_state = a_cluster().template("t", exactly("gpu", GPU)).template("u", exactly("gpu", GPU))
    cluster_state = cluster_state.claim("c", exactly("gpu", GPU), allocated=True)
    asked: list[list[str]] = []

    class Limits(admission.NoLimits):
        def __call__(self, _queue: Any, claims: Any, *_requested: Any) -> Denial | None:
            asked.append([claim.source for claim in claims])
            return Denial(DenyReason.NEVER_FITS, "too much") if len(claims) > 1 else None

    snapshot, passed = cluster_state.build(), admission.PassedClaims()
    defaults = ReviewCaches().defaults(snapshot)

    def judge(**claims: Any) -> Denial | None:
        pod = pod_view.decode(held(**claims), "ml")
        return admission.judge_creation(
            pod, snapshot, rules=RULES, defaults=defaults, limits=Limits(), passed=passed
        ).denial

    answers = [judge(templates=("t",)) for _ in range(3)] + [judge(templates=("u",)), judge(claims=("c",))]
    assert answers == [None] * 5
    assert all(judge(templates=("t", "u")) is not None for _ in range(2))

    one = "ResourceClaimTemplate"
    assert asked == [[f"{one} t"], [f"{one} u"], ["ResourceClaim c"], *[[f"{one} t", f"{one} u"]] * 2]


def test_passed_claims_are_forgotten_when_queues_or_meters_change() -> None:
    memory, before, after = ReviewCaches(), a_cluster().build(), a_cluster().build()

    passed = memory.passed(before)
    passed[("team-a",)] = ()

    assert memory.passed(before) is passed
    assert memory.passed(after) == {}
