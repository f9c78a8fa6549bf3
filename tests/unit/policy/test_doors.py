from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.api import names
from admission.api.patches import Patch
from admission.api.reasons import Denial, DenyReason
from admission.api.reviews import Verdict
from admission.api.snapshot import Snapshot
from admission.errors import RetryError
from admission.policy import arrivals, doors, entering
from admission.policy.arrivals import Arrival
from admission.policy.remembering import Memory
from tests.unit.webhook import patching
from tests.unit.webhook.cases import (
    CONTROLLER,
    GATES,
    RULES,
    World,
    a_pod,
    a_world,
    either,
    every,
    exactly,
    held,
)

GPU = "gpu.example.com"
OTHER_GATE = {"name": "example.com/quarantine"}


def add_gate(gates: Any = None) -> dict[str, Any]:
    if gates is None:
        return {"op": "add", "path": "/spec/schedulingGates", "value": GATES}
    return {"op": "add", "path": "/spec/schedulingGates/-", "value": gates}


LABEL_POINTER = "/metadata/labels/muster.dev~1queue"

ADDITIONS: dict[str, tuple[World, dict[str, Any], list[dict[str, Any]]]] = {
    "a pod that names its queue gets the gate": (a_world(), a_pod(labels={names.QUEUE: "team-a"}), [add_gate()]),
    "gates of others stay": (
        a_world(),
        a_pod(labels={names.QUEUE: "team-a"}, gates=[OTHER_GATE]),
        [add_gate(GATES[0])],
    ),
    "an empty list of gates is added to": (
        a_world(),
        a_pod(labels={names.QUEUE: "team-a"}, gates=[]),
        [add_gate(GATES[0])],
    ),
    "a pod that has all gets nothing": (a_world(), held(), []),
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
    "two defaults are none": (World().queue("a", default=True).queue("b", default=True), a_pod(), []),
    "a queue that is not the default is not entered unasked": (a_world(), a_pod(), []),
    "a default of another namespace is none": (World().queue("team-b", team="b", default=True), a_pod(), []),
    "a parent is nobody's default": (World().queue("root", team=None, default=True), a_pod(), []),
    "an unknown queue is left for the validating half": (a_world(), a_pod(labels={names.QUEUE: "nope"}), []),
    "a queue that is not open is left for the validating half": (
        a_world(),
        a_pod(labels={names.QUEUE: "team-b"}),
        [],
    ),
    "a bound pod gets no gate, which the API server would refuse in other words": (
        a_world(),
        a_pod(labels={names.QUEUE: "team-a"}, nodeName="n1"),
        [],
    ),
}


@pytest.mark.parametrize(("world", "pod", "wanted"), ADDITIONS.values(), ids=ADDITIONS)
def test_what_a_new_pod_gets(world: World, pod: dict[str, Any], wanted: list[dict[str, Any]]) -> None:
    arrival = arrivals.decode(pod, "ml")

    assert list(added(arrival, world.build())) == wanted


def gangs(**settings: str) -> dict[str, str]:
    return {f"muster.dev/{key.replace('_', '-')}": value for key, value in settings.items()}


