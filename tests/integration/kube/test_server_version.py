"""The profile follows the API server's version, also while the cluster is upgraded, unless the operator names one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog

from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import ClusterUnavailableError
from admission.kube.client.connection import Connection
from admission.kube.server_version import Versions
from tests.integration.kube.conftest import QUICK
from tests.integration.kube.fake_api import FakeApi, status

OLD, NEW = map(compatibility.profile, (Release.V1_36, Release.V1_37))


def says(api: FakeApi, minor: str, **more: str) -> None:
    api.answer("GET", "/version", 200, {"major": "1", "minor": minor, **more})


async def seen(versions: Versions, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.005)


async def test_the_profile_is_that_of_the_api_server(api: FakeApi, connection: Connection) -> None:
    versions = Versions()
    assert versions.profile is None, "nothing is predicted before the version is known"

    newer = replace(NEW, stands_in_for="1.38")
    known = {str(release.minor): compatibility.profile(release) for release in Release}
    for minor, profile in {**known, "37+": NEW, "38": newer, "33": None}.items():
        says(api, minor)
        await versions.probe(connection)
        assert versions.profile == profile


async def test_an_api_server_that_has_yet_to_read_its_roles_is_asked_again(
    api: FakeApi, connection: Connection
) -> None:
    refusal = status(403, "Forbidden", 'forbidden: User "muster" cannot get path "/version"')
    api.answer("GET", "/version", 403, refusal)
    says(api, "37")
    versions = Versions()
    await versions.probe(connection)
    assert versions.profile == NEW

    for _ in range(QUICK.tries):
        api.answer("GET", "/version", 403, refusal)
    with pytest.raises(ClusterUnavailableError, match=r"system:public-info-viewer"):
        await versions.probe(connection)


async def test_the_minimum_compatibility_version_decides_about_gates(api: FakeApi, connection: Connection) -> None:
    versions = Versions()
    for min_compatible, fractional in {"36": False, "37": True, "": False}.items():
        says(api, "37", minCompatibilityMajor="1", minCompatibilityMinor=min_compatible)
        await versions.probe(connection)
        assert versions.profile == replace(NEW, features=replace(NEW.features, fractional_ranges=fractional))


async def test_an_upgrade_is_noticed_and_an_api_server_that_is_away_changes_nothing(
    api: FakeApi, connection: Connection
) -> None:
    versions = Versions()
    says(api, "36")
    await versions.probe(connection)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(versions.keep(connection, every=0.01), name="keep")
        for _ in range(6):
            api.answer("GET", "/version", 500, "restarting")
        says(api, "36")
        for _ in range(1000):
            says(api, "37")
        async with asyncio.timeout(10):
            while api.count("GET", "/version") < 5:
                await api.next_request()
        assert versions.profile == OLD
        await seen(versions, lambda: versions.profile == NEW)
        task.cancel()

    logged: list[Any] = [log for log in logs if log["event"] == "plans follow kube-scheduler"]
    assert [(log["release"], log["version"]) for log in logged] == [("1.37", "1.37")], "an upgrade is told once"


async def test_of_a_kubernetes_older_than_all_the_log_says_that_nothing_is_predicted(
    api: FakeApi, connection: Connection
) -> None:
    says(api, "33")
    says(api, "33")
    versions = Versions()
    with structlog.testing.capture_logs() as logs:
        await versions.probe(connection)
        await versions.probe(connection)

    assert [(log["log_level"], log["version"]) for log in logs] == [("warning", "1.33")]
    assert "nothing is predicted" in logs[0]["event"]


async def test_of_a_kubernetes_newer_than_all_the_log_says_that_the_newest_stands_in_for_it(
    api: FakeApi, connection: Connection
) -> None:
    versions = Versions()
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            says(api, "38")
            await versions.probe(connection)

    assert [(log["log_level"], log["release"], log["version"]) for log in logs] == [("warning", "1.37", "1.38")]
    assert "newer than every release" in logs[0]["event"]


async def test_a_configured_profile_counts_and_a_difference_to_the_api_server_is_logged(
    api: FakeApi, connection: Connection
) -> None:
    versions = Versions(OLD)
    assert versions.profile == OLD
    with structlog.testing.capture_logs() as logs:
        for minor in ("37", "36", "35", "38"):
            says(api, minor)
            await versions.probe(connection)
            assert versions.profile == OLD

    assert [(log["log_level"], log["version"]) for log in logs] == [
        ("warning", "1.37"),
        ("info", "1.36"),
        ("warning", "1.35"),
        ("warning", "1.38"),
    ]
