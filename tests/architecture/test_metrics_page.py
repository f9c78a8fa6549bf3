"""docs/metrics.md is what Muster shows. `MUSTER_REGENERATE=1 uv run pytest <this file>` rewrites its tables."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import BudgetUse, ConditionReport, MeterUse, QueueReport
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.outcome import Kind, Outcome
from admission.cycle.state.result import CycleResult
from admission.kube.webhook_config import registration
from admission.scheduling.checks.faults import Defect, During
from admission.status.device_allocations import DeviceAllocation
from admission.telemetry import metric_catalog
from admission.telemetry.collectors import Watched
from admission.telemetry.metric_catalog import ExportedBy, Metric, MetricType
from admission.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
BEGIN, END = "<!-- written from admission/telemetry/metric_catalog.py -->\n", "<!-- until here -->\n"

BY_NAME = {metric.name: metric for metric in metric_catalog.ALL}


def test_the_page_says_what_the_catalogue_says() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    wanted = before + BEGIN + "".join(_sections()) + END + rest.partition(END)[2]
    if os.environ.get("MUSTER_REGENERATE") == "1":
        PAGE.write_text(wanted)

    assert PAGE.read_text() == wanted, f"{PAGE} differs: run with MUSTER_REGENERATE=1"


def _sections() -> Iterator[str]:
    """Yield a table for each of those who show metrics."""
    for by in ExportedBy:
        yield f"\n### Of {by}\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n"
        yield from (_row(metric) for metric in metric_catalog.ALL if metric.exported_by is by)
    yield "\n"


def _row(metric: Metric) -> str:
    labels = "; ".join(f"`{name}`: {meaning}" for name, meaning in metric.labels)
    bounds = f" Buckets up to {metric.buckets[-1]:g} s." if metric.buckets else ""
    return f"| `{metric.series}` | {metric.type} | {labels} | {metric.help}{bounds} |\n"


def full() -> Metrics:
    """Return metrics with a value for every one of them."""
    metrics = Metrics(watched=lambda: [Watched("pods", 1, 2, 1, 0.5)], allocations=1)
    metrics.record_review("validate", "denied", 0.1, "NeverFits")
    metrics.record_refusal("path")
    metrics.set_term(7)
    now = datetime(2026, 8, 1, tzinfo=UTC)
    use = BudgetUse(meter=MeterName("gpus"), limit=10, period="Day", end=now, scope="Cluster", on_exhausted="Hold")
    gang = GangReport(
        uid=GangUid("w"),
        namespace="a",
        name="w",
        queue=QueueName("team"),
        size=1,
        phase=Phase.PENDING,
        hold=Hold(HoldReason.QUOTA_EXCEEDED, "waits"),
        queued_since=now,
    )
    queue = QueueReport(
        name=QueueName("team"), meters={MeterName("gpus"): MeterUse()}, budgets=(use,), gangs={Phase.PENDING: 1}
    )
    admitted = Outcome(
        kind=Kind.ADMITTED, gang="a/b", uid=GangUid("u"), queue=QueueName("team"), waited=timedelta(seconds=3)
    )
    defects = (Defect(During.PLANNING, "a/b", ValueError()),)
    metrics.render([], {"leaf": datetime(2026, 8, 1, tzinfo=UTC)})
    protected = {"gpu.example.com": True}
    policy = ConditionReport(plural="claimpolicies", name="house", generation=1, conditions=())
    metrics.record_cycle(
        CycleResult(
            gangs=(gang,),
            queues=(queue,),
            conditions=(policy,),
            protected=protected,
            outside={"gpu.example.com": 1},
            allocations={"a/c": (DeviceAllocation(*"dpgnruacxwvqts"),)},
            granted=(GangUid("u"),),
            decisions=(admitted,),
            defects=defects,
        ),
        0.2,
    )
    metrics.head_published("configmap", datetime(2026, 8, 1, tzinfo=UTC))
    metrics.head_failed("http")
    metrics.usage_overdue(0.0)
    metrics.chain_checked(broken=False, foreign=1)
    return metrics


def test_all_that_is_shown_is_in_the_catalogue_and_all_of_that_is_shown() -> None:
    metrics = full()
    page, _ = metrics.render([], {})
    families: dict[str, Family] = {family.name: family for family in metrics.registry.collect()}
    # Allocated devices are on the page alone.
    families |= {one.name: one for one in text_string_to_metric_families(page.decode()) if "_allocation" in one.name}

    assert families.keys() == BY_NAME.keys()
    for name, family in families.items():
        metric = BY_NAME[name]
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert (family.type, family.documentation, labels) == (metric.type, metric.help, set(metric.label_names))
        assert family.samples


@pytest.mark.parametrize("metric", metric_catalog.ALL, ids=BY_NAME)
def test_a_name_says_whose_it_is_and_in_which_unit(metric: Metric) -> None:
    assert re.fullmatch(r"muster(_[a-z]+)+", metric.name)
    assert metric.type is not MetricType.HISTOGRAM or metric.name.endswith("_seconds")
    assert not metric.name.endswith("_total")
    assert metric.help.endswith(".")


def test_the_buckets_of_reviews_reach_to_where_the_api_server_gives_up() -> None:
    assert metric_catalog.REVIEWS.buckets[-1] == registration.TIMEOUT_SECONDS


def test_alerts_ask_for_labels_that_the_metrics_have() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    asked = {
        (found["name"], label)
        for rule in rules
        for found in re.finditer(r"(?P<name>muster_[a-z_]+)\{(?P<labels>[^}]*)\}", rule["expr"])
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", found["labels"])
    }
    known = {
        f"{metric.name}{suffix}": {*metric.label_names, "job", "instance", "pod"}
        for metric in metric_catalog.ALL
        for suffix in ("", "_total", "_bucket", "_sum", "_count")
    }

    assert all(promql_parser.parse(rule["expr"]) for rule in rules)
    assert asked
    assert {(name, label) for name, label in asked if label not in known[name]} == set()
