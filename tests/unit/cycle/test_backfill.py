"""What heads of queues are promised: who passes them, who does not, and what becomes of it as time goes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport, Phase
from admission.api.scheduling.pod_volumes import PodVolume
from admission.api.scheduling.scheduling_rules import AffinityTerm, HostPort, SchedulingRules, SpreadConstraint
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import MeterName
from admission.api.values.reasons import HoldReason
from admission.api.values.selectors import LabelSelector, Requirement
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.reservations import UsageExcludingReserved
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import Verdict, VerdictCache
from admission.scheduling.checks import chain
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock
from admission.simulation.replay.queue import Muster
from tests import readers
from tests.builders import NAMESPACE, a_cluster
from tests.property.test_replay import Controlled
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.simulation.simulated import expand, node, teams
from tests.unit.simulation.test_replay import play, queue, row, starts, strict, town, trace

A, LARGE = row("a", 0, 10, gpus=2), row("large", 1, 10, gpus=4)
"""What runs for ten seconds on half of a node, and who needs all of it."""


def test_only_a_gang_that_ends_before_the_head_starts_is_backfilled() -> None:
    found = play(town(teams(), node("one", 4)), A, LARGE, row("short", 2, 8), row("long", 2, 9))

    assert starts(found) == {"a": 0, "large": 10, "short": 2, "long": 20}


def test_a_gang_that_needs_no_reserved_device_is_backfilled_whatever_its_runtime() -> None:
    place = town(teams(), node("one", 4), node("two", 2))
    rows = [row(f"long-{at}", 2, 100) for at in range(3)]

    found = play(place, row("a", 0, 10, gpus=3), LARGE, *rows)

    assert starts(found) == {"a": 0, "large": 10, "long-0": 2, "long-1": 2, "long-2": 20}


def test_room_on_nodes_is_reserved_as_devices_are() -> None:
    bare, devices = node("one", 4)
    cpus = town(teams(), [{**bare, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}, devices])
    first, large = {**A, "requests": {"cpu": "3"}}, row("large", 1, 10, requests={"cpu": "4"})

    found = play(cpus, first, large, row("long", 2, 9, requests={"cpu": "1"}), row("none", 2, 9))

    assert starts(found) == {"a": 0, "large": 10, "long": 20, "none": 2}


def test_quota_is_reserved_as_devices_are() -> None:
    place = town(teams(4), node("one", 4), node("two", 4))

    found = play(place, row("a", 0, 10, gpus=3), LARGE, row("short", 2, 8), row("long", 2, 9))

    assert starts(found) == {"a": 0, "large": 10, "short": 2, "long": 20}


def test_gangs_of_other_queues_must_not_delay_the_head() -> None:
    place = town(strict(), queue("other", 8), node("one", 4))

    found = play(place, A, LARGE, row("short", 2, 8, queue="other"), row("long", 2, 9, queue="other"))

    assert starts(found) == {"a": 0, "large": 10, "short": 2, "long": 20}


def test_no_gang_is_backfilled_in_a_strict_queue() -> None:
    found = play(town(strict(), node("one", 4)), A, LARGE, row("short", 2, 8))

    assert starts(found) == {"a": 0, "large": 10, "short": 20}


def test_a_gang_of_higher_priority_may_start_on_devices_reserved_for_the_head() -> None:
    found = play(town(teams(), node("one", 4)), A, LARGE, row("urgent", 2, 30, priority=1))

    assert starts(found) == {"a": 0, "large": 32, "urgent": 2}


def test_a_pending_gang_of_higher_priority_takes_over_the_reservation_of_the_head() -> None:
    urgent = row("urgent", 2, 30, gpus=4, priority=1)
    place = town(teams(), queue("other", 8), node("one", 4))

    for own in (urgent, {**urgent, "queue": "other"}):
        assert starts(play(place, A, LARGE, own)) == {"a": 0, "large": 40, "urgent": 10}


def test_nothing_is_reserved_for_a_gang_that_can_never_start() -> None:
    found = play(town(teams(), node("one", 4)), A, row("never", 1, 10, gpus=5), LARGE, row("long", 2, 9))

    assert starts(found) == {"a": 0, "never": None, "large": 10, "long": 20}


def test_of_equal_gangs_a_shorter_one_is_backfilled_before_a_longer_one() -> None:
    found = play(town(teams(), node("one", 4)), A, LARGE, row("long", 2, 9), row("short", 3, 7), row("late", 4, 7))

    assert starts(found) == {"a": 0, "large": 10, "long": 20, "short": 3, "late": 20}


def test_each_queue_has_a_head() -> None:
    """The second head is promised what the first one leaves: both nodes are reserved, and a third gang waits."""
    place = town(teams(), queue("other", 8), node("one", 4), node("two", 4))
    rows = [row("a", 0, 10, gpus=3), row("b", 0, 20, gpus=3), row("large", 1, 100, gpus=4)]

    found = play(place, *rows, row("next", 2, 10, gpus=4, queue="other"), row("long", 3, 18))

    assert starts(found) == {"a": 0, "b": 0, "large": 10, "next": 20, "long": 30}


def reserved() -> tuple[Clock, Muster, Waiting]:
    """Return a stage on which A runs and LARGE is the head, and a gang that would delay it."""
    place = town(teams(6), node("one", 4))
    stage = Clock(place)
    decider = Muster(stage)
    for arrival in trace([A, LARGE]):
        decider.arrive(Waiting(arrival, place.rules.now + arrival.at))
    decider.settle(freed=False)
    (behind,) = trace([row("long", 2, 20)])
    return stage, decider, Waiting(behind, place.rules.now + behind.at)


def test_a_gang_passes_a_head_that_it_ends_before_for_as_long_as_it_is_the_head() -> None:
    stage, decider, late = reserved()
    (one,) = stage.backfill.decide(stage.inputs(late, stage.queue_usage)).bound
    before = stage.backfill.revision
    assert stage.backfill.until([(one,)]) == one.at

    (urgent,) = trace([row("urgent", 2, 30, gpus=4, priority=1)])
    decider.arrive(Waiting(urgent, late.queued_since))
    decider.settle(freed=False)

    assert stage.backfill.revision > before
    assert stage.backfill.until([(one,)]) is None


def test_devices_left_beside_a_reservation_shrink_when_another_gang_starts() -> None:
    stage, _, late = reserved()

    (one,) = stage.backfill.decide(stage.inputs(late, stage.queue_usage)).bound
    two = {MeterName("gpus"): 2}
    assert one.leaves_quota(late.queue, two)
    assert one.shortage(late.queue, two) is None
    one.charge({MeterName("gpus"): 1}, (), late.queue)

    assert not one.leaves_quota(late.queue, two)
    assert UsageExcludingReserved(stage.queue_usage, [one]).charge_fits(late.queue, two) == one.shortage(
        late.queue, two
    )
    assert one.shortage(late.queue, two) is not None


class Told:
    """A cluster in memory with its controller, in which jobs run for as long as they like."""

    def __init__(self, *rows: dict[str, Any], **spec: Any) -> None:
        first, *rest = teams()
        cluster_state = expand([{**first, "spec": {**first["spec"], **spec}}, *rest], node("one", 4))
        self.controlled = Controlled(cluster_state)
        self.jobs = {arrival.name: arrival for arrival in trace(rows)}
        self.pods: dict[str, Any] = {}

    def at(self, seconds: float, *, created: str = "", ended: str = "") -> list[str]:
        """Create and end jobs, run cycles, and return who was granted."""
        for name in filter(None, [created]):
            self.pods[name] = self.controlled.create(self.jobs[name])
        for name in filter(None, [ended]):
            self.controlled.end(self.pods[name])
        granted = asyncio.run(self.controlled.settle(timedelta(seconds=seconds)))
        return [key.rpartition("/")[2] for key in granted]

    def report(self, name: str) -> GangReport:
        return self.controlled.cluster.gangs[f"trace/{name}"]

    def estimate(self, name: str) -> float | None:
        """Return the seconds after which a gang is to start."""
        found = self.report(name).start_estimate
        return None if found is None else (found - self.controlled.begun).total_seconds()


def test_the_status_of_the_head_has_its_start_estimate_and_the_gang_that_it_waits_for() -> None:
    told = Told(A, LARGE, row("long", 2, 9))
    assert told.at(0, created="a") == ["a"]
    assert told.at(1, created="large") == []
    assert told.at(2, created="long") == []

    report = readers.report_in_full(told.report("large"))

    assert (told.estimate("large"), report.start_reason) == (10, "when gang trace/a should have ended")
    assert told.estimate("long") is None
    hold = readers.report_in_full(told.report("long")).hold
    assert hold is not None
    assert hold.reason is HoldReason.BEHIND_IN_ORDER
    assert "gang trace/large is ahead of it" in hold.message
    assert hold.details["behind"] == "trace/large"
    assert told.at(10, ended="a") == ["large"]
    assert (told.report("large").start_estimate, told.report("large").start_reason) == (None, "")


def test_a_gang_that_loses_its_reservation_loses_its_estimate_and_keeps_its_place() -> None:
    told = Told(A, LARGE, row("urgent", 2, 30, gpus=4, priority=1), row("late", 3, 30, gpus=4))
    for at, name in enumerate(("a", "large")):
        told.at(at, created=name)
    before = told.report("large")

    told.at(2, created="urgent")
    told.at(3, created="late")

    assert (told.estimate("urgent"), told.estimate("large")) == (10, None)
    assert told.report("large").queued_since == before.queued_since
    assert [told.report(name).position for name in ("urgent", "large", "late")] == [1, 2, 3]
    assert told.at(10, ended="a") == ["urgent"]
    assert told.estimate("large") == 40
    assert told.at(40, ended="urgent") == ["large"]


def test_a_gang_that_ends_early_brings_the_start_estimate_of_the_head_forward() -> None:
    told = Told(row("a", 0, 100, gpus=2), row("b", 0, 50), row("large", 1, 10, gpus=4))
    told.at(0, created="a")
    told.at(0.5, created="b")
    told.at(1, created="large")
    assert told.estimate("large") == 100

    told.at(30, ended="a")

    assert told.estimate("large") == 50
    assert told.at(40, ended="b") == ["large"]


def test_a_gang_that_ends_just_after_the_reservation_brings_the_head_forward_after_ten_seconds() -> None:
    """Ten seconds after it was made, and not only if somebody else ends then."""
    told = Told(row("a", 0, 100, gpus=2), row("b", 0, 50), row("large", 1, 10, gpus=4), row("long", 20, 60))
    told.at(0, created="a")
    told.at(0.5, created="b")
    told.at(1, created="large")
    told.at(5, ended="a")
    assert told.estimate("large") == 100

    assert told.at(20, created="long") == []

    assert told.estimate("large") == 50
    assert told.at(50, ended="b") == ["large"]


def test_a_gang_that_ends_while_overdue_brings_the_head_forward() -> None:
    """It was expected to go on for another minute."""
    told = Told(row("a", 0, 50, gpus=2), row("b", 0, 90), row("large", 1, 10, gpus=4), row("long", 76, 30))
    told.at(0, created="a")
    told.at(0.5, created="b")
    told.at(1, created="large")
    told.at(60)
    assert told.estimate("large") == 120

    told.at(75, ended="a")

    assert told.estimate("large") == 90
    assert told.at(76, created="long") == []
    assert told.at(90, ended="b") == ["large"]


def test_a_gang_behind_an_infeasible_head_of_a_strict_queue_has_no_start_estimate() -> None:
    rows = row("a", 0, 50, gpus=3), row("large", 1, 10, gpus=4), row("never", 2, 10, gpus=9, priority=5)
    told = Told(*rows, queueingStrategy="StrictFIFO")
    told.at(0, created="a")
    told.at(1, created="large")
    assert told.estimate("large") == 50

    told.at(2, created="never")

    assert told.estimate("large") is None


def test_an_overdue_gang_is_expected_to_run_on_for_as_long_as_it_is_overdue() -> None:
    told = Told(A, LARGE, row("short", 2, 40), row("long", 2, 300))
    told.at(0, created="a")
    told.at(1, created="large")
    assert told.estimate("large") == 10

    assert told.at(11) == []
    assert told.estimate("large") == 71, "late by a second, it is given a minute"
    assert told.at(12, created="short") == ["short"]
    assert told.at(13, created="long") == []
    assert told.at(130) == []
    assert told.estimate("large") == 250, "late by two minutes, it is given two more"
    assert told.at(140, ended="short") == []
    assert told.at(150, ended="a") == ["large"]


def test_gangs_without_stated_runtimes_are_backfilled_as_they_fit() -> None:
    told = Told(A, LARGE, row("long", 2, 300))
    for name in told.jobs:
        told.pods[name] = told.controlled.create(told.jobs[name])
    pods = told.controlled.cluster._pods
    for uid, pod in pods.items():
        pods[uid] = _without(pod)

    assert told.at(2) == ["a", "long"]

    report = readers.report_in_full(told.report("large"))
    assert report.phase is Phase.PENDING
    assert report.start_estimate is None
    assert report.start_reason == "nobody says how long gangs trace/a and trace/long run"


@pytest.mark.parametrize(
    ("runtime", "seconds"), [("876000h", 876_000 * 3600.0), ("99999999h", None)], ids=["a century", "for ever"]
)
def test_the_start_estimate_of_the_head_bears_any_stated_runtime(runtime: str, seconds: float | None) -> None:
    told = Told(A, LARGE, row("long", 2, 9))
    told.controlled.create(told.jobs["a"])
    pods = told.controlled.cluster._pods
    for uid, pod in pods.items():
        meta = replace(pod.meta, annotations={**pod.meta.annotations, names.RUNTIME: runtime})
        pods[uid] = replace(pod, meta=meta)
    told.at(0)
    told.at(1, created="large")

    assert told.estimate("large") == seconds
    assert told.at(2, created="long") == ["long"]


def test_a_gang_is_expected_to_run_no_longer_than_its_queue_allows() -> None:
    told = Told(A, LARGE, maxRuntime="20s")
    told.controlled.create(told.jobs["a"])
    pods = told.controlled.cluster._pods
    for uid, pod in pods.items():
        pods[uid] = _without(pod)
    told.at(0)
    told.at(1, created="large")

    assert told.estimate("large") == 20


def test_the_expected_runtime_comes_from_the_queue_default_or_the_active_deadline() -> None:
    told = Told(A, LARGE, row("long", 2, 300), defaultRuntime="10s")
    pods = told.controlled.cluster._pods
    told.controlled.create(told.jobs["a"])
    for uid, pod in pods.items():
        pods[uid] = _without(pod)
    told.at(0)
    told.at(1, created="large")
    assert told.estimate("large") == 10

    told.controlled.create(told.jobs["long"])
    uid, pod = next((uid, pod) for uid, pod in pods.items() if pod.meta.name == "long-0")
    pods[uid] = _without(pod, deadline=timedelta(seconds=8))

    assert told.at(2) == ["long"]


def _without(pod: Pod, **changes: Any) -> Pod:
    """Return a pod that does not say how long it runs."""
    annotations = {name: text for name, text in pod.meta.annotations.items() if name != names.RUNTIME}
    return replace(pod, meta=replace(pod.meta, annotations=annotations), **changes)


def test_an_unchanged_cycle_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reserved stands, and so does what it holds: nothing is decided again."""
    told = Told(A, LARGE, row("long", 2, 9))
    told.at(0, created="a")
    told.at(1, created="large")
    told.at(2, created="long")
    asked: list[str] = []
    decide = chain.decide

    def counted(inputs: chain.Inputs) -> Verdict:
        asked.append(inputs.group.key)
        return decide(inputs)

    monkeypatch.setattr(chain, "decide", counted)
    assert told.at(3) == []

    assert asked == []