DENIED: dict[str, tuple[World, dict[str, Any], DenyReason, tuple[str, ...]]] = {
    "an unknown queue is named, with its nearest": (
        a_world().queue("team-archive"),
        held("taem-a"),
        DenyReason.UNKNOWN_QUEUE,
        ("there is no queue taem-a", "nearest by name: team-a", "kubectl get queues.muster.dev"),
    ),
    "queues that the namespace may not enter are not suggested": (
        World().queue("team-b", team="b"),
        held("team-c"),
        DenyReason.UNKNOWN_QUEUE,
        ("no queue at all is open to namespace ml",),
    ),
    "a queue that cannot be read says what is wrong with it": (
        a_world().broken_queue("team-x"),
        held("team-x"),
        DenyReason.UNKNOWN_QUEUE,
        ("team-x exists but cannot be read", "spec.quotas[0].nominal"),
    ),
    "a queue that is not open shows its selector and the namespace's labels": (
        a_world(),
        held("team-b"),
        DenyReason.QUEUE_NOT_OPEN,
        ("team=b", "kubernetes.io/metadata.name=ml, team=a"),
    ),
    "a parent sends on to its children": (
        World().queue("research", team=None).queue("team-a", parent="research"),
        held("research"),
        DenyReason.QUEUE_NOT_OPEN,
        ("it is a parent", "name one below it: team-a"),
    ),
    "a bound pod is told to leave nodeName out": (
        a_world(),
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
        a_world(),
        held(gates=[], annotations={arrivals.MIRROR: "x"}),
        DenyReason.GATE_TAMPERING,
        ("without scheduling gate",),
    ),
    "a gate that another webhook took is missed": (
        a_world(),
        held(gates=[OTHER_GATE]),
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
        a_world(),
        held(labels=gangs(gang="My_Gang")),
        DenyReason.MALFORMED_REQUEST,
        ("label muster.dev/gang is 'My_Gang'", "lower-case letters"),
    ),
    "a gang is no path": (
        a_world(),
        held(annotations=gangs(gang="../../other/gangs/x")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/gang is '../../other/gangs/x'",),
    ),
    "a gang is not the folder above": (
        a_world(),
        held(annotations=gangs(gang="..")),
        DenyReason.MALFORMED_REQUEST,
        ("'..'",),
    ),
    "a gang's name ends where the text ends": (
        a_world(),
        held(annotations=gangs(gang="train\n")),
        DenyReason.MALFORMED_REQUEST,
        ("'train\\n'",),
    ),
    "a gang's name is as long as a label at most, and not shown whole": (
        a_world(),
        held(annotations=gangs(gang="a" * 64)),
        DenyReason.MALFORMED_REQUEST,
        (f"'{'a' * 63}…'", "at most 63"),
    ),
    "label and annotation say the same gang": (
        a_world(),
        held(labels=gangs(gang="a"), annotations=gangs(gang="b")),
        DenyReason.MALFORMED_REQUEST,
        ("a as a label and b as an annotation",),
    ),
    "a size is a number": (
        a_world(),
        held(annotations=gangs(gang_size="four")),
        DenyReason.MALFORMED_REQUEST,
        ("annotation muster.dev/gang-size is 'four'", "1 to 10000"),
    ),
    "a size is not zero": (a_world(), held(labels=gangs(gang_size="0")), DenyReason.MALFORMED_REQUEST, ("label",)),
    "a size is at most 10000": (
        a_world(),
        held(labels=gangs(gang_size="10001")),
        DenyReason.MALFORMED_REQUEST,
        ("'10001'",),
    ),
    "a size has no sign": (a_world(), held(labels=gangs(gang_size="+4")), DenyReason.MALFORMED_REQUEST, ("'+4'",)),
    "a size is written in ASCII": (
        a_world(),
        held(annotations=gangs(gang_size="٤")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-size",),
    ),
    "a size of very many digits is not even computed": (
        a_world(),
        held(annotations=gangs(gang_size="1" * 5000)),
        DenyReason.MALFORMED_REQUEST,
        ("gang-size",),
    ),
    "the least size is a number": (
        a_world(),
        held(labels=gangs(gang_min="-1")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-min",),
    ),
    "the least size is not above the size": (
        a_world(),
        held(labels=gangs(gang_size="4", gang_min="8")),
        DenyReason.MALFORMED_REQUEST,
        ("gang-min is 8", "which is 4"),
    ),
    "label and annotation say the same size": (
        a_world(),
        held(labels=gangs(gang_size="4"), annotations=gangs(gang_size="8")),
        DenyReason.MALFORMED_REQUEST,
        ("4 as a label and 8 as an annotation",),
    ),
    "a runtime is a duration": (
        a_world(),
        held(annotations=gangs(runtime="soon")),
        DenyReason.MALFORMED_REQUEST,
        ("muster.dev/runtime", "90s, 5m or 1h30m"),
    ),
    "a claim of 33 devices is too large": (
        a_world().template("big", exactly("gpu", GPU, 33)),
        held(templates=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("ResourceClaimTemplate big asks for 33 devices", "at most 32"),
    ),
    "requests of one claim are counted together": (
        a_world().claim("big", exactly("a", GPU, 20), exactly("b", GPU, 20)),
        held(claims=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("ResourceClaim big asks for 40 devices",),
    ),
    "even the lightest alternative is too large": (
        a_world().template("big", either("gpu", ("a", GPU, 64), ("b", GPU, 33))),
        held(templates=("big",)),
        DenyReason.CLAIM_TOO_LARGE,
        ("33 devices",),
    ),
    "a class that no meter counts is named with its request": (
        a_world().template("fpga", exactly("card", "fpga.example.com")),
        held(templates=("fpga",)),
        DenyReason.UNMETERED_CLASS,
        ("ResourceClaimTemplate fpga", "request card", "class fpga.example.com", "unmeteredClasses: Allow"),
    ),
    "every alternative has to be metered": (
        a_world().template("any", either("card", ("gpu", GPU, 1), ("fpga", "fpga.example.com", 1))),
        held(templates=("any",)),
        DenyReason.UNMETERED_CLASS,
        ("request card/fpga",),
    ),
}


@pytest.mark.parametrize(("world", "pod", "reason", "words"), DENIED.values(), ids=DENIED)
def test_what_is_refused(world: World, pod: dict[str, Any], reason: DenyReason, words: tuple[str, ...]) -> None:
    denial = judge(world, pod).denial

    assert denial is not None
    assert denial.reason == reason
    for word in words:
        assert word in denial.message


ALLOWED: dict[str, tuple[World, dict[str, Any], tuple[str, ...]]] = {
    "a held pod": (a_world(), held(), ()),
    "a pod of no queue": (a_world(), a_pod(), ()),
    "a bound pod of no queue, as kubectl debug node makes": (a_world(), a_pod(nodeName="n1"), ()),
    "a mirror of a static pod, though it names a queue": (
        a_world(),
        held(gates=[], nodeName="n1", annotations={arrivals.MIRROR: "hash"}),
        (),
    ),
    "gang sizes of a pod of no queue": (a_world(), a_pod(labels=gangs(gang_size="many")), ()),
    "gangs at the limits": (a_world(), held(annotations=gangs(gang="a.0-" + "b" * 59)), ()),
    "a gang said twice": (a_world(), held(labels=gangs(gang="a"), annotations=gangs(gang="a")), ()),
    "the gang of a pod of no queue": (a_world(), a_pod(annotations=gangs(gang="..")), ()),
    "sizes at the limits": (a_world(), held(labels=gangs(gang_size="10000", gang_min="1")), ()),
    "a known claim of a metered class": (a_world().claim("c", exactly("gpu", GPU, 32)), held(claims=("c",)), ()),
    "a lighter alternative": (
        a_world().template("t", either("gpu", ("many", GPU, 64), ("few", GPU, 8))),
        held(templates=("t",)),
        (),
    ),
    "all devices of a node, however many": (a_world().template("t", every("gpu", GPU)), held(templates=("t",)), ()),
    "an unmetered class where the queue allows it": (
        World().queue("team-a", unmeteredClasses="Allow").template("t", exactly("card", "fpga.example.com")),
        held(templates=("t",)),
        (),
    ),
    "a template and a claim that are still to come": (
        a_world(),
        held(templates=("late",), claims=("later",)),
        (
            "ResourceClaimTemplate late is not there in namespace ml; the pod waits until it exists",
            "ResourceClaim later is not there",
        ),
    ),
    "another scheduler": (a_world(), held(schedulerName="volcano"), ("schedulerName volcano",)),
    "another scheduler outside queues": (a_world(), a_pod(schedulerName="volcano"), ()),
    "several defaults": (
        World().queue("b", default=True).queue("a", default=True),
        a_pod(),
        ("queues a, b are all marked default for namespace ml",),
    ),
    "a gate without a queue": (a_world(), a_pod(gates=GATES), ("nothing will ever open it",)),
}


@pytest.mark.parametrize(("world", "pod", "warnings"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed(world: World, pod: dict[str, Any], warnings: tuple[str, ...]) -> None:
    verdict = judge(world, pod)

    assert verdict.denial is None
    assert len(verdict.warnings) == len(warnings)
    for warning, words in zip(verdict.warnings, warnings, strict=True):
        assert words in warning


def test_a_held_pod_is_noted_in_the_audit_log() -> None:
    assert judge(a_world(), held()).annotations == {"queue": "team-a"}


def test_limits_are_asked_last_with_the_claims_that_are_known() -> None:
    world = a_world().template("t", exactly("gpu", GPU)).claim("c", exactly("gpu", GPU), allocated=True)
    asked = []

    def limits(queue: Any, claims: Any, _extended: Any) -> Denial:
        asked.append((queue.name, [(claim.source, claim.allocated) for claim in claims]))
        return Denial(DenyReason.NEVER_FITS, "too much")

    pod = arrivals.decode(held(templates=("t", "late"), claims=("c",)), "ml")
    snapshot = world.build()
    defaults = Memory().defaults(snapshot)
    verdict = doors.judge_creation(pod, snapshot, rules=RULES, defaults=defaults, limits=limits)

    assert verdict.denial == Denial(DenyReason.NEVER_FITS, "too much")
    assert asked == [("team-a", [("ResourceClaimTemplate t", False), ("ResourceClaim c", True)])]


@pytest.mark.parametrize("pod", [a_pod(), held()], ids=["default", "named"])
def test_a_namespace_that_was_not_seen_yet_is_waited_for(pod: dict[str, Any]) -> None:
    world = World().queue("team-a", default=True).build()

    with pytest.raises(RetryError, match="namespace new has not been seen yet"):
        added(arrivals.decode(pod, "new"), world)


def test_a_namespace_that_was_not_seen_yet_does_not_matter_to_a_pod_of_no_queue() -> None:
    assert added(arrivals.decode(a_pod(), "new"), a_world().build()) == ()


FIXED = {
    "queue": ({names.QUEUE: "team-a"}, {names.QUEUE: "team-b"}),
    "queue, taken away": ({names.QUEUE: "team-a"}, {}),
    "queue, given to a pod that had none": ({}, {names.QUEUE: "team-a"}),
    "gang": ({names.QUEUE: "q", names.GANG: "one"}, {names.QUEUE: "q", names.GANG: "two"}),
    "size": ({names.QUEUE: "q"}, {names.QUEUE: "q", names.GANG_SIZE: "2"}),
    "least size": ({names.QUEUE: "q", names.GANG_MIN: "2"}, {names.QUEUE: "q", names.GANG_MIN: "1"}),
}


@pytest.mark.parametrize(("before", "after"), FIXED.values(), ids=FIXED)
def test_queue_and_gang_are_fixed_when_the_pod_is_created(before: dict[str, str], after: dict[str, str]) -> None:
    denial = change(a_pod(labels=before, gates=GATES), a_pod(labels=after, gates=GATES))

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert "delete the pod and create it" in denial.message


def test_an_annotation_of_the_gang_is_fixed_as_well() -> None:
    denial = change(held(annotations=gangs(gang_size="2")), held(annotations=gangs(gang_size="1")))

    assert denial is not None
    assert "from annotation '2' to annotation '1'" in denial.message


@pytest.mark.parametrize("pod", [held(), a_pod(gates=GATES)], ids=["queued", "outside"])
def test_nobody_but_the_controller_opens_a_gate(pod: dict[str, Any]) -> None:
    opened = {**pod, "spec": {**pod["spec"], "schedulingGates": [OTHER_GATE]}}

    denial = change(pod, opened)

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert denial.message.startswith("scheduling gate muster.dev/admission is removed by alice")
    assert change(pod, opened, username=CONTROLLER) is None


def of(owner: dict[str, Any], said: str | None) -> dict[str, Any]:
    """Return a pod with an owner, whose template names its maker."""
    pod = a_pod(annotations=None if said is None else {names.USER: said})
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


UNTOUCHED = {
    "another label": (held(), held(labels={"app": "x"})),
    "another gate": (held(gates=[OTHER_GATE, *GATES]), held()),
    "a gang label of a pod of no queue": (a_pod(labels={names.GANG: "a"}), a_pod(labels={names.GANG: "b"})),
    "a pod whose gate was opened before": (held(gates=[]), held(gates=[], annotations={"note": "x"})),
    "a pod that was deleted, losing a finalizer": (held(gates=[]), held(gates=None)),
}


@pytest.mark.parametrize(("old", "new"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_other_changes_are_nobodys_business(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert change(old, new) is None


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"

MAKERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "who creates a pod": (a_pod(), "alice", "alice"),
    "whatever the author wrote": (a_pod(annotations={names.USER: "bob"}), "alice", "alice"),
    "the Job's maker, of a pod that the Job controller creates": (of(JOB, "bob"), JOB_CONTROLLER, "bob"),
    "the same, where controllers have no accounts of their own": (
        of(JOB, "bob"),
        "system:kube-controller-manager",
        "bob",
    ),
    "the Job controller, of a Job that was made unseen": (of(JOB, None), JOB_CONTROLLER, JOB_CONTROLLER),
    "who says to be a Job": (of(JOB, "bob"), "alice", "alice"),
    "another controller": (of({**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}, "bob"), "rs", "rs"),
    "the Job controller, of a pod of no Job": (
        of({**JOB, "kind": "ReplicaSet"}, "bob"),
        JOB_CONTROLLER,
        JOB_CONTROLLER,
    ),
    "the Job controller, of a pod that a Job owns but does not control": (
        of({**JOB, "controller": False}, "bob"),
        JOB_CONTROLLER,
        JOB_CONTROLLER,
    ),
}


@pytest.mark.parametrize(("pod", "username", "maker"), MAKERS.values(), ids=MAKERS)
def test_a_pod_in_a_queue_names_its_maker(pod: dict[str, Any], username: str, maker: str) -> None:
    snapshot = World().queue("team-a", default=True).build()
    arrival = arrivals.decode(pod, "ml")

    patch = doors.additions(arrival, snapshot, Memory().defaults(snapshot), username=username)

    patched = patching.applied(pod, patch)
    assert patched["metadata"]["annotations"][names.USER] == maker
    judgement = doors.judge_creation(
        arrivals.decode(patched, "ml"),
        snapshot,
        rules=RULES,
        defaults=Memory().defaults(snapshot),
        username=username,
    )
    assert judgement.denial is None


def test_a_pod_of_no_queue_is_not_marked() -> None:
    snapshot = a_world().build()

    assert (
        doors.additions(arrivals.decode(a_pod(), "ml"), snapshot, Memory().defaults(snapshot), username="alice") == ()
    )


@pytest.mark.parametrize("said", ["bob", ""])
def test_a_pod_that_names_another_maker_is_refused(said: str) -> None:
    snapshot = a_world().build()
    pod = arrivals.decode(held(annotations={names.USER: said}), "ml")

    verdict = doors.judge_creation(pod, snapshot, rules=RULES, defaults=Memory().defaults(snapshot), username="alice")

    assert verdict.denial is not None
    assert verdict.denial.reason == DenyReason.GATE_TAMPERING
    assert "made by alice" in verdict.denial.message


@pytest.mark.parametrize("after", [{names.USER: "bob"}, {names.USER: ""}])
def test_the_maker_of_a_queued_pod_stays_who_it_is(after: dict[str, str]) -> None:
    denial = change(held(), held(annotations=after))

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert change(held(), held(annotations=after), username=RULES.controller) is None
    assert change(a_pod(annotations={names.USER: "x"}), a_pod(annotations=after)) is None


LABELS = st.none() | st.dictionaries(
    st.sampled_from([names.QUEUE, "app", "a/b~c"]), st.sampled_from(["team-a", "team-b", "x", ""])
)
POD_GATES = st.none() | st.lists(st.sampled_from([GATES[0], OTHER_GATE]), max_size=3)


@settings(deadline=None)
@given(labels=LABELS, gates=POD_GATES, default=st.booleans())
def test_the_second_call_finds_nothing_left_to_do(labels: Any, gates: Any, default: bool) -> None:
    world = World().queue("team-a", default=default).queue("team-b", team="b").build()
    pod = a_pod(labels=labels, gates=gates)

    patched = patching.applied(pod, added(arrivals.decode(pod, "ml"), world))

    again = arrivals.decode(patched, "ml")
    assert added(again, world) == ()
    if again.queue == "team-a":
        assert judged(again, world).denial is None


@settings(deadline=None)
@given(labels=LABELS, gates=POD_GATES)
def test_nothing_that_was_there_is_lost(labels: Any, gates: Any) -> None:
    world = World().queue("team-a", default=True).build()
    pod = a_pod(labels=labels, gates=gates)

    patched = patching.applied(pod, added(arrivals.decode(pod, "ml"), world))

    kept = {key: value for key, value in (labels or {}).items() if key != names.QUEUE}
    assert kept.items() <= patched["metadata"].get("labels", {}).items()
    assert patched["spec"].get("schedulingGates", [])[: len(gates or [])] == (gates or [])
    assert patched["spec"]["containers"] == pod["spec"]["containers"]


SELECTORS = {
    "": {},
    "a=b": {"matchLabels": {"a": "b"}},
    "a in (b,c)": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
    "a notin (b)": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
    "a,!b": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
}


@pytest.mark.parametrize(("text", "selector"), SELECTORS.items(), ids=SELECTORS)
def test_selectors_are_written_as_kubectl_takes_them(text: str, selector: dict[str, Any]) -> None:
    queue = World().queue("q", namespaceSelector=selector).build().queues
    (found,) = queue.values()

    assert found.namespaces is not None
    assert entering.describe(found.namespaces) == (text or "any labels")


def judge(world: World, pod: dict[str, Any]) -> Verdict:
    return judged(arrivals.decode(pod, "ml"), world.build())


def judged(arrival: Arrival, snapshot: Snapshot) -> Verdict:
    return doors.judge_creation(arrival, snapshot, rules=RULES, defaults=Memory().defaults(snapshot))


def added(arrival: Arrival, snapshot: Snapshot) -> Patch:
    return doors.additions(arrival, snapshot, Memory().defaults(snapshot))


def change(old: dict[str, Any], new: dict[str, Any], *, username: str = "alice") -> Denial | None:
    before, after = arrivals.decode(old, "ml"), arrivals.decode(new, "ml")
    return doors.judge_change(before, after, username=username, rules=RULES)
