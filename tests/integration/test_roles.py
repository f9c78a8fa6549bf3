"""A controller without a webhook, and a webhook without a controller, as processes: what each does, and waits for."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from admission.webhook import path_segments
from admission.webhook.tls import certificate
from admission.webhook.tls.ca_rotation import Lifetimes
from tests.bench import cluster
from tests.integration import serving
from tests.integration.serving import eventually

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


async def test_a_controller_alone_has_probes_and_metrics(tmp_path: Path) -> None:
    ledger = {"url": f"sqlite:///{tmp_path / 'ledger.sqlite3'}"}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger) as muster:
        await eventually(muster.is_ready, what="the controller is ready", within=200)

        assert await muster.get("/healthz") == (200, "ok\n")
        _, page = await muster.get("/metrics")
        assert {"muster_leading", "muster_cycle_seconds_count"} <= {line.split()[0] for line in page.splitlines()}
        assert not serving.is_heard(muster.port)


async def test_a_controller_whose_ledger_is_away_says_so(tmp_path: Path) -> None:
    ledger = {"url": "postgresql://muster@127.0.0.1:1/muster"}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger) as muster:
        await eventually(lambda: _says(muster, "waiting: the ledger\n"), what="only the ledger is missing", within=200)


async def _says(muster: serving.Muster, words: str) -> bool:
    try:
        return await muster.get("/readyz") == (503, words)
    except aiohttp.ClientConnectionError:
        return False


async def test_a_webhook_alone_waits_for_a_controller_and_writes_nothing(tmp_path: Path) -> None:
    async with serving.muster(tmp_path, authorities=False, register=True) as muster:
        await eventually(lambda: _says(muster, "waiting: its certificate\n"), what="it waits for the authorities")
        serving.make_authorities(muster.api)

        await eventually(muster.is_ready, what="the webhook is ready")
        [segment] = path_segments.read(muster.entries())
        assert await muster.review(cluster.reviews("mutate")[0], f"/{segment.text}/mutate") == 200
        assert await muster.review(cluster.reviews("mutate")[0], "/mutate") == 404
        review = ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        writes = {(one.method, one.path) for one in muster.api.asked if one.method != "GET"}
        assert writes == {review}


async def test_a_webhook_whose_certificate_others_make_waits_until_a_controller_has_made_its_paths(
    tmp_path: Path,
) -> None:
    """It is not ready before: it would answer 404 what another replica judges."""
    given = certificate_files(tmp_path)

    async with serving.muster(tmp_path, authorities=False, register=True, **given) as muster:
        await eventually(lambda: _says(muster, "waiting: its paths\n"), what="it waits for its paths")
        serving.make_authorities(muster.api)

        await eventually(muster.is_ready, what="the webhook is ready")


def certificate_files(folder: Path) -> dict[str, Any]:
    """Make a certificate as somebody else would, and return the settings that name its files."""
    made = certificate.self_made(["127.0.0.1"], now=datetime.now(UTC))
    paths = {"certificate": folder / "tls.crt", "key": folder / "tls.key"}
    paths["certificate"].write_bytes(made.certificate)
    paths["key"].write_bytes(made.key)
    return {name: str(path) for name, path in paths.items()}


async def test_a_controller_alone_makes_the_authorities_and_registers_the_webhook(tmp_path: Path) -> None:
    ledger = {"url": f"sqlite:///{tmp_path / 'ledger.sqlite3'}"}
    service: dict[str, Any] = {"service": "muster-system/muster-webhook:443", "register": True}

    async with serving.muster(
        tmp_path, roles=("controller",), ledger=ledger, authorities=False, user=serving.USER, **service
    ) as muster:
        secrets = muster.api.objects["/api/v1/secrets"]
        configurations = muster.api.objects[REGISTRATIONS]
        await eventually(_are_there(configurations, "muster"), what="the webhook is registered")

        trusted = secrets["muster-system/muster-webhook"]["data"]["ca.crt"]
        hooks = configurations["muster"]["webhooks"]
        assert {hook["clientConfig"]["caBundle"] for hook in hooks} == {trusted}
        assert {hook["clientConfig"]["service"]["name"] for hook in hooks} == {"muster-webhook"}
        [segment] = path_segments.read(muster.entries())
        assert all(hook["clientConfig"]["service"]["path"].startswith(f"/{segment.text}/") for hook in hooks)


async def test_a_webhook_answers_plain_paths_until_the_controller_has_registered_others(tmp_path: Path) -> None:
    """As in an upgrade, and while a rollback is under way: the controller of before registers plain paths."""
    review = cluster.reviews("mutate")[0]
    hooks = [{"name": "x", "clientConfig": {"service": {"namespace": "m", "name": "m", "path": "/mutate"}}}]
    plain = {"metadata": {"name": "muster"}, "webhooks": hooks}

    async with serving.muster(tmp_path, registered=plain, register=True) as muster:
        await eventually(muster.is_ready, what="the webhook is ready")
        [segment] = path_segments.read(muster.entries())
        assert await muster.review(review, "/mutate") == 200
        assert await muster.review(review, f"/{segment.text}/mutate") == 200
        assert {(one.method, one.path) for one in muster.api.asked if "registration" in one.path} == {
            ("GET", f"{REGISTRATIONS}/muster"),
            ("GET", f"{REGISTRATIONS.replace('mutating', 'validating')}/muster"),
        }, "it reads what is named, and no list"


async def test_a_webhook_learns_of_a_new_segment_before_the_controller_registers_it(tmp_path: Path) -> None:
    review = cluster.reviews("mutate")[0]
    async with serving.muster(tmp_path, register=True) as muster:
        await eventually(muster.is_ready, what="the webhook is ready")
        stored = path_segments.read(muster.entries())
        segments = (*stored, *path_segments.rotate((), Lifetimes(), now=datetime.now(UTC)))
        entries = {**muster.entries(), **path_segments.encode(segments)}
        muster.api.put("/api/v1/secrets", serving.secret(entries))

        path = f"/{segments[1].text}/mutate"
        await eventually(lambda: _answers(muster, path), what="the new one is known")
        assert await muster.review(review, f"/{segments[0].text}/mutate") == 200


async def _answers(muster: serving.Muster, path: str) -> bool:
    return await muster.review(cluster.reviews("mutate")[0], path) == 200


async def test_the_registration_does_not_wait_for_the_ledger(tmp_path: Path) -> None:
    ledger = {"url": "postgresql://muster@127.0.0.1:1/muster"}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger, register=True) as muster:
        await eventually(_are_there(muster.api.objects[REGISTRATIONS], "muster"), what="the webhook is registered")


async def test_a_controller_whose_secret_is_broken_admits_all_the_same(tmp_path: Path) -> None:
    ledger = {"url": f"sqlite:///{tmp_path / 'ledger.sqlite3'}"}
    service: dict[str, Any] = {"service": "muster-system/muster-webhook:443", "register": True}

    async with serving.muster(tmp_path, roles=("controller",), ledger=ledger, **service) as muster:
        secret = {"metadata": {"name": "muster-webhook", "namespace": "muster-system"}, "data": {"ca.crt": "eA=="}}
        muster.api.put("/api/v1/secrets", secret)
        await eventually(muster.is_ready, what="the controller is ready", within=200)
        assert "the webhook has no authorities or no paths, and is not registered" in muster.words
        assert REGISTRATIONS not in muster.api.objects or not muster.api.objects[REGISTRATIONS]

        muster.api.delete("/api/v1/secrets", "muster-system/muster-webhook")

        await eventually(_are_there(muster.api.objects[REGISTRATIONS], "muster"), what="the webhook is registered")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nobody knows where the webhook is": ({"port": 0, "register": True}, "set webhook.service or webhook.url"),
    "webhooks take somebody else for the controller": (
        {"user": "system:serviceaccount:muster-system:other"},
        f"the API server knows this one as {serving.USER}",
    ),
}


@pytest.mark.parametrize(("settings", "said"), WRONG.values(), ids=WRONG)
async def test_a_controller_that_no_webhook_would_serve_says_what_to_set(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    async with serving.muster(tmp_path, roles=("controller",), **settings) as muster:
        code = await asyncio.wait_for(muster.process.wait(), 60)

        assert code == 2
        assert said in muster.words


def _are_there(objects: Mapping[str, Any], *names: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return set(names) <= objects.keys()

    return look
