import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from admission.errors import (
    ClusterUnavailableError,
    ConflictError,
    FixError,
    ForbiddenError,
    GoneError,
    MusterError,
    RetryError,
)
from admission.kube.client import errors, paths
from admission.kube.client.connection import Connection, PatchKind, RetryPolicy
from admission.kube.client.credentials import ClusterSelection
from admission.kube.client.session import Session
from tests.integration.kube.conftest import QUICK
from tests.integration.kube.fake_api import FakeApi, status

POD = "/api/v1/namespaces/team/pods/a"

REFUSALS: dict[str, tuple[int, dict[str, object], type[MusterError], str]] = {
    "an invalid object says what is invalid": (
        422,
        status(422, "Invalid", "spec.priority: must be unset"),
        FixError,
        r"patch pods a in namespace team: spec.priority: must be unset \(422\)",
    ),
    "a bad request is to be mended": (400, status(400, "BadRequest", "no such field"), FixError, "no such field"),
    "a role that is missing is named": (
        403,
        status(403, "Forbidden", 'User "muster" cannot patch resource "pods" in API group ""'),
        ForbiddenError,
        "grant verb patch on resource pods of API group core in namespace team",
    ),
    "a policy's refusal asks for no role": (
        403,
        status(403, "Forbidden", "exceeded quota: pods"),
        ForbiddenError,
        "refused by a policy of the cluster",
    ),
    "nor does one of a webhook that speaks of a path": (
        403,
        status(403, "Forbidden", "admission webhook denied the request: [host-paths] path /etc cannot be mounted"),
        ForbiddenError,
        "refused by a policy of the cluster",
    ),
    "a missing object is gone": (404, status(404, "NotFound", 'pods "a" not found', name="a"), GoneError, "not found"),
    "a missing resource is told apart": (404, {}, errors.AbsentEndpointError, "404"),
    "a change in between is a conflict": (409, status(409, "Conflict", "modified"), ConflictError, "modified"),
    "an object of that name is there": (409, status(409, "AlreadyExists", "exists"), errors.ExistsError, "exists"),
    "an old version has expired": (410, status(410, "Expired", "too old"), errors.ExpiredError, "too old"),
    "a method that is not taken": (405, status(405, "MethodNotAllowed", "no"), errors.RefusedMethodError, "no"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_translated_and_not_tried_again(
    api: FakeApi, connection: Connection, refusal: tuple[int, dict[str, object], type[MusterError], str]
) -> None:
    code, body, error, text = refusal
    api.answer("PATCH", POD, code, body)

    with pytest.raises(error, match=text):
        await connection.patch(POD, {}, PatchKind.MERGE)

    assert api.count("PATCH", POD) == 1


async def test_a_path_that_no_role_allows_is_named(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", "/metrics", 403, status(403, "Forbidden", 'forbidden: User "muster" cannot get path "/metrics"'))

    with pytest.raises(ForbiddenError, match="grant verb get on nonResourceURL /metrics"):
        await connection.get("/metrics")


async def test_a_server_that_fails_for_a_moment_is_asked_again(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", "/version", 503, "try later")
    api.answer("GET", "/version", 429, status(429, "TooManyRequests", "slow down"), Retry_After="0")
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37+"})

    assert await connection.version() == (1, 37)


async def test_a_server_that_goes_on_failing_is_away(api: FakeApi, connection: Connection) -> None:
    for _ in range(3):
        api.answer("GET", "/version", 500, "x" * 5000)

    with pytest.raises(ClusterUnavailableError) as raised:
        await connection.version()

    assert len(str(raised.value)) < 600, "a foreign body is cut"


async def test_a_server_that_stays_busy_asks_to_retry(api: FakeApi, connection: Connection) -> None:
    for _ in range(3):
        api.answer("GET", POD, 429, status(429, "TooManyRequests", "slow down"))

    with pytest.raises(RetryError, match="slow down"):
        await connection.get(POD)


def test_a_pause_is_as_long_as_the_server_asks_within_reason() -> None:
    retry_policy = RetryPolicy(base=0.1, longest=4)

    assert retry_policy.pause(1, 2.0) == 2.0
    assert retry_policy.pause(1, 3600.0) == 4
    assert 0.05 <= retry_policy.pause(1, None) <= 0.1
    assert 2 <= retry_policy.pause(90, None) <= 4


async def test_no_api_server_is_said_with_its_address(kubeconfig: Callable[[str], Path]) -> None:
    place = ClusterSelection(kubeconfig=kubeconfig("http://127.0.0.1:9"))

    async with Connection(place, retry_policy=RetryPolicy(tries=2, base=0.001)) as connection:
        with pytest.raises(ClusterUnavailableError, match=r"the API server at http://127\.0\.0\.1:9 does not answer"):
            await connection.version()


async def test_every_retry_is_logged_before_the_first_answer_of_the_api_server(
    kubeconfig: Callable[[str], Path],
) -> None:
    place = ClusterSelection(kubeconfig=kubeconfig("http://127.0.0.1:9"))

    with structlog.testing.capture_logs() as logged:
        async with Connection(place, retry_policy=RetryPolicy(tries=3, base=0.001)) as connection:
            with pytest.raises(ClusterUnavailableError, match="is the cluster up, and is KUBECONFIG"):
                await connection.version()

    assert [(line["log_level"], line["failed"], line["tries"]) for line in logged] == [
        ("warning", 1, 3),
        ("warning", 2, 3),
    ]


async def test_an_api_server_that_has_answered_before_is_waited_for_quietly(
    api: FakeApi, connection: Connection
) -> None:
    await connection.get("/api/v1/pods")
    await api.stop()

    with structlog.testing.capture_logs() as logged, pytest.raises(ClusterUnavailableError) as caught:
        await connection.get("/api/v1/pods")

    await api.start()
    assert logged == []
    assert "KUBECONFIG" not in str(caught.value)


async def test_a_slow_server_is_away_in_time(api: FakeApi, kubeconfig: Callable[[str], Path]) -> None:
    place = ClusterSelection(kubeconfig=kubeconfig(api.url))
    never = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "60"}

    async with Connection(place, retry_policy=RetryPolicy(tries=1, timeout=0.05)) as connection:
        with pytest.raises(ClusterUnavailableError, match="does not answer"):
            await connection.get("/api/v1/pods", never)


async def test_a_file_number_that_uvloop_holds_to_be_taken_is_tried_again(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen under resets in the middle of handshakes, where uvloop forgets to let go of the number."""
    refusals = ["File descriptor 12 is used by transport <TCPTransport closed=False reading=True 0x5593e013ee60>"]
    request = Session.request

    async def refused_once(session: Session, *arguments: Any, **named: Any) -> aiohttp.ClientResponse:
        if refusals:
            raise RuntimeError(refusals.pop())
        return await request(session, *arguments, **named)

    monkeypatch.setattr(Session, "request", refused_once)
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37+"})

    assert await connection.version() == (1, 37)
    assert not refusals


async def test_an_answer_that_is_no_json_is_cut_into_the_message(api: FakeApi, connection: Connection) -> None:
    for _ in range(3):
        api.answer("GET", POD, 200, "<html>a proxy's page</html>")

    with pytest.raises(ClusterUnavailableError, match="not JSON: <html>"):
        await connection.get(POD)


async def test_new_credentials_are_read_once_when_the_old_are_refused(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", "/version", 401, status(401, "Unauthorized", "expired"))
    api.answer("GET", "/version", 200, {"major": "1", "minor": "36"})
    assert await connection.version() == (1, 36)

    for _ in range(2):
        api.answer("GET", "/version", 401, status(401, "Unauthorized", "expired"))
    with pytest.raises(ForbiddenError, match="does not accept the credentials"):
        await connection.version()


async def test_a_proxy_of_the_environment_is_asked(
    api: FakeApi, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", api.url)
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37"})

    async with Connection(
        ClusterSelection(kubeconfig=kubeconfig("http://cluster.example")), retry_policy=QUICK
    ) as connection:
        assert await connection.version() == (1, 37)


async def test_the_proxy_of_the_kubeconfig_goes_before_that_of_the_environment(
    api: FakeApi, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    path = kubeconfig("http://cluster.example")
    path.write_text(path.read_text().replace("server:", f"proxy-url: {api.url}\n    server:"))
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37"})

    async with Connection(ClusterSelection(kubeconfig=path), retry_policy=QUICK) as connection:
        assert await connection.version() == (1, 37)


async def test_a_server_that_no_proxy_names_is_asked_itself(
    api: FakeApi, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37"})

    async with Connection(ClusterSelection(kubeconfig=kubeconfig(api.url)), retry_policy=QUICK) as connection:
        assert await connection.version() == (1, 37)


async def test_a_password_in_netrc_is_not_sent(
    api: FakeApi, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would take the place of the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37"})

    async with Connection(ClusterSelection(kubeconfig=kubeconfig(api.url)), retry_policy=QUICK) as connection:
        assert await connection.version() == (1, 37)


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixError, match=r"no kubeconfig at .*nowhere"):
        async with Connection(ClusterSelection(kubeconfig=tmp_path / "nowhere")):
            pass


async def test_a_context_that_is_not_there_is_named(kubeconfig: Callable[[str], Path]) -> None:
    with pytest.raises(FixError, match="production"):
        async with Connection(ClusterSelection(kubeconfig=kubeconfig("http://x"), context="production")):
            pass


async def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("[not a kubeconfig")

    with pytest.raises(FixError, match="broken"):
        async with Connection(ClusterSelection(kubeconfig=path)):
            pass


async def test_the_kubeconfig_of_the_environment_is_used(
    api: FakeApi, kubeconfig: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(api.url)))
    api.answer("GET", "/version", 200, {"major": "1", "minor": "37"})

    async with Connection() as connection:
        assert await connection.version() == (1, 37)


async def test_the_user_name_at_the_api_server_is_read(api: FakeApi, connection: Connection) -> None:
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    api.answer("POST", review, 201, {"status": {"userInfo": {"username": "system:serviceaccount:muster:muster"}}})

    assert await connection.who_am_i() == "system:serviceaccount:muster:muster"


async def test_a_line_of_three_megabytes_arrives_whole(api: FakeApi, connection: Connection) -> None:
    api.put("/api/v1/pods", {"metadata": {"name": "a", "annotations": {"big": "x" * 3 * 2**20}}})
    params: dict[str, str | int | bool] = {"watch": True, "resourceVersion": "0", "timeoutSeconds": 5}

    async with aclosing(connection.lines("/api/v1/pods", params, quiet=5, total=5)) as lines:
        first = await anext(lines)
        second = await anext(lines)

    assert first == b""
    assert len(json.loads(second)["object"]["metadata"]["annotations"]["big"]) == 3 * 2**20


async def test_a_connection_in_use_can_be_cancelled(connection: Connection) -> None:
    never = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "60"}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await connection.get("/api/v1/pods", never)


TARGETS = {
    ("GET", "/api/v1/pods"): "list pods",
    ("GET", "/api/v1/namespaces/x"): "get namespaces x",
    ("GET", "/api/v1/namespaces"): "list namespaces",
    ("POST", "/api/v1/namespaces/x/pods/a/eviction"): "create pods/eviction a in namespace x",
    ("PATCH", "/apis/muster.dev/v1alpha1/queues/q/status"): "patch queues/status q",
    ("DELETE", "/apis/batch/v1/namespaces/x/jobs/j"): "delete jobs j in namespace x",
    ("GET", "/version"): "get /version",
}


@pytest.mark.parametrize(("call", "text"), TARGETS.items(), ids=TARGETS.values())
def test_a_call_is_named_in_the_words_of_rbac(call: tuple[str, str], text: str) -> None:
    assert str(errors.target(*call)) == text


async def test_a_quoted_name_is_sent_as_it_is(api: FakeApi, connection: Connection) -> None:
    api.answer("GET", "/api/v1/namespaces/a/b", 200, {})

    await connection.get(paths.join("/api/v1/namespaces", "a/b"))

    (asked,) = api.asked
    assert asked.raw_path == "/api/v1/namespaces/a%2Fb"
