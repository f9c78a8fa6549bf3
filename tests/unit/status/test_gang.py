"""What is reported of queues and meters, from one snapshot and the books."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.accounting.books import Account, Book
from admission.api.kubernetes.meta import EPOCH, Condition, ConditionStatus, Meta, Owner
from admission.api.muster import meters, status_views
from admission.api.muster.gangs import Evicted, Gang, Phase
from admission.api.muster.ledger_entries import Bucket, Placement, Seat
from admission.api.muster.queues import PlacementMode
from admission.api.muster.status_reports import MeterUse
from admission.api.values import names
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import EvictionReason, Hold, HoldReason
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, meter_health
from admission.dra.requests.gang_request import Plan
from admission.errors import MalformedObjectError, Problem
from admission.kube.writers import status_encoding
from admission.quota.tree import Tree
from admission.quota.usage_matrix import Column
from admission.scheduling.backfill.reservations import Estimate
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.placement.mode import Chosen
from admission.status import gang, queue
from admission.status.gang import StatusInputs
from admission.status.queue import Tally
from admission.workloads import gang_key, gangs
from admission.workloads.gangs import Group
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster, let_in, running

GPUS = MeterName("gpus")
META = {"name": "train", "namespace": "ns"}
SPEC = {"queue": "q", "size": 2}


def facts_of(builder: ClusterBuilder, **used: int) -> StatusInputs:
    snapshot = builder.snapshot()
    balances = {Account(QueueName(queue), GPUS, Bucket.USED): amount for queue, amount in used.items()}
    return StatusInputs(
        snapshot=snapshot,
        book=Book(balances=balances),
        tree=Tree.build(snapshot.queues.values()),
    )


def gpus_of(facts: StatusInputs) -> dict[str, MeterUse]:
    return {report.name: report.meters[GPUS] for report in queue.queues(Tally(), facts) if GPUS in report.meters}


def test_a_queue_shows_what_it_uses_has_borrowed_and_has_lent() -> None:
    builder = a_cluster().queue("root", gpus=0).queue("a", gpus=2, parent="root").queue("b", gpus=6, parent="root")

    uses = gpus_of(facts_of(builder, a=5, b=1))

    assert (uses["a"].nominal, uses["a"].used, uses["a"].borrowed, uses["a"].lent) == (2, 5, 3, 0)
    assert (uses["b"].nominal, uses["b"].used, uses["b"].borrowed, uses["b"].lent) == (6, 1, 0, 3)


def test_an_inactive_queue_borrows_and_lends_nothing() -> None:
    uses = gpus_of(facts_of(a_cluster().queue("a", gpus=2, parent="nobody"), a=5))

    assert (uses["a"].used, uses["a"].borrowed, uses["a"].lent) == (5, 0, 0)


def test_the_books_are_read_once_for_all_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold a row for every queue: once for each queue blocked the loop for seconds with 400 of them."""
    asked: Counter[str] = Counter()

    def counted(owner: type, method: str) -> None:
        original = getattr(owner, method)

        def call(*given: Any) -> Any:
            asked[method] += 1
            return original(*given)

        monkeypatch.setattr(owner, method, call)

    counted(Book, "usage")
    counted(Column, "pool")
    builder = a_cluster().queue("root", gpus=1)
    for number in range(20):
        builder.queue(f"q{number}", gpus=1, parent="root")

    assert len(gpus_of(facts_of(builder))) == 21
    assert asked == {"usage": 1, "pool": 2}


def ready(price: str, *, malformed: bool = False) -> Condition:
    """Return the condition of a Meter with this price for a device that has but a model."""
    builder = a_cluster().node("a", gpus=1)
    source = {"deviceClasses": [CLASS], "expression": {"cel": price}}
    meter = meters.decode({"metadata": {"name": "price", "generation": 1}, "spec": {"sources": [source]}})
    snapshot = replace(builder.snapshot(), meters={meter.name: meter})
    if malformed:
        error = MalformedObjectError(
            "Meter", "price", (Problem("spec.sources[0]", "needs exactly one of claims, count"),)
        )
        snapshot = replace(snapshot, meters={}, malformed={("Meter", "price"): error})
    compiled = device_meters.compile_meters(snapshot.meters.values())
    health = meter_health.check(compiled, snapshot.slices, snapshot.classes, selectors=Selectors())
    (report,) = gang.conditions(snapshot, compiled, health=health)
    (condition,) = report.conditions
    assert (report.plural, report.name) == ("meters", "price")
    return condition


