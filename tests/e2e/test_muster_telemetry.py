"""What Muster says of itself on a real control plane: traces from review to gate, logs, Events, metrics."""

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from admission.api.values import names
from admission.api.values.reasons import DenyReason, EventReason, EvictionReason, HoldReason
from admission.kube.writers import events
from admission.telemetry import metric_catalog
from tests import collecting
from tests.collecting import Collector, Span
from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, musters
from tests.e2e.musters import SECRET, Muster
from tests.e2e.teams import Team, found_team
from tests.postgres import Server

pytestmark = pytest.mark.e2e

PASSWORD = "hunter2-of-the-ledger"


collector = collecting.collector(scope="module")
port = fixtures.free_port(scope="module")


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane, postgres: Server, collector: Collector, port: int) -> Iterator[Muster]:
    """An installation that says all that it can, with a ledger whose URL holds a password."""
    database = postgres.database().replace("@", f":{PASSWORD}@", 1)
    assert PASSWORD in database
    settings: dict[str, Any] = {
        "log_format": "json",
        "log_level": "debug",
        "metrics": {"port": port, "allocations": 10},
    }
    tracing = {"endpoint": collector.url}
    with musters.running(control_plane, database=database, tracing=tracing, **settings) as muster:
        yield muster


hardware = fixtures.hardware(fleet.demo_fleet([4]))


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane, hardware: None, muster: Muster) -> Iterator[Team]:
    """A team in whose queue a gang runs, another waits, and from which a pod was refused."""
    client = control_plane.client()
    namespace = Namespace(name="telemetry", client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace.name}})
    team = found_team(control_plane, namespace, gpus=4)
    team.submit("train", pods=2)
    team.submit("big", pods=5)
    with pytest.raises(ApiError, match="UnknownQueue"):
        client.create(namespace.pods, workloads.pod("refused", labels={names.QUEUE: "no-such-queue"}))
    team.wait_running("train", 2)
    team.wait_held("big", "QuotaExceeded")
    yield team
    namespace.empty()
    team.disband()
    client.delete(f"/api/v1/namespaces/{namespace.name}")


def test_one_trace_leads_from_the_review_of_a_pod_to_the_gates_of_its_gang(team: Team, collector: Collector) -> None:
    uid = team.control_plane.client().get(f"{team.jobs}/train")["metadata"]["uid"]

    def admitted() -> Span | None:
        found = (span for span in collector.named("admit gang") if span.attributes["muster.gang_uid"] == uid)
        return next(found, None)

    gang = eventually(admitted, what="the gang's span is sent")

    traces = [pod["metadata"]["annotations"][names.TRACE] for pod in team.pods("train")]
    assert gang.trace in {trace.split("-")[1] for trace in traces}
    (review,) = [span for span in collector.named("review mutate") if span.id == gang.parent]
    assert review.trace == gang.trace
    assert review.attributes["muster.namespace"] == team.namespace.name
    assert review.attributes["muster.gang_uid"] == uid
    below = [span for span in collector.spans if span.parent == gang.id]
    assert sorted(span.name for span in below) == ["commit", "open gate", "open gate", "plan"]
    assert review.ended <= min(span.began for span in below)
    assert not [span.name for span in collector.spans if span.failed]


def test_every_line_of_the_log_is_json_and_none_holds_a_secret(
    team: Team, muster: Muster, control_plane: ControlPlane
) -> None:
    user = yaml.safe_load(muster.kubeconfig.read_text())["users"][0]["user"]
    data = control_plane.client().get(SECRET)["data"]
    keys = {name: base64.b64decode(text).decode() for name, text in data.items() if "key" in name}
    secrets = {PASSWORD, *(str(value) for name, value in user.items() if "token" in name or "key" in name)}
    secrets |= {line for key in keys.values() for line in key.splitlines() if line and "-----" not in line}
    secrets |= {data[name] for name in keys}
    assert len(secrets) > 3

    lines = complete_lines(muster)
    entries = [json.loads(line) for line in lines]

    assert [line for line in lines for secret in secrets if secret in line] == []
    assert not [line for line in lines if "Bearer " in line or "PRIVATE KEY" in line]
    assert all({"event", "level", "timestamp"} <= entry.keys() for entry in entries)


def complete_lines(muster: Muster) -> list[str]:
    """Return the lines of its log, but for one that is just being written."""
    return muster.logs.rpartition("\n")[0].splitlines()


def test_each_decision_is_one_line_with_the_gangs_uid(team: Team, muster: Muster) -> None:
    client = team.control_plane.client()
    uids = {name: client.get(f"{team.jobs}/{name}")["metadata"]["uid"] for name in ("train", "big")}
    entries = [json.loads(line) for line in complete_lines(muster)]

    def told(name: str) -> list[str]:
        decisions = {"admitted", "held", "refused", "evicted"}
        return [one["event"] for one in entries if one.get("gang_uid") == uids[name] and one["event"] in decisions]

    # Before all pods exist a gang may be held for that, too.
    assert told("train").count("admitted") == 1
    assert "admitted" not in told("big")
    assert [one["reason"] for one in entries if one.get("gang_uid") == uids["big"] and one["event"] == "held"][-1] == (
        "QuotaExceeded"
    )
    [refused] = [one for one in entries if one["event"] == "refused" and one.get("name") == "refused"]
    assert refused["reason"] == "UnknownQueue"


def test_events_have_reasons_that_are_listed(team: Team) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{team.namespace.name}/events"

    def published() -> list[Any]:
        return team.control_plane.client().items(path)

    expected = {"Admitted", "QuotaExceeded"}
    eventually(lambda: expected <= {event["reason"] for event in published()}, what=f"Events tell of {expected}")
    told = published()
    reasons = {event["reason"] for event in told if event.get("reportingController") == events.REPORTER}

    assert reasons <= {*HoldReason, *EvictionReason, *EventReason, *DenyReason}
    of_gangs = [event for event in told if event["reason"] in expected]
    assert all(event["metadata"]["annotations"][names.GANG_UID] for event in of_gangs)


def test_the_page_of_metrics_has_what_is_listed_and_nothing_else(team: Team, port: int) -> None:
    runs = f'muster_queue_gangs{{phase="Running",queue="{team.queue}"}} 1.0'
    page = eventually(lambda: found if runs in (found := metrics(port)) else None, what=runs)
    families = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))

    assert {one.series for one in metric_catalog.ALL} == {name for name in families if not name.endswith("_created")}
    assert float(values["muster_leading"]) == 1
    assert sum(name.startswith("muster_device_allocation_info{") for name in values) == 2
    assert float(values['muster_watch_staleness_seconds{kind="pods"}']) < 120


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
