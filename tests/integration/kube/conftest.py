"""A fake API server, a connection to it, and a reporter that writes there."""

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from admission.kube.client.connection import Connection, RetryPolicy
from admission.kube.client.credentials import ClusterSelection
from admission.kube.writers.status import Reporter
from tests.integration.kube.fake_api import FakeApi
from tests.integration.kube.reports import ticking

QUICK = RetryPolicy(tries=3, timeout=5.0, base=0.001, longest=0.01)


@pytest.fixture(autouse=True)
def without_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake server speaks plain HTTP, and to read the system's authorities takes each connection 50 ms."""
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_, **__: None)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    fake = FakeApi()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[[str], Path]:
    """Write a kubeconfig for a server's URL."""

    def write(url: str) -> Path:
        path = tmp_path / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
async def connection(api: FakeApi, kubeconfig: Callable[[str], Path]) -> AsyncIterator[Connection]:
    async with Connection(ClusterSelection(kubeconfig=kubeconfig(api.url)), retry_policy=QUICK) as opened:
        yield opened


@pytest.fixture
def reporter(connection: Connection) -> Reporter:
    return Reporter(connection, clock=ticking())