READY = {
    "a price of every device": ("1", ConditionStatus.TRUE, "Counting", ("every source is understood",)),
    "a text that is not finished": (
        "device.capacity[",
        ConditionStatus.FALSE,
        "Malformed",
        ("meter price: spec.sources[0].expression.cel: is no price: column 17", "finish the expression"),
    ),
    "a key that the device lacks": (
        "device.attributes['gpu.example.com'].nosuch",
        ConditionStatus.FALSE,
        "FailsOnDevices",
        ("meter price: spec.sources[0].expression.cel fails on device gpu.example.com/a/gpu-0", "guard it, as in `has"),
    ),
    "a negative price": (
        "-1",
        ConditionStatus.FALSE,
        "FailsOnDevices",
        ("gives -1 for device gpu.example.com/a/gpu-0", "let it give 0 or more"),
    ),
}


@pytest.mark.parametrize(("price", "status", "reason", "says"), READY.values(), ids=READY)
def test_the_ready_condition_of_a_meter_says_whether_the_meter_counts(
    price: str, status: ConditionStatus, reason: str, says: tuple[str, ...]
) -> None:
    condition = ready(price)

    assert (condition.type, condition.status, condition.reason) == ("Ready", status, reason)
    assert [part for part in says if part not in condition.message] == []


def test_a_meter_that_cannot_be_read_says_so() -> None:
    condition = ready("1", malformed=True)

    assert (condition.status, condition.reason) == (ConditionStatus.FALSE, "Malformed")
    assert condition.message == "Meter price: spec.sources[0]: needs exactly one of claims, count"


def test_the_gang_object_of_an_evicted_gang_stays_though_other_gangs_of_its_workload_have_pods() -> None:
    """The first wave of a workload is called as the whole; its pods are made anew while the launcher's wait."""
    workload = Owner(api_version="kubeflow.org/v2beta1", kind="MPIJob", name="mpi", uid=Uid("u"), controller=True)
    name = gang_key.unique_name("mpi", gang_key.gang_uid("u"))
    meta = Meta(name=name, namespace="team", labels={names.MANAGED_BY: names.FIELD_MANAGER})
    record = Gang(meta=meta, queue=QueueName("q"), size=2, workload=workload)

    assert gang.is_superseded(record, {Uid("u")})
    assert not gang.is_superseded(record, {Uid("other")})
    assert not gang.is_superseded(replace(record, evictions=1), {Uid("u")})


NEXT_TRY = EPOCH + timedelta(days=2)


def test_a_gang_object_is_removed_with_its_workload_or_when_a_successor_replaces_the_gang() -> None:
    workload = Owner(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="js", uid=Uid("u"), controller=True)
    known = {names.MANAGED_BY: names.FIELD_MANAGER}
    meta = Meta(name="js-abcde", namespace="team", labels=known, annotations={names.POSITION_KEY: "u/js"})
    ran = Gang(meta=meta, queue=QueueName("q"), size=2, workload=workload, phase=Phase.FINISHED)
    evicted = Evicted(reason=EvictionReason.PREEMPTED, message="", at=EPOCH + timedelta(days=1))
    taken_back = replace(ran, phase=Phase.EVICTED, evicted=evicted, next_try=NEXT_TRY)

    def until(record: Gang, *lines: str) -> datetime | None:
        return gang.kept_until(record, gang.idle(record, {}), lines)

    assert until(ran) is None
    assert until(ran, "u/other") is None
    assert until(ran, "u/js") == EPOCH
    assert until(taken_back, "u/js") == NEXT_TRY
    assert until(replace(ran, meta=replace(meta, annotations={})), "u/js") is None
    assert until(replace(ran, meta=replace(meta, labels={})), "u/js") is None


def test_the_gang_object_of_an_evicted_named_gang_stays_for_a_while() -> None:
    meta = Meta(name="own", namespace="team", labels={names.MANAGED_BY: names.FIELD_MANAGER})
    at = EPOCH + timedelta(days=1)
    evicted = Evicted(reason=EvictionReason.PREEMPTED, message="", at=at)
    taken_back = Gang(meta=meta, queue=QueueName("q"), size=2, phase=Phase.EVICTED, evicted=evicted)

    def until(record: Gang) -> datetime | None:
        return gang.kept_until(record, gang.idle(record, {}), ())

    assert until(taken_back) == at + gang.PREEMPTED_RETENTION
    assert until(replace(taken_back, next_try=NEXT_TRY)) == NEXT_TRY
    assert until(replace(taken_back, phase=Phase.FINISHED)) == EPOCH
    assert until(replace(taken_back, meta=replace(meta, labels={}))) is None


