from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.claimpolicy import status
from admission.claimpolicy.match import Policies
from admission.cycle.outcome import Kind, Outcome
from admission.cycle.state.result import CycleResult
from admission.dra.compatibility import SchedulerProfile
from admission.errors import MalformedObjectError
from admission.scheduling.checks.faults import Defect, During
from admission.settings import Settings
from admission.telemetry import metric_catalog
from admission.telemetry.collectors import Watched
from admission.telemetry.metrics import Metrics
from tests.unit.claimpolicy.policies import a_policy

TEAM = QueueName("team-a")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_reviews_are_counted_by_endpoint_and_outcome_and_denials_by_reason() -> None:
    metrics = Metrics()

    metrics.record_review("mutate", "patched", 0.0001)
    metrics.record_review("mutate", "patched", 0.0002)
    metrics.record_review("validate", "denied", 0.0001, "NeverFits")

    patched = {"worker": "1", "door": "mutate", "outcome": "patched", "reason": ""}
    denied = {"worker": "1", "door": "validate", "outcome": "denied", "reason": "NeverFits"}
    assert value(metrics, "muster_review_seconds_count", **patched) == 2
    assert value(metrics, "muster_review_seconds_count", **denied) == 1


def test_the_reviews_of_all_workers_are_shown_side_by_side() -> None:
    metrics, other = Metrics(), Metrics(worker=2)
    metrics.record_review("mutate", "patched", 0.0001)
    for _ in range(3):
        other.record_review("mutate", "patched", 0.5)

    metrics.record_refusal("path")
    for _ in range(2):
        other.record_refusal("path")

    metrics.add_report(2, *other.tallies())
    metrics.set_ready_workers(2)
    metrics.count_lost_worker()

    counted = [
        value(metrics, "muster_review_seconds_count", worker=worker, door="mutate", outcome="patched", reason="")
        for worker in ("1", "2")
    ]
    assert counted == [1, 3]
    total = value(metrics, "muster_review_seconds_sum", worker="2", door="mutate", outcome="patched", reason="")
    assert total == pytest.approx(1.5)
    refused = [value(metrics, "muster_webhook_refused_total", worker=one, reason="path") for one in ("1", "2")]
    assert refused == [1, 2]
    assert (value(metrics, "muster_webhook_workers"), value(metrics, "muster_webhook_workers_lost_total")) == (2, 1)


def test_a_page_says_whether_the_process_is_ready_and_until_when_its_certificate_is_valid() -> None:
    metrics, expires = Metrics(), datetime(2026, 8, 1, tzinfo=UTC)

    before, _ = metrics.render(["the cluster's objects"], {})
    after, _ = metrics.render([], {"leaf": expires, "authority": expires + timedelta(days=9)})

    name = "muster_webhook_certificate_expiry_timestamp_seconds"
    assert f"{name}{{" not in before.decode()
    assert ("muster_ready 0.0" in before.decode(), "muster_ready 1.0" in after.decode()) == (True, True)
    assert value(metrics, name, part="leaf") == expires.timestamp()
    assert value(metrics, name, part="authority") == (expires + timedelta(days=9)).timestamp()


def test_the_protected_drivers_are_a_gauge_while_the_process_leads() -> None:
    metrics = leader()
    name = "muster_devices_protected"

    metrics.record_cycle(CycleResult(protected={"gpu.example.com": True, "": False}), 0.1)
    shown = [value(metrics, name, driver=driver) for driver in ("gpu.example.com", "*")]
    metrics.record_cycle(CycleResult(), 0.1)

    assert shown == [1, 0]
    assert value(metrics, name, driver="gpu.example.com") is None


@pytest.mark.parametrize(
    ("scheduler", "release", "known"),
    [
        (SchedulerProfile(), "1.37", 1),
        (SchedulerProfile(stands_in_for="1.38"), "1.37", 0),
        (None, "", 0),
    ],
)
def test_a_kubernetes_that_is_not_known_is_a_zero_while_the_process_leads(
    scheduler: SchedulerProfile | None, release: str, known: int
) -> None:
    metrics = leader()

    metrics.record_cycle(CycleResult(scheduler=scheduler), 0.1)

    assert value(metrics, "muster_kubernetes_known", release=release) == known


