"""`muster why`, `muster gang list` and `muster queue` name what their user may read, and nothing else."""

import asyncio
from collections.abc import Container
from typing import Any, cast

import pytest

from admission.api.muster import status_views
from admission.api.values.decoding import Json
from admission.api.values.reasons import Hold
from admission.api.values.references import EVERYWHERE
from admission.cli import referents
from admission.cli.cluster_options import Cluster
from admission.cli.gang import reports as gang_reports
from admission.cli.why import command
from admission.errors import ForbiddenError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from tests import teams
from tests.teams import OURS, SECRETS, THEIRS, Scene

NAMESPACES = "namespaces"
"""Stands among what is readable for the right to list namespaces."""


class Stored:
    """The twin of a `Cluster`: the objects of a scene, for a user who may list them in some namespaces."""

    def __init__(self, scene: Scene, readable: Container[str]) -> None:
        self._scene, self._readable = scene, readable
        self.listed: list[tuple[str, str]] = []

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        assert not labels
        self.listed.append((kind.name, namespace))
        if kind == watched_resources.NAMESPACES:
            if NAMESPACES not in self._readable:
                raise ForbiddenError("you may not list namespaces")
            return [{"metadata": {"name": name}} for name in (OURS, THEIRS)]
        if namespace not in self._readable and kind != watched_resources.QUEUES:
            raise ForbiddenError(f"you may not list {kind.plural}")
        cluster = self._scene.cluster
        if kind == watched_resources.GANGS:
            found: list[Json] = [*cluster.stored.values()]
        elif kind == watched_resources.QUEUES:
            found = [{"metadata": {"name": name}, "status": one} for name, one in cluster.queue_objects.items()]
        else:
            objects: dict[str, list[Any]] = {
                "ResourceClaim": [*cluster._claims.values()],
                "Pod": [*cluster._pods.values()],
            }
            found = [
                {"metadata": {"name": one.meta.name, "namespace": one.meta.namespace, "uid": str(one.meta.uid)}}
                for one in objects.get(kind.name, ())
            ]
        return [one for one in found if not namespace or one["metadata"].get("namespace") == namespace]

    @property
    def cluster(self) -> Cluster:
        return cast("Cluster", self)


def of_scene(name: str) -> Scene:
    async def happen() -> Scene:
        return await teams.SCENES[name]()

    return asyncio.run(happen())


def told(scene: Scene, readable: Container[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `muster why` says of all gangs of ours."""
    cluster = Stored(scene, readable).cluster

    async def fetch() -> None:
        for report in await gang_reports.reports(cluster, OURS):
            command.show(await referents.in_gang(report, cluster), now=scene.cluster.now)

    asyncio.run(fetch())
    return " ".join(capsys.readouterr().out.split())


WHY = {
    "busy": "in use by claim hidden-ns/merger-with-acme-first-0-gpus of gang hidden-ns/",
    "strict": "gang hidden-ns/merger-with-acme-large-",
    "unknown_ends": "nobody says how long gang hidden-ns/merger-with-acme-endless-",
    "preempted_for_quota": "gang hidden-ns/merger-with-acme-low-",
    "taken_meanwhile": "is in use by claim hidden-ns/merger-with-acme-stray",
    "fenced_in_vain": "claim hidden-ns/merger-with-acme-stray tolerates",
}


@pytest.mark.parametrize(("scene", "named"), WHY.items(), ids=WHY)
def test_an_administrator_is_told_who_is_in_the_way(scene: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert named in told(of_scene(scene), EVERYWHERE, capsys)


@pytest.mark.parametrize("scene", WHY)
def test_a_user_of_one_namespace_is_told_how_many_are_in_the_way(
    scene: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(of_scene(scene), {OURS}, capsys)

    assert said
    assert not [secret for secret in SECRETS[OURS] if secret in said]


def test_a_user_of_two_namespaces_is_told_the_names_in_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert WHY["busy"] in told(of_scene("busy"), {OURS, THEIRS, NAMESPACES}, capsys)


def test_who_knows_of_namespaces_is_told_no_names_in_those_that_he_may_not_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = told(of_scene("busy"), {OURS, NAMESPACES}, capsys)

    assert said
    assert not [secret for secret in SECRETS[OURS] if secret in said]


def test_a_user_who_may_read_gangs_and_no_claims_is_told_the_gangs() -> None:
    scene = of_scene("busy")
    stored = Stored(scene, {"", OURS})

    async def fetch() -> Hold:
        [report] = [one for one in await gang_reports.reports(stored.cluster, OURS) if one.hold is not None]
        found = (await referents.in_gang(report, stored.cluster)).hold
        assert isinstance(found, Hold)
        return found

    hold = asyncio.run(fetch())

    assert "a claim of gang hidden-ns/merger-with-acme-first-" in hold.message
    assert stored.listed[1:] == [("Gang", ""), ("ResourceClaim", THEIRS)], "not the claims of all namespaces"


def test_the_list_of_all_gangs_names_all_of_them() -> None:
    cluster = Stored(of_scene("strict"), EVERYWHERE).cluster

    reports = asyncio.run(gang_reports.reports(cluster))

    holds = [report.hold for report in reports if report.hold is not None]
    assert any("gang hidden-ns/merger-with-acme-large-" in hold.message for hold in holds)


def test_the_condition_of_a_deleted_queue_names_the_gangs_that_its_reader_may_list() -> None:
    scene = of_scene("deleted")
    reports = [
        status_views.queue({"metadata": {"name": name}, "status": status})
        for name, status in scene.cluster.queue_objects.items()
    ]

    async def conditions(readable: Container[str]) -> str:
        found = await referents.in_queues(reports, Stored(scene, readable).cluster)
        return " ".join(condition.message for report in found for condition in report.conditions)

    assert "back: gang hidden-ns/merger-with-acme-runs-" in asyncio.run(conditions(EVERYWHERE))
    assert "back: a gang of queue shared" in asyncio.run(conditions({OURS}))
