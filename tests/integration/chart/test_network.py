"""Whom the chart lets reach Muster, and whom Muster reaches."""

import json
from typing import Any

import pytest
import yaml

from tests.integration.chart.charts import BOOKS, CHART, DASHBOARD, ROLES, Helm, rendered

pytestmark = pytest.mark.timeout(120, func_only=True)

COLLECTORS = {
    "http://otel.monitoring:4318": 4318,
    "https://otel.example.com": 443,
    "http://[2001:db8::1]:4318/v1": 4318,
    "http://[2001:db8::1]": 80,
    "https://[::1]/v1": 443,
}


@pytest.mark.parametrize(("endpoint", "port"), COLLECTORS.items())
def test_the_network_lets_out_to_the_collector_of_traces(helm: Helm, endpoint: str, port: int) -> None:
    usual, traced = rendered(helm), rendered(helm, f'settings.tracing.endpoint="{endpoint}"')

    before, after = (objects["NetworkPolicy", "muster-webhook"]["spec"]["egress"] for objects in (usual, traced))
    assert [rule for rule in after if rule not in before] == [{"ports": [{"protocol": "TCP", "port": port}]}]


def test_the_network_lets_the_controller_out_to_prometheus(helm: Helm) -> None:
    usual, asked = rendered(helm), rendered(helm, 'settings.usage.prometheus.url="http://prometheus.monitoring:9090"')

    for role, added in (("controller", [{"ports": [{"protocol": "TCP", "port": 9090}]}]), ("webhook", [])):
        before, after = (objects["NetworkPolicy", f"muster-{role}"]["spec"]["egress"] for objects in (usual, asked))
        assert [rule for rule in after if rule not in before] == added


def test_the_network_is_closed_but_for_what_is_named(helm: Helm) -> None:
    api_server = '[{"ipBlock": {"cidr": "10.0.0.0/28"}}]'

    objects = rendered(helm, BOOKS, f"networkPolicy.apiServer={api_server}", "networkPolicy.databasePort=6432")

    webhook, controller = (objects["NetworkPolicy", f"muster-{role}"]["spec"] for role in ("webhook", "controller"))
    assert webhook["ingress"][0] == {
        "ports": [{"protocol": "TCP", "port": "webhook"}],
        "from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
    }
    assert [port["port"] for rule in controller["ingress"] for port in rule["ports"]] == ["metrics"]
    assert {6432} == _ports(controller["egress"]) - _ports(webhook["egress"])
    assert not any(kind == "NetworkPolicy" for kind, _ in rendered(helm, "networkPolicy.enabled=false"))


def test_the_webhook_is_reached_from_the_addresses_that_are_named_alone(helm: Helm) -> None:
    addresses = '["10.0.0.0/28", "10.0.1.7", "fd00::/64", "fd00::7", {"ipBlock": {"cidr": "10.2.0.0/16"}}]'

    objects = rendered(helm, f"networkPolicy.apiServer={addresses}")

    asked, *_ = objects["NetworkPolicy", "muster-webhook"]["spec"]["ingress"]
    assert asked["ports"] == [{"protocol": "TCP", "port": "webhook"}]
    cidrs = ("10.0.0.0/28", "10.0.1.7/32", "fd00::/64", "fd00::7/128", "10.2.0.0/16")
    assert asked["from"] == [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


def test_as_it_comes_anybody_may_ask_the_webhook_and_monitoring_alone_reads_metrics(helm: Helm) -> None:
    objects = rendered(helm)

    asked, *others = objects["NetworkPolicy", "muster-webhook"]["spec"]["ingress"]
    assert asked == {"ports": [{"protocol": "TCP", "port": "webhook"}]}
    for role, rules in {
        "webhook": others,
        "controller": objects["NetworkPolicy", "muster-controller"]["spec"]["ingress"],
    }.items():
        [metrics] = rules
        assert metrics["from"] == [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        ], role


def _ports(rules: list[dict[str, Any]]) -> set[int]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_the_service_monitors_select_the_services(helm: Helm) -> None:
    labels = 'serviceMonitor.labels={"release": "prometheus"}'

    kinds = tuple(f"{kind}.enabled=true" for kind in ("serviceMonitor", "alerts", "usageRules", "grafana"))
    objects = rendered(helm, labels, DASHBOARD, *kinds)

    for role in ROLES:
        monitor, service = objects["ServiceMonitor", f"muster-{role}"], objects["Service", f"muster-{role}"]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    rules = [rule for group in objects["PrometheusRule", "muster"]["spec"]["groups"] for rule in group["rules"]]
    assert {rule["annotations"]["runbook_url"].partition("#")[0] for rule in rules} == {
        "https://github.com/muster-dev/muster/blob/main/docs/runbook.md"
    }
    dashboards = objects["ConfigMap", "muster-dashboard"]["data"]
    for name, file in {"muster.json": "dashboard.json", "muster-usage.json": "usage-dashboard.json"}.items():
        assert json.loads(dashboards[name]) == json.loads((CHART / "files" / file).read_text())
    recorded = objects["PrometheusRule", "muster-usage"]["spec"]
    assert recorded == yaml.safe_load((CHART / "files/usage-rules.yaml").read_text())