def test_devices_outside_queues_are_a_gauge_by_class_while_the_process_leads() -> None:
    metrics = leader()
    name = "muster_devices_outside_queues"

    metrics.record_cycle(CycleResult(outside={"gpu.example.com": 3}), 0.1)
    shown = value(metrics, name, **{"class": "gpu.example.com"})
    metrics.record_cycle(CycleResult(), 0.1)

    assert shown == 3
    assert value(metrics, name, **{"class": "gpu.example.com"}) is None


def test_a_claim_policy_with_a_flaw_is_a_zero_while_the_process_leads() -> None:
    metrics = leader()
    name = "muster_claim_policy_ready"
    snapshot = Snapshot(
        policies={
            one: a_policy(one, rules=[{"cel": cel, "message": "m"}]) for one, cel in (("a", "true"), ("b", "x."))
        },
        malformed={("ClaimPolicy", "c"): MalformedObjectError("ClaimPolicy", "c", ())},
    )
    conditions = status.conditions(Policies.build(snapshot.policies, {}), snapshot)

    metrics.record_cycle(CycleResult(conditions=tuple(conditions)), 0.1)
    shown = [value(metrics, name, policy=policy) for policy in ("a", "b", "c")]
    metrics.record_cycle(CycleResult(), 0.1)

    assert shown == [1, 0, 0]
    assert value(metrics, name, policy="b") is None


def test_a_review_is_counted_in_every_bucket_of_at_least_its_duration() -> None:
    metrics = Metrics()

    for seconds in (0.0001, 0.00011, 99.0):
        metrics.record_review("mutate", "patched", seconds)

    def below(bound: str) -> float | None:
        labels = {"worker": "1", "door": "mutate", "outcome": "patched", "reason": ""}
        return value(metrics, "muster_review_seconds_bucket", **labels, le=bound)

    assert (below("5e-05"), below("0.0001"), below("0.00025"), below("1.0"), below("+Inf")) == (0, 1, 2, 2, 3)
    total = value(metrics, "muster_review_seconds_sum", worker="1", door="mutate", outcome="patched", reason="")
    assert total == pytest.approx(99.00021)


def test_two_metrics_registries_live_in_one_process() -> None:
    first, second = Metrics(), Metrics()

    first.set_term(3)

    assert (value(first, "muster_leading"), value(second, "muster_leading")) == (1, 0)


def waiting(reason: HoldReason, name: str = "train") -> GangReport:
    return GangReport(
        uid=GangUid(name),
        namespace="ml",
        name=name,
        queue=TEAM,
        size=1,
        phase=Phase.PENDING,
        hold=Hold(reason, "it waits"),
    )


def leader() -> Metrics:
    metrics = Metrics()
    metrics.set_term(3)
    return metrics


def test_a_reason_that_no_longer_holds_anyone_is_zero() -> None:
    metrics = leader()

    metrics.record_cycle(
        CycleResult(gangs=(waiting(HoldReason.QUOTA_EXCEEDED), waiting(HoldReason.QUOTA_EXCEEDED, "b"))), 0.1
    )
    before = value(metrics, "muster_gangs_held", reason="QuotaExceeded")
    metrics.record_cycle(CycleResult(gangs=(), granted=(GangUid("a"), GangUid("b"))), 0.1)

    assert (before, value(metrics, "muster_gangs_held", reason="QuotaExceeded")) == (2, 0)
    assert value(metrics, "muster_gangs_admitted_total") == 2
    assert value(metrics, "muster_cycle_seconds_count") == 2


def test_decisions_are_counted_by_reason_and_waiting_times_of_first_admissions() -> None:
    metrics = leader()

    def outcome(kind: Kind, **more: Any) -> Outcome:
        return Outcome(kind=kind, gang="ml/train", uid=GangUid("u"), queue=TEAM, **more)

    held = outcome(Kind.HELD, reason=HoldReason.DEVICES_BUSY)
    admitted = outcome(Kind.ADMITTED, waited=timedelta(minutes=2))
    metrics.record_cycle(CycleResult(decisions=(held, admitted)), 0.1)
    metrics.record_cycle(CycleResult(decisions=(held, outcome(Kind.ADMITTED))), 0.1)

    assert value(metrics, "muster_decisions_total", decision="held", reason="DevicesBusy") == 2
    assert value(metrics, "muster_decisions_total", decision="admitted", reason="") == 2
    assert (value(metrics, "muster_gang_wait_seconds_count"), value(metrics, "muster_gang_wait_seconds_sum")) == (
        1,
        120,
    )


