"""Each alert of the chart fires when it should, in the words that it should, and is silent otherwise.

So do the rules in docs/tasks/alerts.md, and Alertmanager routes those about a queue as the page says.

promtool evaluates the rules as Prometheus does, on series that are written here as it wants them: `0+6x20` begins with
0 and grows by 6 each minute, twenty times. Time begins at 1970.
"""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs import pages
from tests.integration import prometheus

RULES = Path(__file__).parents[2] / "deploy" / "chart" / "files" / "alerts.yaml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}

pytestmark = pytest.mark.timeout(120, func_only=True)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is scraped. at: minutes after which is looked. says, labels: of the alert that fires; None: none does."""

    alert: str
    series: dict[str, str]
    at: int
    says: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


READY, UP = 'muster_ready{job="muster-webhook",pod="%s"}', 'up{job="muster-webhook",pod="%s"}'
REJECTED = 'apiserver_admission_webhook_rejection_count{name="%s",error_type="%s"}'
EXPIRY = 'muster_webhook_certificate_expiry_timestamp_seconds{pod="a",part="%s"}'
REVIEWS = 'muster_review_seconds_count{outcome="%s",door="mutate"}'
REFUSED = 'muster_webhook_refused_total{worker="1",reason="%s"}'
BUCKET = 'muster_review_seconds_bucket{door="mutate",le="%s"}'
CYCLES = 'muster_cycle_seconds_bucket{le="%s"}'
LEADING, CYCLED = 'muster_leading{pod="%s"}', 'muster_cycle_seconds_count{pod="%s"}'
HEAD = 'muster_ledger_head_timestamp_seconds{place="%s"}'
HELD = 'muster_gangs_held{reason="%s"}'
STARVED, SINCE = 'muster_queue_gangs_starved{queue="%s"}', 'muster_queue_waiting_since_timestamp_seconds{queue="%s"}'
OVER = 'muster_queue_gangs_over_memory{queue="%s"}'
IDLE = 'muster_queue_gangs_idle{queue="%s"}'
MAX_WAIT = 'muster_queue_max_wait_seconds{queue="%s"}'
DAYS = {MAX_WAIT % queue: "86400x1500" for queue in ("vision", "speech")}
MONTH = {"queue": "vision", "meter": "gpus", "period": "Month", "scope": "Cluster", "on_exhausted": "Hold"}
OF_MONTH = ",".join(f'{name}="{value}"' for name, value in MONTH.items())
BUDGET = f'muster_queue_budget_seconds{{pod="a",{OF_MONTH},kind="%s"}}'
END = f'muster_queue_budget_end_timestamp_seconds{{pod="a",{OF_MONTH}}}'
USED = 'muster_queue_amount{pod="a",queue="vision",meter="gpus",kind="used"}'

CLOSED = "Nothing can be created in queued namespaces until one does."
WAIT = "Gangs wait, and nothing is let in or booked. What runs goes on."
UNBOOKED = "No gang is let in until it can. What runs goes on, and is booked late."

CASES = {
    # No webhook is ready.
    "webhooks run and none becomes ready": Case(
        alert="MusterWebhookDown",
        series={UP % "a": "1x9", READY % "a": "0x9", UP % "b": "1x9", READY % "b": "0x9"},
        at=2,
        says=CLOSED,
    ),
    "no webhook can be scraped": Case(alert="MusterWebhookDown", series={UP % "a": "0x9"}, at=2, says=CLOSED),
    "there is no webhook": Case(alert="MusterWebhookDown", series={LEADING % "a": "1x9"}, at=2, says=CLOSED),
    "one webhook of two is ready": Case(
        alert="MusterWebhookDown", series={READY % "a": "0x9", READY % "b": "1x9"}, at=5
    ),
    "no webhook is ready for a moment": Case(alert="MusterWebhookDown", series={READY % "a": "1 1 0 1x9"}, at=3),
    # The API server does not reach it.
    "calls fail": Case(
        alert="MusterWebhookUnreached",
        series={REJECTED % ("queued-1.pods.muster.dev", "calling_webhook_error"): "0+6x20"},
        at=10,
        says="It refuses 0.10 objects a second in queued namespaces for want of an answer.",
    ),
    "the webhook refuses, as it should": Case(
        alert="MusterWebhookUnreached", series={REJECTED % ("queued-1.pods.muster.dev", "no_error"): "0+6x20"}, at=10
    ),
    "calls of another's webhook fail": Case(
        alert="MusterWebhookUnreached",
        series={REJECTED % ("pods.example.com", "calling_webhook_error"): "0+6x20"},
        at=10,
    ),
    # Some webhooks are not ready.
    "one of two cannot be scraped": Case(
        alert="MusterWebhookDegraded",
        series={UP % "a": "0x20", UP % "b": "1x20", READY % "b": "1x20"},
        at=15,
        says="1 of them are not, or cannot be scraped; the others do their work.",
    ),
    "one of two runs and is not ready": Case(
        alert="MusterWebhookDegraded",
        series={UP % "a": "1x20", READY % "a": "0x20", UP % "b": "1x20", READY % "b": "1x20"},
        at=15,
        says="1 of them are not, or cannot be scraped; the others do their work.",
    ),
    "one is replaced": Case(
        alert="MusterWebhookDegraded",
        series={UP % "a": "1x20", READY % "a": "0x4 1x20", UP % "b": "1x20", READY % "b": "1x20"},
        at=15,
    ),
    # Certificates.
    "a leaf has less than a day": Case(
        alert="MusterCertificateExpires",
        series={EXPIRY % "leaf": "90000x90"},
        at=75,
        says="The leaf of a expires in 23h 45m 0s.",
        labels={"pod": "a", "part": "leaf"},
    ),
    "an authority has less than a week": Case(
        alert="MusterCertificateExpires",
        series={EXPIRY % "leaf": "599000x20", EXPIRY % "authority": "600000x20"},
        at=15,
        says="The authority of a expires in 6d 22h 25m 0s.",
        labels={"pod": "a", "part": "authority"},
    ),
    "a leaf is renewed in time": Case(
        alert="MusterCertificateExpires", series={EXPIRY % "leaf": "302400x20", EXPIRY % "authority": "7e6x20"}, at=15
    ),
    # Reviews.
    "reviews fail": Case(
        alert="MusterReviewsFail",
        series={REVIEWS % "failed": "0+6x20", REVIEWS % "unready": "0+6x20"},
        at=10,
        says="0.20 a second, none of which was judged.",
    ),
    "reviews are judged": Case(
        alert="MusterReviewsFail", series={REVIEWS % "denied": "0+6x20", REVIEWS % "patched": "0+60x20"}, at=10
    ),
    "strangers keep coming": Case(
        alert="MusterWebhookFlooded",
        series={REFUSED % "path": "0+600x30", REFUSED % "head": "0+6x30"},
        at=20,
        says="10.0 connections or requests a second are refused (path).",
        labels={"reason": "path"},
    ),
    "strangers come now and then": Case(alert="MusterWebhookFlooded", series={REFUSED % "path": "0+6x30"}, at=20),
    "reviews are slow": Case(
        alert="MusterReviewsSlow",
        series={BUCKET % "0.25": "0x30", BUCKET % "1.0": "0+60x30", BUCKET % "+Inf": "0+60x30"},
        at=20,
        says="One in a hundred takes longer than 992.5ms (door mutate).",
        labels={"door": "mutate"},
    ),
    "reviews are quick": Case(
        alert="MusterReviewsSlow",
        series={BUCKET % "0.01": "0+60x30", BUCKET % "1.0": "0+60x30", BUCKET % "+Inf": "0+60x30"},
        at=20,
    ),
    "workers end again and again": Case(
        alert="MusterWorkersLost",
        series={'muster_webhook_workers_lost_total{pod="a"}': "0+1x5 5x60"},
        at=60,
        says="5 within an hour in a.",
        labels={"pod": "a"},
    ),
    "a worker has ended": Case(
        alert="MusterWorkersLost", series={'muster_webhook_workers_lost_total{pod="a"}': "0+1x1 1x60"}, at=60
    ),
    # The controller.
    "nobody leads": Case(alert="MusterNoLeader", series={LEADING % "a": "0x9", LEADING % "b": "0x9"}, at=3, says=WAIT),
    "nobody is there": Case(alert="MusterNoLeader", series={UP % "a": "1x9"}, at=3, says=WAIT),
    "one of two leads": Case(alert="MusterNoLeader", series={LEADING % "a": "0x9", LEADING % "b": "1x9"}, at=5),
    "leaders change": Case(alert="MusterNoLeader", series={LEADING % "a": "1 1 0x9", LEADING % "b": "0 0 0 1x9"}, at=4),
    "the leader ends no cycle": Case(
        alert="MusterCyclesStopped",
        series={LEADING % "a": "1x20", CYCLED % "a": "7x20", LEADING % "b": "0x20", CYCLED % "b": "0x20"},
        at=12,
        says="a leads and has not ended a cycle for ten minutes.",
        labels={"pod": "a"},
    ),
    "the leader goes round": Case(
        alert="MusterCyclesStopped",
        series={LEADING % "a": "1x20", CYCLED % "a": "0+2x20", LEADING % "b": "0x20", CYCLED % "b": "0x20"},
        at=12,
    ),
    "cycles are slow": Case(
        alert="MusterCyclesSlow",
        series={CYCLES % "10.0": "0x40", CYCLES % "30.0": "0+6x40", CYCLES % "+Inf": "0+6x40"},
        at=35,
        says="One in ten takes longer than 28s; gangs wait at least as long.",
    ),
    "cycles are quick": Case(
        alert="MusterCyclesSlow",
        series={CYCLES % "1.0": "0+6x40", CYCLES % "30.0": "0+6x40", CYCLES % "+Inf": "0+6x40"},
        at=35,
    ),
    "a watch hears nothing": Case(
        alert="MusterWatchStale",
        series={'muster_watch_staleness_seconds{pod="a",kind="pods"}': "300x9"},
        at=4,
        says="a has heard nothing of pods for 5m 0s.",
        labels={"pod": "a", "kind": "pods"},
    ),
    "watches hear of it about every minute": Case(
        alert="MusterWatchStale", series={'muster_watch_staleness_seconds{pod="a",kind="pods"}': "60x9"}, at=4
    ),
    # The books.
    "entries wait": Case(
        alert="MusterLedgerAway", series={"muster_ledger_entries_waiting": "3x20"}, at=10, says=UNBOOKED
    ),
    "gangs wait for the books": Case(
        alert="MusterLedgerAway",
        series={"muster_ledger_entries_waiting": "0x20", HELD % "LedgerUnavailable": "1x20"},
        at=10,
        says=UNBOOKED,
    ),
    "gangs wait for something else": Case(
        alert="MusterLedgerAway",
        series={"muster_ledger_entries_waiting": "0x20", HELD % "QuotaExceeded": "9x20"},
        at=10,
    ),
    # Heads of the books.
    "the books do not pass through a head": Case(
        alert="MusterHeadsNotPassed",
        series={"muster_ledger_head_not_passed": "0 0 1x9"},
        at=3,
        says="They do not pass through the heads that are kept, so that no further one is signed.",
    ),
    "the books pass through every head": Case(
        alert="MusterHeadsNotPassed", series={"muster_ledger_head_not_passed": "0x9"}, at=5
    ),
    "no head is published in one place": Case(
        alert="MusterHeadsStale",
        series={HEAD % "http": "0x60", HEAD % "configmap": "0+60x60"},
        at=60,
        says="The latest one in http is 1h 0m 0s old; what was written since is not proven.",
        labels={"place": "http"},
    ),
    "a head is published every quarter of an hour": Case(
        alert="MusterHeadsStale", series={HEAD % "configmap": "0x14 900x14 1800x14 2700x14"}, at=55
    ),
    "another client writes": Case(
        alert="MusterForeignEntries",
        series={"muster_ledger_foreign_entries_total": "0x9 2x9"},
        at=15,
        says="2 entries within 15 minutes; the controller's log names them.",
    ),
    "no other client writes": Case(
        alert="MusterForeignEntries", series={"muster_ledger_foreign_entries_total": "2x40"}, at=30
    ),
    "the clock is behind": Case(
        alert="MusterClockBehindBooks",
        series={"muster_clock_behind_books_seconds": "7x20"},
        at=10,
        says="It is 7s late; entries are booked at the time of the latest one.",
    ),
    "the clock is right": Case(
        alert="MusterClockBehindBooks", series={"muster_clock_behind_books_seconds": "0x20"}, at=10
    ),
    # Devices and defects.
    "a fence does not hold": Case(
        alert="MusterDevicesUnprotected",
        series={
            'muster_devices_protected{driver="gpu.example.com"}': "0x20",
            'muster_devices_protected{driver="nic.example.com"}': "1x20",
        },
        at=15,
        says="Others may take those of driver gpu.example.com; gangs that need them are pinned to nodes.",
        labels={"driver": "gpu.example.com"},
    ),
    "a fence is being put up": Case(
        alert="MusterDevicesUnprotected",
        series={'muster_devices_protected{driver="gpu.example.com"}': "0x4 1x20"},
        at=15,
    ),
    "the cluster's Kubernetes is newer than all that are known": Case(
        alert="MusterKubernetesUnknown",
        series={'muster_kubernetes_known{release="1.37"}': "0x20"},
        at=15,
        says="It is newer than 1.37, which plans follow; gangs are pinned to nodes.",
        labels={"release": "1.37"},
    ),
    "the cluster's Kubernetes is older than all that are known": Case(
        alert="MusterKubernetesUnknown",
        series={'muster_kubernetes_known{release=""}': "0x20"},
        at=15,
        says="It is older than all that Muster knows; gangs that need devices wait.",
    ),
    "the cluster's Kubernetes is known": Case(
        alert="MusterKubernetesUnknown", series={'muster_kubernetes_known{release="1.37"}': "1x20"}, at=15
    ),
    "pods outside queues hold devices": Case(
        alert="MusterDevicesOutsideQueues",
        series={'muster_devices_outside_queues{class="gpu.example.com"}': "3x30"},
        at=20,
        says="3 of class gpu.example.com are on nobody's quota and in no ledger.",
        labels={"class": "gpu.example.com"},
    ),
    "a pod outside queues that soon ends": Case(
        alert="MusterDevicesOutsideQueues",
        series={'muster_devices_outside_queues{class="gpu.example.com"}': "3x10 0x20"},
        at=20,
    ),
    "devices have no series": Case(
        alert="MusterAllocationsOmitted",
        series={'muster_device_allocations_omitted{pod="a"}': "12x30"},
        at=20,
        says="12 have none, and are missing in all that is said of the use of devices.",
    ),
    "every device has a series": Case(
        alert="MusterAllocationsOmitted", series={'muster_device_allocations_omitted{pod="a"}': "0x30"}, at=20
    ),
    "what devices did cannot be read": Case(
        alert="MusterUsageNotRecorded",
        series={"muster_usage_overdue_seconds": "0+60x90"},
        at=75,
        says="It has been due for 1h 15m 0s, and is lost once the monitoring has forgotten it.",
    ),
    "what devices did is recorded soon": Case(
        alert="MusterUsageNotRecorded", series={"muster_usage_overdue_seconds": "0+60x30 0x60"}, at=75
    ),
    # Queues. Two days of 2 GPUs are 345600 GPU-seconds.
    "a budget is spent two days early": Case(
        alert="MusterBudgetRunsOut",
        series={
            END: "518400x200",
            BUDGET % "left": "200000-120x200",
            BUDGET % "promised": "154800x200",
            BUDGET % "spent": "0+120x200",
            USED: "2x200",
        },
        at=120,
        # Of the six days two hours are over; 340400 GPU-seconds last for 170200 seconds.
        says="Used as in the last day, gpus of queue vision (Month) are spent 3d 22h 43m 20s too early.",
        labels=MONTH,
    ),
    "a budget is spent and the queue goes on": Case(
        alert="MusterBudgetRunsOut",
        series={END: "518400x200", BUDGET % "left": "-5x200", BUDGET % "promised": "0x200", USED: "2x200"},
        at=120,
        says="Used as in the last day, gpus of queue vision (Month) are spent 5d 22h 0m 0s too early.",
        labels=MONTH,
    ),
    "a budget lasts until its period ends": Case(
        alert="MusterBudgetRunsOut",
        series={END: "518400x200", BUDGET % "left": "1100000-120x200", BUDGET % "promised": "0x200", USED: "2x200"},
        at=120,
    ),
    "a budget is left alone": Case(
        alert="MusterBudgetRunsOut",
        series={END: "518400x200", BUDGET % "left": "10x200", BUDGET % "promised": "0x200", USED: "0x200"},
        at=120,
    ),
    "a gang waits since yesterday": Case(
        alert="MusterGangWaitsLong",
        series={SINCE % "vision": "600x1500", SINCE % "speech": "80000x1500", **DAYS},
        at=1460,
        says="The one that has waited longest in queue vision has for 1d 0h 10m 0s.",
        labels={"queue": "vision"},
    ),
    "gangs wait, none of them for a day": Case(
        alert="MusterGangWaitsLong", series={SINCE % "vision": "600x700 42000x800", **DAYS}, at=1460
    ),
    "a gang waits for longer than its own queue allows": Case(
        alert="MusterGangWaitsLong",
        series={SINCE % "vision": "600x100", SINCE % "notebooks": "600x100", **DAYS, MAX_WAIT % "notebooks": "900x100"},
        at=40,
        says="The one that has waited longest in queue notebooks has for 30m 0s.",
        labels={"queue": "notebooks"},
    ),
    "gangs are idle": Case(
        alert="MusterGangsIdle",
        series={IDLE % "vision": "2x20", IDLE % "speech": "0x20"},
        at=10,
        says="2 gangs of queue vision are idle for longer than it allows.",
        labels={"queue": "vision"},
    ),
    "no gang is idle": Case(alert="MusterGangsIdle", series={IDLE % "vision": "1x2 0x20"}, at=10),
    "gangs use more memory than was asked for": Case(
        alert="MusterMemoryExceeded",
        series={OVER % "vision": "1x20", OVER % "speech": "0x20"},
        at=10,
        says="1 gangs of queue vision have such devices.",
        labels={"queue": "vision"},
    ),
    "no gang uses more memory than was asked for": Case(
        alert="MusterMemoryExceeded", series={OVER % "vision": "1x2 0x20"}, at=10
    ),
    "a queue waits for what is its own": Case(
        alert="MusterQueueStarved",
        series={STARVED % "vision": "3x200", STARVED % "speech": "0x200", SINCE % "vision": "0x200"},
        at=130,
        says="3 gangs of queue vision wait for no more than is left of its nominal quota.",
        labels={"queue": "vision"},
    ),
    "a queue gets what is its own by and by": Case(
        alert="MusterQueueStarved", series={STARVED % "vision": "3x200", SINCE % "vision": "0+60x200"}, at=130
    ),
    "a queue waits for more than is its own": Case(
        alert="MusterQueueStarved", series={STARVED % "vision": "0x200", SINCE % "vision": "0x200"}, at=130
    ),
    "a ClaimPolicy has a flaw": Case(
        alert="MusterClaimPolicyInvalid",
        series={
            'muster_claim_policy_ready{policy="house"}': "0x20",
            'muster_claim_policy_ready{policy="other"}': "1x20",
        },
        at=10,
        says="ClaimPolicy house is not applied as written; claims may be refused for it.",
        labels={"policy": "house"},
    ),
    "a ClaimPolicy is mended at once": Case(
        alert="MusterClaimPolicyInvalid", series={'muster_claim_policy_ready{policy="house"}': "0x3 1x20"}, at=10
    ),
    "a cycle fails of a gang": Case(
        alert="MusterDefects",
        series={
            'muster_gang_defects_total{during="planning"}': "0x10 1x20",
            'muster_gang_defects_total{during="placing"}': "0x30",
        },
        at=20,
        says="1 times within 15 minutes (planning); the other gangs go on.",
        labels={"during": "planning"},
    ),
    "no cycle has failed for a while": Case(
        alert="MusterDefects", series={'muster_gang_defects_total{during="planning"}': "0x10 1x90"}, at=60
    ),
}


PAGE = "docs/tasks/alerts.md"
(ROUTES,) = (block.text for block in pages.blocks(PAGE) if block.language == "yaml")
TOLD = {case.alert: case.labels for case in CASES.values() if "queue" in case.labels}
"""The alerts about one queue, and the labels of one of each."""

RECEIVERS = {
    "research-vision": "vision",
    "research-vision-notebooks": "vision",
    "research-visions": "cluster",
    "research-language": "language",
    "research": "cluster",
}


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program; without it the test is skipped."""
    return prometheus.program("promtool")


