"""Commands as people type them: what they print, and how they end."""

import json
import pkgutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from admission import cli
from tests.controlplane import fleet
from tests.unit.cli.conftest import Muster

MANIFESTS = Path(__file__).parents[2] / "demo" / "manifests"
EXAMPLES = Path(__file__).parents[3] / "config" / "examples"

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, words)


@pytest.fixture
def hardware(tmp_path: Path) -> str:
    path = tmp_path / "fleet.json"
    items = fleet.demo_fleet((4, 4, 4, 4, 4, 1), prefix="demo-node")
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def manifest(name: str) -> str:
    return str(MANIFESTS / name)


def simulated(run: Run, *words: str) -> tuple[int, Any]:
    result = run("simulate", "--format", "json", *words)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["config", "show"],
        ["simulate"],
        ["why"],
        ["gang", "list"],
        ["queue", "list"],
        ["fence", "list"],
        ["fence", "lift"],
        ["serve"],
    ],
)
def test_every_command_has_help(run: Run, words: list[str]) -> None:
    result = run(*words, "--help")

    assert result.exit_code == 0
    assert "Exit codes" in result.output


@pytest.mark.parametrize("command", ["migrate", "statement", "report", "export", "verify"])
def test_every_ledger_command_has_examples(run: Run, command: str) -> None:
    assert f"muster ledger {command}" in run("ledger", command, "--help").output


def test_the_version_option_prints_the_version(run: Run) -> None:
    assert run("--version").output.startswith("muster ")


def test_simulate_ends_with_0_when_all_are_admitted(run: Run, hardware: str) -> None:
    code, answer = simulated(run, hardware, manifest("10-teams.yaml"), manifest("20-pretrain.yaml"))

    assert code == 0
    assert [gang["decision"] for gang in answer["gangs"]] == ["Admitted"]


def test_simulate_ends_with_3_when_some_are_held(run: Run, hardware: str) -> None:
    code, answer = simulated(run, hardware, str(MANIFESTS))

    assert code == 3
    assert {gang["name"]: gang["reason"] for gang in answer["gangs"]} == {
        "pretrain": None,
        "ablation": "QuotaExceeded",
        "evaluate": "DevicesBusy",
    }


def test_simulate_until_empty_admits_what_waits(run: Run, hardware: str) -> None:
    code, answer = simulated(run, hardware, str(MANIFESTS), "--until-empty")

    assert code == 0
    assert [(gang["name"], gang["order"]) for gang in answer["gangs"]] == [
        ("pretrain", 1),
        ("ablation", 2),
        ("evaluate", 3),
    ]


def test_simulate_ends_with_4_when_some_are_denied(run: Run, hardware: str, tmp_path: Path) -> None:
    lone = tmp_path / "lone.yaml"
    lone.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {muster.dev/queue: none}},"
        " spec: {containers: [{name: a, image: i}]}}"
    )
    code, answer = simulated(run, hardware, str(MANIFESTS), str(lone))

    assert code == 4
    assert answer["gangs"][-1]["reason"] in {"UnknownQueue", "QuotaExceeded"}


def test_simulate_takes_the_setting_of_schedulers_that_plans_predict(run: Run, hardware: str, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: demo-vision}\n"
        "spec: {schedulerName: gpus, containers: [{name: c, image: i}]}\n"
    )
    words = (hardware, manifest("10-teams.yaml"), str(pod), "--set")
    _, default = simulated(run, *words, "controller.steps=9")
    _, named = simulated(run, *words, "controller.schedulers=default-scheduler,gpus")

    told = [[text for text in answer["gangs"][0]["notSimulated"] if "gpus" in text] for answer in (default, named)]
    assert [len(one) for one in told] == [1, 0]


def test_simulate_notes_fields_that_a_kind_of_another_project_does_not_have(run: Run, tmp_path: Path) -> None:
    jobset = tmp_path / "jobset.yaml"
    jobset.write_text(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: train}\n"
        "spec: {startupPolicys: {}, replicatedJobs: []}\n"
    )
    result = run("simulate", str(jobset))

    assert "spec.startupPolicys: is an unknown field; did you mean startupPolicy?" in " ".join(result.stderr.split())


