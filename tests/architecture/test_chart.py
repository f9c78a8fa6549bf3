"""The chart's schema, README, alerts and dashboard say what is so. `MUSTER_REGENERATE=1` rewrites the first two.

What helm makes of the chart is tested in tests/integration/chart.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
import yaml

import admission
from admission.settings import Settings
from admission.telemetry import metric_catalog

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
REGENERATE = os.environ.get("MUSTER_REGENERATE") == "1"

# What the chart sets by itself, or has no place for, as files of certificates.
OWN = {
    "": {"roles", "kubeconfig"},
    "webhook": {"port", "url", "service", "secret", "certificate", "key", "authority", "inject", "workers", "register"},
    "metrics": {"port"},
    "ledger": {"url"},
    "heads": {"secret", "config_map", "url"},
    "lease": {"namespace", "name"},
    "controller": {"user"},
    "dashboard": {"port", "certificate", "key", "authority", "session_keys"},
}
FOREIGN = {"up", "apiserver_admission_webhook_rejection_count"}
"""Metrics that Prometheus and Kubernetes have."""

ALERTS = [
    rule for group in yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
USAGE_PANELS = json.loads((CHART / "files/usage-dashboard.json").read_text())["panels"]
USAGE_RULES = yaml.safe_load((CHART / "files/usage-rules.yaml").read_text())["groups"][0]["rules"]
QUERIES = {
    **{f"alert {alert['alert']}": alert["expr"] for alert in ALERTS},
    **{f"panel {p['title']} {t['refId']}": re.sub(r"\$\w+", "x", t["expr"]) for p in PANELS for t in p["targets"]},
}


def test_the_schema_of_the_charts_values_knows_every_setting_and_no_other() -> None:
    schema = json.loads(SCHEMA.read_text())
    if REGENERATE:
        schema["properties"]["settings"] = _settings_schema()
        SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")

    assert schema["properties"]["settings"] == _settings_schema(), f"run {__name__} with MUSTER_REGENERATE=1"


def _settings_schema() -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components([Settings])
    own = OWN

    def resolved(part: Any, section: str = "") -> Any:
        if "$ref" in part:
            return resolved(components[part["$ref"].rpartition("/")[2]], section)
        if "properties" not in part:
            return {
                key: value
                for key, value in part.items()
                if key in {"type", "anyOf", "items", "enum", "exclusiveMinimum", "minimum", "maximum"}
            }
        names = [name for name in part["properties"] if name not in own.get(section, set())]
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: resolved(part["properties"][name], name) for name in names},
        }

    return dict(resolved(reference))


def test_the_schema_of_the_charts_values_knows_every_value_and_no_other() -> None:
    schema, values = json.loads(SCHEMA.read_text()), yaml.safe_load(VALUES.read_text())

    def known(part: dict[str, Any]) -> Any:
        return {name: known(of) for name, of in part["properties"].items()} if "properties" in part else {}

    def written(value: Any) -> Any:
        return {name: written(of) for name, of in value.items()} if isinstance(value, dict) else {}

    found, wanted = known(schema), written(values)
    del found["settings"], wanted["settings"], found["global"]
    assert {key: set(value) for key, value in found.items() if value} == {
        key: set(value) for key, value in wanted.items() if found[key]
    }
    assert set(found) == set(wanted)


def test_the_charts_version_is_musters() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    [image] = yaml.safe_load((ROOT / "deploy/manifests/kustomization.yaml").read_text())["images"]

    assert {chart["version"], chart["appVersion"], image["newTag"]} == {admission.__version__}


def test_the_charts_readme_lists_every_value() -> None:
    before, marker, after = README.read_text().partition("## Values\n")
    table = "\n| Key | Type | Default | Description |\n|-----|------|---------|-------------|\n" + "".join(_rows())
    rest = after[after.index("\n## ") :] if "\n## " in after else ""
    if REGENERATE:
        README.write_text(before + marker + table + rest)

    assert README.read_text() == before + marker + table + rest, f"run {__name__} with MUSTER_REGENERATE=1"


def _rows() -> Iterator[str]:
    """Yield a row for each value, as helm-docs would: those below one that is described belong to it."""
    root = yaml.compose(VALUES.read_text())
    lines = VALUES.read_text().splitlines()
    assert isinstance(root, yaml.MappingNode)
    yield from _rows_below(root, "", lines)


def _rows_below(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[str]:
    for key, value in node.value:
        name, described = f"{prefix}{key.value}", _described(key.start_mark.line, lines)
        default = yaml.safe_load(yaml.serialize(value))
        if isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            if described:
                yield f"| {name} | object | | {described} |\n"
            yield from _rows_below(value, f"{name}.", lines)
        else:
            kind = {bool: "bool", str: "string", int: "int", list: "list", dict: "object"}[type(default)]
            yield f"| {name} | {kind} | `{json.dumps(default)}` | {described} |\n"


def _described(line: int, lines: list[str]) -> str:
    """Return the comment above a line, if it begins with `# --`."""
    found: list[str] = []
    for text in reversed(lines[:line]):
        if not text.strip().startswith("#"):
            break
        found.insert(0, text.strip().removeprefix("#").strip())
    return " ".join(found).removeprefix("-- ") if found and found[0].startswith("-- ") else ""


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_prometheus_queries_are_promql_over_existing_metrics(query: str) -> None:
    promql_parser.parse(query)

    asked = _asked(query)
    assert asked <= _metrics() | FOREIGN
    assert asked or "up{" in query


def _asked(query: str) -> set[str]:
    """Return the metrics of Muster and of Kubernetes in a query."""
    return {word for word in re.findall(r"[a-z_]+(?=[{\[ )]|$)", query) if word.startswith(("muster_", "apiserver_"))}


def test_what_alerts_about_queues_ask_is_on_the_dashboard() -> None:
    asked, shown = (
        {metric for name, query in QUERIES.items() if name.startswith(kind) for metric in _asked(query)}
        for kind in ("alert", "panel")
    )
    about_queues = {metric for metric in asked if metric.startswith(("muster_queue_", "muster_devices_"))}

    assert len(about_queues) > 1
    assert about_queues <= shown


def _metrics() -> set[str]:
    """Return the names of all series that Muster may show."""
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
    return {f"{metric.name}{suffix}" for metric in metric_catalog.ALL for suffix in suffixes[metric.type]}


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_an_alert_says_what_is_wrong_and_where_its_remedy_stands(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]

    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"RUNBOOK#{alert['alert'].lower()}"


def test_the_runbook_has_every_alert_and_no_other() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text()

    assert re.findall(r"^## (Muster\w+)$", text, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


def test_panels_of_use_ask_what_the_recording_rules_record_and_these_what_is_exported() -> None:
    queries = [re.sub(r"\$\w+", "x", target["expr"]) for panel in USAGE_PANELS for target in panel["targets"]]
    known = {metric_catalog.ALLOCATIONS.name, *re.findall(r"`(\w+)`", (ROOT / "docs/tasks/used.md").read_text())}
    for rule in USAGE_RULES:
        asked = set(_selected(promql_parser.parse(rule["expr"])))
        assert asked
        assert asked <= known
        known.add(rule["record"])

    recorded = {rule["record"] for rule in USAGE_RULES}
    for query in queries:
        asked = set(_selected(promql_parser.parse(query)))
        assert asked
        assert asked <= recorded


def _selected(part: Any) -> Iterator[str]:
    """Yield the names of the metrics that an expression selects."""
    if isinstance(part, promql_parser.VectorSelector) and part.name:
        yield part.name
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(part, name, None)
        if isinstance(inner, promql_parser.Expr):
            yield from _selected(inner)
    for argument in getattr(part, "args", None) or ():
        yield from _selected(argument)


@pytest.mark.parametrize("panels", [PANELS, USAGE_PANELS], ids=["of Muster", "of use"])
def test_panels_of_the_dashboard_do_not_overlap(panels: list[dict[str, Any]]) -> None:
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