@pytest.fixture(scope="session")
def amtool() -> Path:
    """The program; without it the test is skipped."""
    return prometheus.program("amtool")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_alert_says_what_there_is_and_nothing_else(case: Case, promtool: Path, tmp_path: Path) -> None:
    _expect(promtool, tmp_path, RULES, case, _fired(case, ALERTS[case.alert]))


@pytest.mark.parametrize("alert", TOLD)
def test_an_alert_about_a_queue_goes_to_the_team_that_owns_it(alert: str, amtool: Path, tmp_path: Path) -> None:
    for queue, receiver in RECEIVERS.items():
        labels = {**ALERTS[alert]["labels"], **TOLD[alert], "queue": queue}
        assert _receiver(amtool, tmp_path, labels) == receiver


def test_an_alert_about_no_queue_goes_to_those_who_run_the_cluster(amtool: Path, tmp_path: Path) -> None:
    assert _receiver(amtool, tmp_path, ALERTS["MusterDevicesOutsideQueues"]["labels"]) == "cluster"


def test_the_page_has_every_alert_about_a_queue_and_no_other() -> None:
    text = (pages.ROOT / PAGE).read_text()

    assert re.findall(r"^\| \[`(Muster\w+)`", text, re.MULTILINE) == [name for name in ALERTS if name in TOLD]


def _receiver(amtool: Path, folder: Path, labels: dict[str, str]) -> str:
    """Return who is told of an alert with these labels, as Alertmanager reads the page's routes."""
    config = folder / "alertmanager.yaml"
    config.write_text(ROUTES)
    told = [f"{name}={value}" for name, value in labels.items()]
    command = [str(amtool), "config", "routes", "test", f"--config.file={config}", *told]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _expect(promtool: Path, folder: Path, rules: Path, case: Case, fired: list[dict[str, Any]]) -> None:
    """Fail unless these are the alerts that fire."""
    expected = {"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": fired}
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": [expected]}],
    }
    file = folder / "case.yaml"
    file.write_text(json.dumps(tests))

    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def _fired(case: Case, rule: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alert that fires, with what its rule says of itself."""
    if case.says is None:
        return []
    return [
        {
            "exp_labels": {**rule["labels"], **case.labels},
            "exp_annotations": {**rule["annotations"], "description": case.says},
        }
    ]


def test_every_alert_is_seen_to_fire_and_seen_to_be_silent() -> None:
    fires, silent = (
        {case.alert for case in CASES.values() if (case.says is None) is is_silent} for is_silent in (False, True)
    )

    assert fires == silent == ALERTS.keys()