def test_the_json_of_simulate_has_the_documented_fields(run: Run, hardware: str) -> None:
    _, answer = simulated(run, hardware, manifest("10-teams.yaml"), manifest("20-pretrain.yaml"))
    (gang,) = answer["gangs"]

    assert list(answer) == ["gangs", "queues", "claims", "newNodes"]
    assert list(gang) == [
        *("namespace", "name", "queue", "decision", "reason", "message", "details"),
        *("placement", "notSimulated", "topology", "order", "plan", "charges", "later"),
    ]
    assert gang["charges"] == {"demo-claims": "4", "demo-gpus": "16"}
    assert gang["plan"][0] == {
        "pod": "pretrain-0",
        "node": "demo-node-1",
        "claims": [
            {
                "claim": "pretrain-0-gpus",
                "devices": [
                    {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "demo-node-1", "device": f"gpu-{number}"}
                    for number in range(4)
                ],
            }
        ],
    }
    assert answer["queues"][2] == {
        "name": "demo-vision",
        "meters": {
            "demo-claims": {"nominal": "10", "used": "4", "borrowed": "0", "lent": "0", "pending": "0"},
            "demo-gpus": {"nominal": "16", "used": "16", "borrowed": "0", "lent": "0", "pending": "0"},
        },
        "budgets": [],
    }


def test_tables_are_plain_text_in_columns_without_a_terminal(run: Run, hardware: str) -> None:
    text = run("simulate", hardware, str(MANIFESTS)).stdout

    assert "\x1b" not in text
    row = next(line for line in text.splitlines() if "QuotaExceeded" in line)
    assert row.split()[:4] == ["-", "demo-vision/ablation", "demo-vision", "Held"]
    assert "queue demo-vision has 0 demo-gpus left" in row