def test_the_ledger_state_of_the_last_cycle_is_a_gauge() -> None:
    metrics = leader()

    metrics.record_cycle(CycleResult(behind=timedelta(seconds=90), unposted=3), 0.1)
    metrics.record_cycle(CycleResult(behind=timedelta(seconds=2.5), unposted=4, lag=timedelta(minutes=1)), 0.1)

    assert value(metrics, "muster_clock_behind_books_seconds") == 2.5
    assert value(metrics, "muster_ledger_entries_waiting") == 4
    assert value(metrics, "muster_ledger_lag_seconds") == 60


def test_gang_defects_are_counted_by_what_was_being_done() -> None:
    metrics = leader()

    failed = [During.PLANNING, During.PLANNING, During.PLACING]
    metrics.record_cycle(CycleResult(defects=tuple(Defect(during, "ml/train", ValueError()) for during in failed)), 0.1)
    metrics.record_cycle(CycleResult(), 0.1)

    assert value(metrics, "muster_gang_defects_total", during="planning") == 2
    assert value(metrics, "muster_gang_defects_total", during="placing") == 1
    assert value(metrics, "muster_gang_defects_total", during="reporting") == 0


def report(*budgets: BudgetUse, **phases: int) -> QueueReport:
    use = MeterUse(nominal=8, reserved=1, used=4, pending=9)
    gangs = {Phase(name): count for name, count in phases.items()}
    return QueueReport(name=TEAM, meters={MeterName("gpus"): use}, gangs=gangs, budgets=budgets)


def test_the_gauges_of_a_queue_follow_its_status() -> None:
    metrics = leader()

    metrics.record_cycle(CycleResult(queues=(report(Pending=2),)), 0.1)
    metrics.record_cycle(CycleResult(queues=(report(Running=1),)), 0.1)

    assert value(metrics, "muster_queue_amount", queue=TEAM, meter="gpus", kind="used") == 4
    assert value(metrics, "muster_queue_amount", queue=TEAM, meter="gpus", kind="pending") == 9
    assert value(metrics, "muster_queue_gangs", queue=TEAM, phase="Running") == 1
    assert value(metrics, "muster_queue_gangs", queue=TEAM, phase="Pending") is None


def test_budgets_are_shown_each_by_its_period() -> None:
    metrics = leader()
    start, end = datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    common: dict[str, Any] = {"meter": MeterName("gpus"), "scope": "Cluster", "on_exhausted": "Hold"}
    daily = BudgetUse(limit=100, spent=30, promised=20, period="Day", **common)
    fixed = BudgetUse(limit=7, start=start, end=end, **common)

    metrics.record_cycle(CycleResult(queues=(report(daily, fixed),)), 0.1)

    def left(period: str) -> float | None:
        return value(metrics, "muster_queue_budget_seconds", queue=TEAM, period=period, kind="left", **common)

    assert left("Day") == 50
    window = "2026-10-01T00:00:00+00:00/2027-01-01T00:00:00+00:00"
    assert left(window) == 7
    ends = [
        value(metrics, "muster_queue_budget_end_timestamp_seconds", queue=TEAM, period=period, **common)
        for period in (window, "Day")
    ]
    assert ends == [end.timestamp(), None]


def test_a_queue_shows_since_when_its_first_gang_waits_and_how_many_are_starved() -> None:
    metrics = leader()
    name, noon = "muster_queue_waiting_since_timestamp_seconds", datetime(2026, 8, 1, 12, tzinfo=UTC)
    gangs = [
        replace(waiting(HoldReason.QUOTA_EXCEEDED, str(hours)), queued_since=noon + timedelta(hours=hours))
        for hours in (2, 1, 3)
    ]
    runs = replace(gangs[1], phase=Phase.RUNNING, hold=None, queued_since=noon)
    incomplete = waiting(HoldReason.GANG_INCOMPLETE)

    metrics.record_cycle(CycleResult(gangs=(*gangs, runs, incomplete), queues=(replace(report(), starved=2),)), 0.1)
    shown = [value(metrics, name, queue=gangs[0].queue), value(metrics, "muster_queue_gangs_starved", queue=TEAM)]
    metrics.record_cycle(CycleResult(gangs=(runs, incomplete), queues=(report(),)), 0.1)

    assert shown == [(noon + timedelta(hours=1)).timestamp(), 2]
    assert value(metrics, name, queue=gangs[0].queue) is None
    assert value(metrics, "muster_queue_gangs_starved", queue=TEAM) == 0


