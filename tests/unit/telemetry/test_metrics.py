import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from admission.api.gangs import Phase
from admission.api.names import MeterName, QueueName
from admission.api.reasons import HoldReason
from admission.api.reports import MeterUse, QueueReport
from admission.policy.defects import During
from admission.telemetry.metrics import Metrics

TEAM = QueueName("team-a")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_reviews_are_counted_by_door_and_outcome() -> None:
    metrics = Metrics()

    metrics.reviewed("mutate", "patched", 0.0001)
    metrics.reviewed("mutate", "patched", 0.0002)
    metrics.reviewed("validate", "denied", 0.0001)

    assert value(metrics, "muster_review_seconds_count", worker="1", door="mutate", outcome="patched") == 2
    assert value(metrics, "muster_review_seconds_count", worker="1", door="validate", outcome="denied") == 1


def test_the_reviews_of_all_workers_are_shown_side_by_side() -> None:
    metrics, other = Metrics(), Metrics(worker=2)
    metrics.reviewed("mutate", "patched", 0.0001)
    for _ in range(3):
        other.reviewed("mutate", "patched", 0.5)

    metrics.told(2, other.tallies())
    metrics.staffed(2)
    metrics.lost()

    counted = [
        value(metrics, "muster_review_seconds_count", worker=worker, door="mutate", outcome="patched")
        for worker in ("1", "2")
    ]
    assert counted == [1, 3]
    total = value(metrics, "muster_review_seconds_sum", worker="2", door="mutate", outcome="patched")
    assert total == pytest.approx(1.5)
    assert (value(metrics, "muster_webhook_workers"), value(metrics, "muster_webhook_workers_lost_total")) == (2, 1)


def test_a_review_is_counted_in_every_bucket_that_it_fits() -> None:
    metrics = Metrics()

    for seconds in (0.0001, 0.00011, 99.0):
        metrics.reviewed("mutate", "patched", seconds)

    def below(bound: str) -> float | None:
        return value(metrics, "muster_review_seconds_bucket", worker="1", door="mutate", outcome="patched", le=bound)

    assert (below("5e-05"), below("0.0001"), below("0.00025"), below("1.0"), below("+Inf")) == (0, 1, 2, 2, 3)
    total = value(metrics, "muster_review_seconds_sum", worker="1", door="mutate", outcome="patched")
    assert total == pytest.approx(99.00021)


def test_two_of_them_live_in_one_process() -> None:
    first, second = Metrics(), Metrics()

    first.leads(leading=True)

    assert (value(first, "muster_leading"), value(second, "muster_leading")) == (1, 0)


def test_a_reason_that_no_longer_holds_anyone_is_zero() -> None:
    metrics = Metrics()

    metrics.cycled(0.1, admitted=2, held={HoldReason.QUOTA_EXCEEDED: 3})
    metrics.cycled(0.1, admitted=1, held={})

    assert value(metrics, "muster_gangs_admitted_total") == 3
    assert value(metrics, "muster_gangs_held", reason="QuotaExceeded") == 0
    assert value(metrics, "muster_cycle_seconds_count") == 2


def test_how_the_last_cycle_stood_with_the_ledger_is_shown() -> None:
    metrics = Metrics()

    metrics.booked(behind=timedelta(seconds=90), unposted=3)
    metrics.booked(behind=timedelta(seconds=2.5), unposted=4)

    assert value(metrics, "muster_clock_behind_books_seconds") == 2.5
    assert value(metrics, "muster_ledger_entries_waiting") == 4


def test_what_muster_failed_of_is_counted_by_what_was_done() -> None:
    metrics = Metrics()

    metrics.failed([During.PLANNING, During.PLANNING, During.PLACING])
    metrics.failed([])

    assert value(metrics, "muster_gang_defects_total", during="planning") == 2
    assert value(metrics, "muster_gang_defects_total", during="placing") == 1
    assert value(metrics, "muster_gang_defects_total", during="reporting") == 0


def report(**phases: int) -> QueueReport:
    use = MeterUse(nominal=8, reserved=1, used=4, pending=9)
    gangs = {Phase(name): count for name, count in phases.items()}
    return QueueReport(name=TEAM, meters={MeterName("gpus"): use}, gangs=gangs)


def test_a_queue_is_shown_as_its_status_shows_it() -> None:
    metrics = Metrics()

    metrics.queue(report(Pending=2))
    metrics.queue(report(Running=1))

    assert value(metrics, "muster_queue_amount", queue=TEAM, meter="gpus", kind="used") == 4
    assert value(metrics, "muster_queue_amount", queue=TEAM, meter="gpus", kind="pending") == 9
    assert value(metrics, "muster_queue_gangs", queue=TEAM, phase="Running") == 1
    assert value(metrics, "muster_queue_gangs", queue=TEAM, phase="Pending") is None


def test_a_queue_that_is_gone_is_no_longer_shown() -> None:
    metrics = Metrics()
    metrics.queue(report(Running=1))

    metrics.forget(TEAM)

    assert TEAM not in metrics.page()[0].decode()


def test_to_show_a_queue_takes_no_more_steps_where_a_thousand_others_are_shown() -> None:
    alone, among_others = Metrics(), Metrics()
    for number in range(1000):
        among_others.queue(replace(report(Running=1), name=QueueName(f"team-{number}")))

    assert calls(partial(among_others.queue, report())) == calls(partial(alone.queue, report()))


def calls(work: Callable[[], None]) -> int:
    """Count the functions that are called by one. What the garbage collector would call is not its doing."""
    found: list[str] = []
    gc.disable()
    sys.setprofile(lambda _frame, event, _argument: found.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return sum(event.endswith("call") for event in found)


def test_the_page_is_what_prometheus_reads() -> None:
    page, content_type = Metrics().page()

    assert content_type.startswith("text/plain")
    assert b"# TYPE muster_leading gauge" in page