def test_a_meter_of_a_class_that_is_not_there_counts_and_says_so() -> None:
    snapshot = replace(a_cluster().snapshot(), classes={})
    compiled = device_meters.compile_meters(snapshot.meters.values())

    found = {report.name: report.conditions[0] for report in gang.conditions(snapshot, compiled)}

    assert (found[GPUS].status, found[GPUS].reason) == (ConditionStatus.TRUE, "ClassMissing")
    assert found[GPUS].message == f"counts; no DeviceClass is called {CLASS} yet"


UNREADABLE = MalformedObjectError("Node", "a", (Problem("spec", "is odd"),))
LACKS = Hold(HoldReason.DEVICES_BUSY, "needs 2")


@pytest.mark.parametrize(
    ("hold", "kinds", "more"),
    [
        (LACKS, ["Node"], "; not counted, since it cannot be read: Node a: spec: is odd; mend it"),
        (
            LACKS,
            ["Node", "ResourceSlice"],
            "; not counted, since it cannot be read: Node a: spec: is odd and 1 more; mend it",
        ),
        (LACKS, ["NodeShape"], "; not counted, since it cannot be read: Node a: spec: is odd; mend it"),
        (LACKS, ["Pod"], ""),
        (LACKS, [], ""),
        (Hold(HoldReason.QUOTA_EXCEEDED, "needs 2"), ["Node"], ""),
    ],
)
def test_where_devices_lack_the_first_hardware_that_cannot_be_read_is_named(
    hold: Hold, kinds: list[str], more: str
) -> None:
    snapshot = replace(a_cluster().snapshot(), malformed={(kind, "a"): UNREADABLE for kind in kinds})

    reported = gang.with_malformed_hardware(hold, snapshot)

    assert reported is not None
    assert reported.message == f"needs 2{more}"


def a_group(*, runs: int = 0, let: int = 0, seats: int = 0) -> tuple[Group, Placement]:
    """Return a gang of two pods, of which so many run and were let in, and its placement, with places for so many."""
    (group,) = gangs.groups(a_cluster().job("train", queue="q", pods=2).snapshot(), {})
    changed = [running(pod, "a") for pod in group.pods[:runs]] + [let_in(pod) for pod in group.pods[runs : runs + let]]
    pods = (*changed, *group.pods[len(changed) :])
    found = {pod.meta.uid: Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=NodeName("a"), claims=()) for pod in pods}
    kept = dict(list(found.items())[:seats])
    placement = Placement(gang_uid=group.uid, gang=group.key, queue=group.queue, reserved_at=NOON, seats=kept)
    return replace(group, pods=pods, placement=placement), placement


PHASES: dict[str, tuple[dict[str, int], Phase]] = {
    "none has a place": ({}, Phase.PENDING),
    "all have places and wait at their gates": ({"seats": 2}, Phase.RESERVED),
    "one has a place and waits at its gate": ({"seats": 1}, Phase.RESERVED),
    "one still waits at its gate": ({"seats": 2, "let": 1}, Phase.RESERVED),
    "all were let in": ({"seats": 2, "let": 2}, Phase.ADMITTED),
    "one runs": ({"seats": 2, "runs": 1, "let": 1}, Phase.ADMITTED),
    "all run": ({"seats": 2, "runs": 2}, Phase.RUNNING),
    "all that have a place run": ({"seats": 1, "runs": 1}, Phase.RUNNING),
    "one runs without a place": ({"runs": 1}, Phase.RUNNING),
}


@pytest.mark.parametrize(("needed", "phase"), [(1, Phase.RUNNING), (2, Phase.RESERVED)])
def test_a_gang_runs_whose_other_pods_suffice_though_one_has_its_place_and_waits_at_its_gate(
    needed: int, phase: Phase
) -> None:
    group, placement = a_group(seats=2, runs=1)
    group = replace(group, identity=replace(group.identity, needed=needed, elastic=needed == 1))

    assert gang.phase_of(group, placement) is phase


@pytest.mark.parametrize(("pods", "phase"), PHASES.values(), ids=PHASES)
def test_the_phase_of_a_gang_of_whose_pods(pods: dict[str, int], phase: Phase) -> None:
    assert gang.phase_of(*a_group(**pods)) is phase


def test_a_gang_without_pods_has_ended_or_not_begun() -> None:
    group, placement = a_group()
    gone = replace(group, pods=())

    assert gang.phase_of(gone, placement) is Phase.PENDING
    assert gang.phase_of(replace(gone, ended=group.pods), None) is Phase.FINISHED


