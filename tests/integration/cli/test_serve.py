"""`muster serve` where no API server answers."""

import json
import socket
from pathlib import Path

import pytest
import structlog

from admission.kube.client import connection
from admission.telemetry import logs
from tests.unit.cli.conftest import Muster


def test_serve_without_an_api_server_names_the_address_and_exits_with_1(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        server = f"http://127.0.0.1:{closed.getsockname()[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setattr(connection, "DEFAULT_RETRIES", connection.RetryPolicy(tries=3, base=0.001))
    monkeypatch.setattr(logs, "configure", lambda **_: None)

    with structlog.testing.capture_logs() as told:
        done = muster("serve", "--kubeconfig", str(path))

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: get /version: the API server at {server} does not answer: ")
    assert done.stderr.strip().endswith("is the cluster up, and is KUBECONFIG (or --kubeconfig) the right one?")
    assert [(line["log_level"], line["failed"]) for line in told] == [("warning", 1), ("warning", 2)]