class Shared:
    """Two queues that share fairly: `a` runs, `large` waits for the whole node, and `long` comes to the other queue."""

    def __init__(self) -> None:
        above = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "all"}, "spec": {}}
        fair = {"parent": "all", "fairSharing": {"weight": 1}}
        _, *rest = teams()
        self.controlled = Controlled(
            expand([above], queue("x", 8, **fair), queue("y", 8, **fair), rest, node("one", 4))
        )
        rows = row("a", 0, 10, gpus=2, queue="x"), row("large", 1, 10, gpus=4, queue="x"), row("long", 2, 90, queue="y")
        self.jobs = {arrival.name: arrival for arrival in trace(rows)}

    def at(self, seconds: float, *created: str) -> list[str]:
        for name in created:
            self.controlled.create(self.jobs[name])
        return [key.rpartition("/")[2] for key in asyncio.run(self.controlled.settle(timedelta(seconds=seconds)))]


def test_under_fair_sharing_an_unrelated_change_lets_no_gang_pass_the_head() -> None:
    shared = Shared()
    assert [shared.at(at, name) for at, name in enumerate(shared.jobs)] == [["a"], [], []]

    cluster = shared.controlled.cluster
    exactly = {"deviceClassName": "gpu"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    new = claims.decode_template({"metadata": {"name": "new", "namespace": "far"}, "spec": {"spec": spec}})
    cluster._rest = replace(cluster._rest, templates={**cluster._rest.templates, new.meta.key: new})

    assert shared.at(4) == []
    assert cluster.gangs["trace/large"].start_estimate == shared.controlled.begun + timedelta(seconds=10)


def test_under_fair_sharing_no_gang_passes_the_head_before_a_new_leader_knows_the_head() -> None:
    shared = Shared()
    shared.at(0, "a")
    shared.at(1, "large")

    leader = shared.controlled.leader
    shared.controlled.leader = replace(leader, backfill=Backfill(RunningGangs(shared.controlled.begun)))
    leader.scheduling._verdicts, leader.scheduling._plans = VerdictCache(), PlanCache()

    assert shared.at(2, "long") == []


PORT = SchedulingRules(ports=(HostPort(port=80),))


def about(app: str) -> AffinityTerm:
    selector = LabelSelector(requirements=(Requirement(key="app", operator="In", values=(app,)),))
    return AffinityTerm(topology_key="kubernetes.io/hostname", selector=selector, namespaces=frozenset({NAMESPACE}))


def ruled(cluster: Jobs, name: str, rules: SchedulingRules) -> None:
    for uid, pod in [*cluster._pods.items()]:
        if pod.meta.name.startswith(f"{name}-"):
            meta = replace(pod.meta, labels={**pod.meta.labels, "app": name})
            cluster._pods[uid] = replace(pod, meta=meta, rules=rules)


RULES: dict[str, tuple[SchedulingRules, SchedulingRules]] = {
    "a host port": (PORT, PORT),
    "the anti-affinity of the head": (SchedulingRules(anti_affinity=(about("late"),)), SchedulingRules()),
    "the anti-affinity of the later gang": (SchedulingRules(), SchedulingRules(anti_affinity=(about("large"),))),
    "a spread of the head that counts the later gang": (
        SchedulingRules(spread=(SpreadConstraint(topology_key="rack", max_skew=1, selector=about("late").selector),)),
        SchedulingRules(),
    ),
}
"""What keeps two gangs apart → the rules of the head's pods and of those of a later gang."""


@pytest.mark.parametrize(("head", "late"), RULES.values(), ids=RULES)
async def test_a_gang_whose_pods_would_keep_the_head_off_its_node_waits(
    head: SchedulingRules, late: SchedulingRules
) -> None:
    cluster = Jobs(a_cluster().node("a", gpus=4, labels={"rack": "r"}).queue("q", gpus=8))
    play = Play(cluster)
    cluster.submit("first", queue="q", gpus=2, annotations={names.RUNTIME: "10s"})
    await play.forget_changes(2)
    cluster.submit("large", queue="q", gpus=4, priority=1)
    ruled(cluster, "large", head)
    cluster.submit("late", queue="q", gpus=0)
    ruled(cluster, "late", late)
    cluster.submit("harmless", queue="q", gpus=0)

    result = await play.forget_changes(3)

    assert cluster.running() == {"first", "harmless"}
    (hold,) = (gang.hold for gang in result.gangs if gang.name.startswith("late"))
    assert hold is not None
    assert hold.reason is HoldReason.BEHIND_IN_ORDER


def one_local_volume(*claims_of: str) -> Storage:
    """Return a volume of node a, and a claim for each gang that waits for it."""
    local = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    made = persistent_volumes.decode_volume(
        {
            "metadata": {"name": "v"},
            "spec": {**local, "capacity": {"storage": "1Gi"}},
            "status": {"phase": "Available"},
        }
    )
    waiting = [
        persistent_volumes.decode_claim(
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {**local, "resources": {"requests": {"storage": "1Gi"}}},
            }
        )
        for name in claims_of
    ]
    binding = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    of_class = persistent_volumes.decode_class({"metadata": {"name": "local"}, **binding})
    return Storage(
        volumes={"v": made}, claims={one.meta.key: one for one in waiting}, classes={"local": of_class}, is_whole=True
    )