BAD = {
    "a time without a zone": (["--now", "2026-01-01T00:00:00"], "--now: '2026-01-01T00:00:00' has no time zone"),
    "a time that is none": (["--now", "soon"], "--now: 'soon' is not a time"),
    "a file that is not there": (["gone.yaml"], "gone.yaml: No such file or directory"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input_ends_with_2_and_a_sentence(muster: Muster, words: list[str], message: str, hardware: str) -> None:
    done = muster("simulate", hardware, *words)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert "Traceback" not in done.stderr


def test_kubectl_has_the_same_commands_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    plugin = pkgutil.resolve_name(scripts["kubectl-muster"])
    told: list[str] = []
    for words in (["--help"], ["queue", "stop"]):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-muster", *words])
        with pytest.raises(SystemExit):
            plugin()
        told += capsys.readouterr()

    root, _, _, missing = told
    assert "Usage: kubectl muster [OPTIONS] COMMAND" in root
    assert all(f"\n  {name} " in root for name in cli.COMMANDS)
    assert "completion" not in root
    assert missing.startswith("Usage: kubectl muster queue stop [OPTIONS] {QUEUE}")


def test_kubectl_completes_the_same_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    for name in ("_MUSTER_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    for words, offered in ((["queue", "st"], "stop\n"), (["gang", "list", "-o", ""], "text\ntable\n"), ([], "serve\n")):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl_complete-muster", *words])
        with pytest.raises(SystemExit):
            pkgutil.resolve_name(scripts["kubectl_complete-muster"])()

        assert capsys.readouterr().out.startswith(offered), words


BAD_OPTIONS = {
    "no whole number": ("simulate --steps 1.5 x", "'--steps': the value has to be a whole number"),
    "no number": ("smoke-test --timeout soon", "'--timeout': the value has to be a number"),
    "too small": ("simulate --steps 0 x", "'--steps': the value has to be greater than or equal to 1"),
    "none of the choices": ("gang list -o xml", "'--format' / '-o': 'xml' is not one of 'text', 'table', 'wide', "),
    "no command": ("qeue list", "No such command 'qeue'. Did you mean 'queue'?"),
}


@pytest.mark.parametrize(("line", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_what_is_wrong_with_an_option_is_said_without_words_of_python(muster: Muster, line: str, message: str) -> None:
    done = muster(*line.split())

    assert done.returncode == 2
    assert message in done.stderr


def test_a_problem_of_a_manifest_is_reported_with_file_line_and_field(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(
        "apiVersion: muster.dev/v1alpha1\nkind: Queue\nmetadata:\n  name: q\n"
        "spec:\n  quotas:\n  - meter: gpus\n    nominal: many\n"
    )
    done = muster("simulate", str(path))

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}:8: Queue q: spec.quotas[0].nominal: 'many' is not a")


def test_a_claim_that_no_cluster_would_accept_is_reported_with_line_field_and_remedy(
    muster: Muster, tmp_path: Path
) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata:\n  name: c\n"
        "spec:\n  devices:\n    requests:\n    - name: r\n      exactly:\n"
        "        deviceClassName: gpu\n        count: 9223372036854775807\n"
    )
    done = muster("simulate", str(path))

    assert done.returncode == 2
    field = "spec.devices.requests[0].exactly.count"
    assert done.stderr.startswith(f"error: {path}:11: ResourceClaim c: {field}: is 9223372036854775807; a claim holds")


def test_a_profile_that_is_not_known_is_refused_with_those_that_are(muster: Muster, hardware: str) -> None:
    done = muster("simulate", hardware, "--profile", "1.33")

    assert done.returncode == 2
    assert "1.36" in done.stderr
    assert "1.37" in done.stderr


def test_cel_is_judged_as_the_profile_does(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "class.yaml"
    path.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\n"
        "spec:\n  selectors:\n  - cel: {expression: 'device.`driver` == \"\"'}\n"
    )

    assert muster("simulate", str(path), "--profile", "1.37").returncode == 0
    done = muster("simulate", str(path), "--profile", "1.36")
    assert done.returncode == 2
    assert "spec.selectors[0].cel.expression: is not CEL that Kubernetes takes: 1:8: unsupported syntax" in done.stderr


def test_debug_shows_the_traceback(muster: Muster, tmp_path: Path) -> None:
    done = muster("--debug", "simulate", str(tmp_path))

    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "no file in this folder" in done.stderr


def test_without_a_cluster_commands_say_what_is_missing(muster: Muster, tmp_path: Path) -> None:
    done = muster("queue", "list", "--kubeconfig", str(tmp_path / "none"))

    assert done.returncode == 2
    assert "no kubeconfig at" in done.stderr


def test_without_a_ledger_commands_say_what_to_do(muster: Muster, tmp_path: Path) -> None:
    done = muster("ledger", "verify", "--database", f"sqlite:///{tmp_path}/none.sqlite3")

    assert done.returncode == 2
    assert "run `muster ledger migrate`" in done.stderr


def test_a_fresh_ledger_verifies_and_has_an_empty_statement(muster: Muster, tmp_path: Path) -> None:
    database = ["--database", f"sqlite:///{tmp_path}/ledger.sqlite3"]

    assert "revision" in muster("ledger", "migrate", *database).stdout
    verified = muster("ledger", "verify", "--format", "json", *database)
    assert json.loads(verified.stdout)["ok"] is True
    statement = json.loads(muster("ledger", "statement", "--format", "json", *database).stdout)
    assert [statement[name] for name in ("cluster", "queue", "opening", "lines", "closing")] == [
        "default",
        None,
        [],
        [],
        [],
    ]


def test_settings_that_are_wrong_are_named(muster: Muster, tmp_path: Path) -> None:
    config = tmp_path / "muster.toml"
    config.write_text("[ledger]\nurl = 3\n")
    done = muster("serve", "--config", str(config))

    assert done.returncode == 2
    assert "ledger.url" in done.stderr


def test_simulate_applies_a_claim_policy_given_on_the_command_line(run: Run, hardware: str, tmp_path: Path) -> None:
    rule = "{cel: request.exactly.count < 1, message: nobody gets anything}"
    tried = tmp_path / "policy.yaml"
    tried.write_text(
        f"{{apiVersion: muster.dev/v1alpha1, kind: ClaimPolicy, metadata: {{name: p}}, spec: {{rules: [{rule}]}}}}"
    )
    words = (hardware, manifest("10-teams.yaml"), manifest("20-pretrain.yaml"), "--policy")

    code, answer = simulated(run, *words, str(tried))

    assert code == 4
    assert {gang["reason"] for gang in answer["gangs"]} == {"PolicyViolation"}
    refused = run("simulate", *words, manifest("10-teams.yaml"))
    assert "is no ClaimPolicy; name it as a PATH" in str(refused.exception)


def test_the_examples_are_admitted_offline(run: Run) -> None:
    result = run("simulate", str(EXAMPLES))

    assert result.exit_code == 0, result.output
    assert "vision/train  research-vision  Admitted" in result.stdout