def test_a_queue_shows_how_long_its_gangs_may_wait() -> None:
    metrics = leader()

    metrics.record_cycle(CycleResult(queues=(replace(report(), max_wait=timedelta(minutes=15)),)), 0.1)

    assert value(metrics, "muster_queue_max_wait_seconds", queue=TEAM) == 900


def test_a_queue_shows_how_many_of_its_gangs_are_idle() -> None:
    metrics = leader()

    metrics.record_cycle(CycleResult(queues=(replace(report(), idle=2),)), 0.1)

    assert value(metrics, "muster_queue_gangs_idle", queue=TEAM) == 2


def test_a_queue_that_is_gone_is_no_longer_shown() -> None:
    metrics = leader()
    metrics.record_cycle(CycleResult(queues=(report(Running=1),)), 0.1)

    metrics.record_cycle(CycleResult(), 0.1)

    assert TEAM not in metrics.render([], {})[0].decode()


def test_of_a_leader_that_leads_no_more_no_gauge_keeps_its_last_value() -> None:
    metrics = leader()
    shown = CycleResult(gangs=(waiting(HoldReason.QUOTA_EXCEEDED),), queues=(report(Running=1),), unposted=4)
    metrics.record_cycle(shown, 0.1)
    metrics.head_published("configmap", datetime(2026, 8, 1, tzinfo=UTC))
    metrics.chain_checked(broken=True, foreign=2)
    names = ("muster_gangs_held{", "muster_queue_", "muster_ledger_", "muster_clock_", "muster_leader_epoch")

    def values() -> list[str]:
        lines = metrics.render([], {})[0].decode().splitlines()
        return [line for line in lines if line.startswith(names) and "_total" not in line and "_created" not in line]

    before = values()
    metrics.set_term(None)
    after = values()
    metrics.record_cycle(shown, 0.1)  # one that ended late
    metrics.head_published("configmap", datetime(2026, 8, 1, tzinfo=UTC))
    metrics.chain_checked(broken=True)

    assert (bool(before), after, values()) == (True, [], [])
    assert value(metrics, "muster_leading") == 0
    assert value(metrics, "muster_cycle_seconds_count") == 2
    assert value(metrics, "muster_ledger_foreign_entries_total") == 2


def test_a_new_leader_shows_no_gauge_of_its_own_before_its_first_cycle() -> None:
    metrics = leader()

    assert value(metrics, "muster_leader_epoch") == 3
    assert value(metrics, "muster_ledger_entries_waiting") is None


def test_watch_staleness_is_read_at_scrape_time() -> None:
    silent = [0.5]
    metrics = Metrics(watched=lambda: [Watched("pods", 7, 40, 2, silent[0])])

    before = value(metrics, "muster_watch_staleness_seconds", kind="pods")
    silent[0] = 99.0

    assert (before, value(metrics, "muster_watch_staleness_seconds", kind="pods")) == (0.5, 99)
    assert value(metrics, "muster_watch_objects", kind="pods") == 7
    assert value(metrics, "muster_watch_events_total", kind="pods") == 40
    assert value(metrics, "muster_watch_lists_total", kind="pods") == 2


def test_the_process_metrics_are_shown() -> None:
    metrics = Metrics()

    resident = value(metrics, "muster_process_resident_memory_bytes")
    assert resident is not None
    assert resident > 2**20


def test_no_label_names_a_gang_a_namespace_or_a_person() -> None:
    """Whoever reaches the port reads the page."""
    asked_for = metric_catalog.ALLOCATIONS
    labels = {label for one in metric_catalog.ALL if one is not asked_for for label in one.label_names}

    assert Settings().metrics.allocations == 0
    assert {"queue", "meter", "reason"} <= labels
    assert not labels & {"gang", "gang_uid", "namespace", "pod", "claim", "name", "user", "on_behalf_of"}


def test_the_page_is_what_prometheus_reads() -> None:
    page, content_type = Metrics().render([], {})

    assert content_type.startswith("text/plain")
    assert b"# TYPE muster_leading gauge" in page