def test_a_gang_that_waits_is_told_its_place_and_when_it_may_start_and_one_that_was_granted_is_not() -> None:
    group, _ = a_group()
    hold = Hold(HoldReason.QUOTA_EXCEEDED, "needs 2")
    granted = Grant(
        plan=Plan(pods=(), charge={}, holdings=()), claims={}, chosen=Chosen(mode=PlacementMode.PIN, reason="")
    )
    facts = replace(facts_of(a_cluster()), estimates={group.uid: Estimate(at=NOON, message="when others end")})

    waits, starts = (
        gang.gang(group, replace(facts, decisions={group.uid: Decision(group=group, outcome=outcome, position=3)}))
        for outcome in (hold, granted)
    )
    unknown = gang.gang(group, facts)

    assert (waits.hold, waits.position, waits.start_estimate, waits.start_reason) == (hold, 3, NOON, "when others end")
    for report in (starts, unknown):
        assert (report.hold, report.position, report.start_estimate, report.start_reason) == (None, None, None, "")


SHORT = {"meter": "gpus", "needed": "28", "left": "0", "potential": "24"}
NEVER: dict[str, tuple[HoldReason, dict[str, Any], int, bool]] = {
    "more than the queue can ever have": (HoldReason.QUOTA_EXCEEDED, SHORT, 28, True),
    "a plan of costly devices, where others may be cheaper": (HoldReason.QUOTA_EXCEEDED, SHORT, 24, False),
    "more than the queue has now": (HoldReason.QUOTA_EXCEEDED, SHORT | {"potential": "28"}, 28, False),
    "a queue that is not active": (HoldReason.QUOTA_EXCEEDED, {"queue": "q"}, 28, False),
    "more than an empty cluster has": (HoldReason.NO_FEASIBLE_PLACEMENT, {}, 2, True),
    "nodes are left out for a while": (HoldReason.NO_FEASIBLE_PLACEMENT, {"refusedOn": ["a"]}, 2, False),
    "devices in use": (HoldReason.DEVICES_BUSY, {}, 2, False),
}


@pytest.mark.parametrize(("reason", "details", "needed", "never"), NEVER.values(), ids=NEVER)
def test_a_gang_that_would_not_fit_if_nothing_were_in_use_never_fits(
    reason: HoldReason, details: dict[str, Any], needed: int, *, never: bool
) -> None:
    group, _ = a_group()
    decision = Decision(group=group, outcome=Hold(reason, "why", details), position=1, needed={GPUS: needed})

    report = gang.gang(group, replace(facts_of(a_cluster()), decisions={group.uid: decision}))
    shown = status_encoding.gang_status(report, {}, now=NOON)

    read = {condition["type"]: condition for condition in shown["conditions"]}
    assert ("NeverFits" in read) is never
    told = read["NeverFits" if never else "Admitted"]
    assert (told["reason"], told["message"]) == (reason, "why")
    assert [kind for kind, condition in read.items() if condition["message"] == "why"] == [told["type"]]
    assert shown["requests"] == {"gpus": str(needed)}
    assert shown["summary"] == {"reason": "NeverFits" if never else reason, "requests": f"{needed} gpus"}
    assert status_views.gang({"metadata": META, "spec": SPEC, "status": shown}).never_fits is never


def test_what_keeps_a_gang_from_being_placed_is_told_while_its_places_are_reserved() -> None:
    hold = Hold(HoldReason.WAITING_FOR_CLAIMS, "claim c cannot be read")

    def told(**pods: int) -> object:
        group, placement = a_group(**pods)
        book = Book(placements={group.uid: placement})
        return gang.gang(group, replace(facts_of(a_cluster()), book=book, placement_holds={group.uid: hold})).hold

    assert told(seats=2) is hold
    assert told(seats=2, let=2) is None


def test_the_object_of_one_gang_of_a_workload_is_superseded_by_nothing_but_others_of_it() -> None:
    workload = Owner(api_version="kubeflow.org/v2beta1", kind="MPIJob", name="mpi", uid=Uid("u"), controller=True)
    name = gang_key.unique_name("mpi", gang_key.gang_uid("u"))
    meta = Meta(name=name, namespace="team", labels={names.MANAGED_BY: names.FIELD_MANAGER})
    record = Gang(meta=meta, queue=QueueName("q"), size=2, workload=workload)
    evicted = Evicted(reason=EvictionReason.PREEMPTED, message="", at=EPOCH)

    assert gang.is_superseded(record, {Uid("u")})
    for other in (
        replace(record, meta=replace(meta, labels={})),
        replace(record, meta=replace(meta, name="mpi-x")),
        replace(record, workload=None),
        replace(record, phase=Phase.RUNNING),
        replace(record, evicted=evicted),
    ):
        assert not gang.is_superseded(other, {Uid("u")})