@pytest.mark.parametrize(
    ("late", "claim", "starts"),
    [
        ({"gpus": 0, "annotations": {names.RUNTIME: "1s"}}, "late", False),
        ({"gpus": 0, "annotations": {names.RUNTIME: "1s"}}, "", True),
        ({"gpus": 1}, "", False),
    ],
    ids=["the volume that the head would get", "no volume", "a device that the head would get"],
)
async def test_a_gang_that_takes_what_a_head_with_a_volume_would_get_waits(
    late: dict[str, Any], claim: str, starts: bool
) -> None:
    """Its claim keeps a volume, though the gang ends before the head starts."""
    cluster = Jobs(a_cluster().node("a", gpus=4).queue("q", gpus=8))
    cluster._rest = replace(cluster._rest, storage=one_local_volume("large", "late"))
    play = Play(cluster)
    cluster.submit("first", queue="q", gpus=2, annotations={names.RUNTIME: "10s"})
    await play.forget_changes(2)
    cluster.submit("large", queue="q", gpus=4, priority=1)
    ruled(cluster, "large", SchedulingRules(volumes=(PodVolume(name="v", claim="large"),)))
    cluster.submit("late", queue="q", **late)
    ruled(cluster, "late", SchedulingRules(volumes=(PodVolume(name="v", claim=claim),) if claim else ()))

    result = await play.forget_changes(3)

    assert cluster.running() == ({"first", "late"} if starts else {"first"})
    holds = [gang.hold for gang in result.gangs if gang.name.startswith("late")]
    assert [getattr(hold, "reason", None) for hold in holds] == [None if starts else HoldReason.BEHIND_IN_ORDER]


async def test_a_gang_that_finds_another_node_than_the_one_that_the_head_needs_is_backfilled() -> None:
    cluster = Jobs(a_cluster().node("a", gpus=4).node("b", gpus=0).queue("q", gpus=8))
    play = Play(cluster)
    cluster.submit("first", queue="q", gpus=2, annotations={names.RUNTIME: "10s"})
    await play.forget_changes(2)
    cluster.submit("large", queue="q", gpus=4, priority=1)
    cluster.submit("late", queue="q", gpus=0)
    ruled(cluster, "large", PORT)
    ruled(cluster, "late", PORT)

    await play.forget_changes(3)

    assert cluster.running() == {"first", "late"}
    assert {pod.node for pod in cluster._pods.values() if pod.meta.name.startswith("late")} == {"b"}
